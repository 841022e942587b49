"""What becomes of recorded pods under a strategy."""

from __future__ import annotations

from leadline_lab.replay.outcomes import PodOutcome
from leadline_lab.replay.replaying import replay

from tests.lab.replay.small import Recording, board, web


def test_one_pod_on_one_board_lives_as_it_was_recorded() -> None:
    recording = Recording([board("n1")])
    recording.put_in_order(recording.life(web("p"), "n1", 20.0, ready_s=23.0, ended_s=83.0))
    found = replay(recording.end(100.0, "n1"), "kube-default", 7)
    (pod,) = found.pods
    assert pod == PodOutcome(
        pod="default/p",
        workload="default/web",
        created_s=20.0,
        node="n1",
        bound_s=20.0,
        ready_s=23.0,
        ended_s=83.0,
        pull_s=0.0,
        best_ready_s=3.0,
    )
    assert (found.length_s, found.strategy, found.seed, found.cluster) == (100, "kube-default", 7, "c")
    assert found.zones == {"n1": ""} and found.tiers == {"n1": "edge"}
    assert found.is_recorded

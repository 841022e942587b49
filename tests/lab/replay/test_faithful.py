"""A replay of recorded decisions knows what the controller knew."""

from __future__ import annotations

from pathlib import Path

import pytest
from leadline_controller.history.recorded import Decided
from leadline_lab.replay.faithful import faithful
from leadline_lab.replay.past import Past
from leadline_lab.replay.replaying import replay

from tests.lab.replay.recorded_hours import ESTIMATE_EVERY_S, LoadedRun, record
from tests.lab.replay.small import Recording, board, web

STRATEGIES = ("netsched", "dacs", "kube-default", "infrastructure-aware")
# Of these, a first difference does not come within an hour. After one, the placed pods differ, and
# with them all that follows.
EXACT = ("dacs", "kube-default")


@pytest.mark.experiment
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_hour_of_real_decisions_comes_out_again(strategy: str, tmp_path: Path) -> None:
    run = LoadedRun(
        hours=1.0,
        boards=20,
        seed=5,
        churn_per_s=0.5,
        busy_share=1.0,
        faults=0.0,
        strategy=strategy,
    )
    entries = record(run, tmp_path)
    found = faithful(entries, ESTIMATE_EVERY_S)
    print(strategy, found.decisions, found.share, *found.differences, sep="\n")
    decided = [each.what for each in entries if isinstance(each.what, Decided)]
    assert found.decisions == len(decided) > 1500
    assert len({each.node for each in decided}) > 10
    assert found.share >= 0.99
    assert all(each.why for each in found.differences)
    if strategy in EXACT:
        past = Past.of(entries, ESTIMATE_EVERY_S)
        pods = replay(past, strategy, past.began.seed).pods
        recorded = {life.pod.key: life.node for life in past.lives.values()}
        same = sum(pod.node == recorded[pod.pod] for pod in pods)
        assert same >= 0.99 * len(pods) == 0.99 * len(recorded)


def test_a_decision_that_nothing_explains_is_told_with_why() -> None:
    nodes = [board("n1"), board("n2", cores=8), board("n3", unschedulable=True)]
    recording = Recording(nodes)
    # By its free share the first would be on either; the others were never where the rule says.
    told = recording.life(web("a", 1000), "n1", 10.0)
    told += recording.life(web("b", 100), "n1", 20.0)
    told += recording.life(web("c", 100), "n3", 30.0)
    told += recording.life(web("d", 100), None, 40.0)
    told += recording.life(web("e", 100), "n9", 50.0)
    recording.put_in_order(told)
    recording.put(60.0, Decided("uid-x", "default/x", "n1"))
    found = faithful(recording.end(100.0, "n1"))
    why = {each.pod[-1]: each.why for each in found.differences}
    assert found.decisions == 6
    assert set(why) - {"a"} == {"b", "c", "d", "e", "x"}
    assert why["b"].startswith("here n2 has the total")
    assert why["c"].startswith("n3 does not fit here: NodeUnschedulable")
    assert why["d"].startswith("nothing fitted then; here n")
    assert why["e"].startswith("n9 is not a node here")
    assert why["x"].startswith("the recording does not show the pod")

"""Real controllers killed while the volumes of pods are being made or bound: each pod ends bound
exactly once, where its volume is. The API server's audit log is the witness."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from tests.kube.api import ApiError
from tests.kube.controllers import kube_controller_manager
from tests.kube.volume_bench import CLAIMS, PROVISIONER, VOLUMES, Bench
from tests.kube.volumes import SELECTED_NODE
from tests.support.threads import beside
from tests.system.controller_pair import NODES, ControllerPair
from tests.system.daemons import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

SCHEDULER = "leadline"
FEW = 5
MANY = 60
POLL_S = 0.2


@pytest.fixture
def bench(pair: ControllerPair) -> Iterator[Bench]:
    made = Bench(pair.api, SCHEDULER)
    try:
        yield made
    finally:
        made.clean()


@contextmanager
def volume_controller(pair: ControllerPair) -> Iterator[None]:
    with kube_controller_manager(pair.plane, ["persistentvolume-binder-controller"]):
        yield


def prefix_of(bench: Bench) -> str:
    return f"{bench.name}-pod"


def add_pods(bench: Bench, suffixes: list[str]) -> list[str]:
    """Pods, each with a claim of its own; returns the claims."""
    claims = [bench.claim(f"claim-{suffix}") for suffix in suffixes]
    for suffix, wanted in zip(suffixes, claims, strict=True):
        bench.pod(wanted, f"pod-{suffix}")
    return claims


def selected(bench: Bench) -> dict[str, str]:
    """Claim -> the node for which a volume is to be made, of this bench's that have none."""
    found = {}
    for each in bench.api.get(CLAIMS)["items"]:
        metadata = each["metadata"]
        chosen = metadata.get("annotations", {}).get(SELECTED_NODE)
        own = metadata["name"].startswith(f"{bench.name}-")
        if own and chosen and "volumeName" not in each["spec"]:
            found[metadata["name"]] = chosen
    return found


def kept(bench: Bench) -> dict[str, str]:
    """Claim -> the node of the volume that is kept for it, of this bench's."""
    found = {}
    for each in bench.api.get(VOLUMES)["items"]:
        claim = each["spec"].get("claimRef", {}).get("name", "")
        if claim.startswith(f"{bench.name}-"):
            found[claim] = node_of_volume(each)
    return found


def node_of_volume(volume: Any) -> str:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return str(term["matchExpressions"][0]["values"][0])


def kill_both(pair: ControllerPair) -> None:
    for one in pair.candidates:
        one.daemon.stop(signal.SIGKILL)


def check(pair: ControllerPair, bench: Bench, count: int) -> dict[str, str]:
    """All are bound, each by one binding, on the nodes of their volumes: claim -> node."""
    prefix = prefix_of(bench)
    where = pair.wait_all_bound(prefix, count)
    tally = pair.tally(prefix, where)
    assert set(tally) <= {0, 1}
    # A binding may have been done although nobody was left to hear the answer.
    unanswered = {write.name for write in pair.audit.bindings(prefix) if not write.worked}
    assert tally[0] <= len(unanswered)
    by_claim = {pod.replace("-pod-", "-claim-"): node for pod, node in where.items()}
    assert by_claim == kept(bench)
    for one in pair.candidates:
        assert one.daemon.said("Traceback") == 0
    return by_claim


@pytest.mark.parametrize("made_meanwhile", [True, False])
def test_killed_between_the_choice_of_a_node_and_the_binding(
    pair: ControllerPair, bench: Bench, made_meanwhile: bool
) -> None:
    pair.both_run()
    bench.storage_class(PROVISIONER)
    with volume_controller(pair):
        add_pods(bench, [str(i) for i in range(FEW)])
        chosen = eventually(
            lambda: selected(bench), lambda found: len(found) == FEW, "nodes are chosen"
        )
        kill_both(pair)
        assert pair.audit.bindings(prefix_of(bench)) == []
        if made_meanwhile:
            provision(bench, chosen)
        pair.candidates[1].daemon.start()
        if not made_meanwhile:
            pair.wait_leader(other_than=pair.candidates[0])
            assert selected(bench) == chosen
            provision(bench, chosen)
        assert check(pair, bench, FEW) == chosen


def provision(bench: Bench, chosen: dict[str, str]) -> None:
    for claim, node in chosen.items():
        bench.provision(claim, node)


def test_killed_between_the_keeping_of_a_volume_and_the_binding(
    pair: ControllerPair, bench: Bench
) -> None:
    """Without the volume controller nothing follows from what was written."""
    pair.both_run()
    bench.storage_class()
    for i in range(FEW):
        name = bench.volume(f"pv-{i}", NODES[i])
        bench.api.patch(f"{VOLUMES}/{name}/status", {"status": {"phase": "Available"}})
    add_pods(bench, [str(i) for i in range(FEW)])
    taken = eventually(lambda: kept(bench), lambda found: len(found) == FEW, "volumes are kept")
    kill_both(pair)
    assert pair.audit.bindings(prefix_of(bench)) == []
    with volume_controller(pair):
        pair.candidates[1].daemon.start()
        assert check(pair, bench, FEW) == taken


@dataclass
class Provisioner:
    """Makes volumes where they are to be, `most` of them; fails once at every third claim."""

    bench: Bench
    most: int
    failed: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    done: Event = field(default_factory=Event)

    @contextmanager
    def working(self) -> Iterator[None]:
        with beside(self._work, done=self.done):
            yield

    def _work(self) -> None:
        while not self.done.wait(POLL_S):
            with suppress(ApiError):
                for claim, node in selected(self.bench).items():
                    self._serve(claim, node)

    def _serve(self, claim: str, node: str) -> None:
        if claim[-1] in "0369" and claim not in self.failed:
            self.failed.add(claim)
            given_up = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            self.bench.api.patch(f"{CLAIMS}/{claim}", given_up)
        elif claim not in self.made and len(self.made) < self.most:
            self.made.add(claim)
            self.bench.provision(claim, node)


def test_the_leader_is_killed_in_the_middle_of_pods_with_volumes(
    pair: ControllerPair, bench: Bench
) -> None:
    leader, _ = pair.both_run()
    bench.storage_class(PROVISIONER)
    provisioner = Provisioner(bench, most=MANY // 4)
    with volume_controller(pair), provisioner.working():
        for i in range(MANY // 4):
            bench.volume(f"pv-{i:02}", NODES[i % len(NODES)])
        add_pods(bench, [f"{i:02}" for i in range(MANY)])
        pair.wait_some_bound(prefix_of(bench), MANY // 4)
        leader.daemon.stop(signal.SIGKILL)
        provisioner.most = MANY
        check(pair, bench, MANY)
    assert len(provisioner.failed) > 0
    by = Counter(write.by for write in pair.audit.bindings(prefix_of(bench)))
    assert sorted(by) == sorted(one.credential for one in pair.candidates)
    print(f"\n{MANY} pods with volumes, {by[leader.credential]} bound before the kill")

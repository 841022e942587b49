"""An event that makes a rejected node pass is in the queueing hint of the filter that rejected
it, so no pod waits for nothing.

The clusters are those of the comparison with kube-scheduler's plugins. One object in them changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import ClusterObject
from leadline_controller.framework.cycle import FilterResult, Rule, decide
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    NodeDeleted,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube.compare import KINDS
from tests.kube.generator import THEMES, made

SEEDS = 80
MEASURED = TelemetryState(TimesToLive())
Thing = Node | Pod | ClusterObject


def things(seed: int, theme: str) -> tuple[dict[tuple[type, str], Thing], Pod]:
    """The objects of a case, by kind and name, and the pending pod."""
    case = made(seed, theme)
    found: list[Thing] = [read_node(each) for each in case["nodes"]]
    found += [read_pod(each) for each in case["pods"]]
    for name, kind in KINDS.items():
        found += [READERS[kind](each, kind) for each in case.get(name) or ()]
    by_key = {(type(x), x.name if isinstance(x, Node) else x.key): x for x in found}
    return by_key, read_pod(case["pod"])


def listed(there: dict[tuple[type, str], Thing]) -> Relisted:
    everything = there.values()
    return Relisted(
        tuple(x for x in everything if isinstance(x, Node)),
        tuple(x for x in everything if isinstance(x, Pod)),
        tuple(x for x in everything if not isinstance(x, Node | Pod)),
    )


def appearing(thing: Thing) -> ClusterChange:
    if isinstance(thing, Node):
        return NodeChanged(thing)
    return PodChanged(thing) if isinstance(thing, Pod) else ObjectChanged(thing)


def going(thing: Thing) -> ClusterChange:
    if isinstance(thing, Node):
        return NodeDeleted(thing.name)
    return PodDeleted(thing) if isinstance(thing, Pod) else ObjectDeleted(thing)


def changes(seed: int, theme: str) -> Iterator[tuple[Relisted, ClusterChange, Pod]]:
    """A cluster, and an object that is added, deleted or changed to what it is in another one."""
    random = Random(f"{theme}/{seed}")
    here, pod = things(seed, theme)
    other, _ = things(seed + SEEDS, theme)
    key = random.choice(list(here))
    yield listed({k: x for k, x in here.items() if k != key}), appearing(here[key]), pod
    key = random.choice(list(here))
    yield listed(here), going(here[key]), pod
    shared = [k for k in here if k in other and here[k] != other[k]]
    if shared:
        yield listed(here), appearing(other[random.choice(shared)]), pod


def results(view: ClusterView, pod: Pod) -> dict[str, FilterResult]:
    return {name: test(view, pod) for name, test in FILTERS.items()}


def fits(found: dict[str, FilterResult]) -> bool:
    """Whether a node passes all filters."""
    return bool(np.logical_and.reduce([each.passes for each in found.values()]).any())


def passes_now(
    before: ClusterView, after: ClusterView, was: FilterResult, now: FilterResult
) -> bool:
    """Whether a node passes now that was rejected before."""
    return any(
        now.passes[after.table.index[node]] and not was.passes[i]
        for i, node in enumerate(before.table.names)
        if node in after.table.index
    )


def _changed_rejections(
    start: Relisted, change: ClusterChange, pod: Pod, label: str
) -> Iterator[str]:
    state = ClusterState()
    state.apply(start)
    before = state.view(MEASURED, 0.0)
    events = state.apply(change)
    after = state.view(MEASURED, 0.0)
    then, now = results(before, pod), results(after, pod)
    for name, was in then.items():
        if passes_now(before, after, was, now[name]):
            assert was.requeue_on & events, f"{name}: {label}: {events}"
            yield name
    if fits(now) and not fits(then):
        decision = decide(before, pod, Rule(KubeDefault(), FILTERS))
        assert decision.node is None
        assert decision.requeue_on & events, f"{label}: {events}"
        yield "all"


@pytest.mark.slow
def test_every_event_that_changes_a_rejection_is_in_the_filters_queueing_hint() -> None:
    """Each filter's rejection changes in three cases at least; under "all", a pod finds a node."""
    found: Counter[str] = Counter()
    for theme in THEMES:
        for seed in range(SEEDS):
            for start, change, pod in changes(seed, theme):
                found.update(_changed_rejections(start, change, pod, f"{theme}/{seed}: {change}"))
    # A link's bandwidth and round trip are no manifest's, and the pods here don't ask for any.
    expected = {*FILTERS, "all"} - {"NodeReady", "NodeBandwidthFit", "PeerRoundTrip"}
    assert {name: found[name] for name in expected if found[name] < 3} == {}

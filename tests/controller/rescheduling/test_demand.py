"""A pod resized in place, by DACS Section 6.2."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, PODS, PendingResize, Pod, Preferences
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.preferences import rule
from leadline_controller.rescheduling.demand import DemandAnswer, answer_demand
from leadline_controller.strategies.dacs import Dacs

from tests.controller.builders import GIB, node, view


def amounts(cores: float, gib: float = 1.0) -> dict[str, int]:
    return {CPU: int(cores * 1000), MEMORY: int(gib * GIB), PODS: 1}


def resized(cores: float, gib: float = 1.0, reason: str = "Deferred") -> Pod:
    """A pod of one core and one GiB on n1, which asks for more."""
    held, wanted = amounts(1), amounts(cores, gib)
    counted = held if reason == "Infeasible" else {k: max(held[k], wanted[k]) for k in held}
    pending = PendingResize(reason, held, wanted)
    return Pod("default", "p", "uid-p", counted, node_name="n1", resize=pending)


def cluster(pod: Pod, *cores: float, used_on_n1: float = 0.0) -> ClusterView:
    """n1 and on, with these cores and 4 GiB; the pod is counted on n1 as the kubelet's peer, the
    scheduler, counts it."""
    nodes = [node(f"n{at}", cores=each, gib=4) for at, each in enumerate(cores, start=1)]
    used = {CPU: [int(used_on_n1 * 1000)] + [0] * (len(cores) - 1)}
    return view(nodes, requested=used).with_placement(pod, 0)


def answered(pod: Pod, *cores: float, used_on_n1: float = 0.0) -> DemandAnswer:
    found = answer_demand(cluster(pod, *cores, used_on_n1=used_on_n1), pod, Rule(Dacs(), FILTERS))
    assert found is not None
    return found


def test_it_waits_where_there_is_room() -> None:
    found = answered(resized(3), 4, 8)
    assert (found.case, found.target) == ("stay", None)
    assert found.why == "it asks for cpu 1 -> 3 cores, for which n1 has the room"


def test_it_goes_to_a_node_that_has_the_room_which_is_kept_for_all_it_asks_for() -> None:
    found = answered(resized(3, 2), 4, 2, 8, used_on_n1=2)
    assert (found.case, found.target) == ("migrate", "n3")
    assert found.pod.requests == amounts(3, 2)
    assert found.why == (
        "it asks for cpu 1 -> 3 cores, memory 1 -> 2 GiB, which n1 does not have (Deferred) and "
        "n3 has"
    )


def test_a_kubelet_that_will_never_do_it_is_left_even_if_there_seems_to_be_room() -> None:
    """Such as with a static CPU policy."""
    assert answered(resized(3), 4, 8).target is None
    assert answered(resized(3, reason="Infeasible"), 4, 8).target == "n2"


@pytest.mark.parametrize(("setting", "target"), [("off", "n2"), ("on", "n3")])
def test_what_it_prefers_decides_between_nodes_that_are_nearly_equal(
    setting: str, target: str
) -> None:
    """n2 has more room."""
    here = (Requirement("metadata.name", "In", ("n3",), on_name=True),)
    pod = replace(resized(3), preferences=Preferences(nodes=((1, here),)))
    there = cluster(pod, 4, 8.1, 8, used_on_n1=3)
    found = answer_demand(there, pod, Rule(Dacs(), FILTERS, Random(0), rule(setting)))
    assert found is not None
    assert (found.case, found.target) == ("migrate", target)


@pytest.mark.parametrize(
    ("cores", "target", "why"),
    [
        ((4, 5), "n2", "which no node has; the most is left on n2"),
        ((6, 3), None, "which no node has; the most is left on n1"),
        ((6, 4), None, "which no node has; the most is left on n1"),
    ],
)
def test_where_nobody_has_the_room_it_goes_where_the_most_is_left_with_room_for_what_it_has(
    cores: tuple[float, ...], target: str | None, why: str
) -> None:
    found = answered(resized(20), *cores, used_on_n1=2)
    assert (found.case, found.target) == ("most left", target)
    assert found.why.endswith(why)
    if target is not None:
        assert found.pod.requests == amounts(1)


def test_it_stays_if_not_even_its_present_size_fits_where_the_most_is_left() -> None:
    found = answered(resized(20), 2.5, 0.9, used_on_n1=2)
    assert (found.case, found.target) == ("most left", None)
    assert "the most is left on n2, but not even its present size fits there: " in found.why
    assert "NodeResourcesFit" in found.why


@pytest.mark.parametrize(
    "changed",
    [
        {"resize": None},
        {"node_name": None},
        {"finished": True},
        {"terminating": True},
        {"node_name": "gone"},
    ],
)
def test_other_pods_are_left_alone(changed: dict[str, Any]) -> None:
    pod = resized(3)
    there = cluster(pod, 2, 8)
    assert answer_demand(there, replace(pod, **changed), Rule(Dacs(), FILTERS)) is None


CONTAINER = {"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}


def manifest(reason: str, **status: object) -> dict[str, object]:
    held = {"cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [CONTAINER]},
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [
                {"name": "main", "resources": {"requests": held}, "allocatedResources": held}
            ],
            **status,
        },
    }


@pytest.mark.parametrize(("reason", "counted"), [("Deferred", 3000), ("Infeasible", 1000)])
def test_a_pending_resize_is_read_from_the_pods_status(reason: str, counted: int) -> None:
    pod = read_pod(manifest(reason))
    assert pod.resize is not None
    assert pod.resize.reason == reason
    assert (pod.resize.held[CPU], pod.resize.wanted[CPU], pod.requests[CPU]) == (
        1000,
        3000,
        counted,
    )
    (container,) = pod.resize.containers
    assert (container.container, container.limits) == ("main", {})
    assert container.requests == {"cpu": "3", "memory": "1Gi"}


def test_a_resize_that_goes_on_is_not_pending() -> None:
    in_progress = [{"type": "PodResizeInProgress", "status": "True"}]
    assert read_pod(manifest("Deferred", conditions=in_progress)).resize is None
    older = read_pod(manifest("Deferred", conditions=[], resize="Deferred"))
    assert older.resize is not None, "as before Kubernetes 1.33"

"""Namespaces and storage, with the assumed volume plans."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters.volume_binding import volume_binding
from leadline_controller.framework.cluster_objects import (
    Attachment,
    ClusterObject,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    PodSelector,
    StorageCapacity,
    StorageClass,
    Unreadable,
    VolumePlan,
)
from leadline_controller.framework.model import Owner, Pod
from leadline_controller.framework.ports import (
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.queueing_hints import NO_EVENT, ClusterEvent
from leadline_controller.framework.selectors import Requirement, selects
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.cluster_objects import read_pod_selector
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.controller.builders import node
from tests.controller.storing import HOST, claim, storage_class, using, volume
from tests.support.examples import examples

MEASURED = TelemetryState(TimesToLive())
STATIC = storage_class("static", "kubernetes.io/no-provisioner")
NODES = tuple(node(name, labels={HOST: name}) for name in ("n0", "n1"))
FREE = volume(class_name="static", nodes=("n0",))
CLAIM, OTHER = claim("c", "static"), claim("d", "static")
TAKES = VolumePlan("n0", binds=(("v", "default/c"),))
SELECTS = VolumePlan("n1", selects=("default/w",))


def uses(*claims: str) -> Pod:
    return replace(using(*claims, name="-".join(claims)), uid=f"uid-{'-'.join(claims)}")


@pytest.fixture
def state() -> ClusterState:
    state = ClusterState()
    objects = (STATIC, FREE, CLAIM, OTHER, storage_class("wait"), claim("w"))
    state.apply(Relisted(NODES, (uses("c"), uses("d"), uses("w")), objects))
    return state


def seen(state: ClusterState) -> ClusterView:
    return state.view(MEASURED, 0.0)


def fits(state: ClusterState, wanted: Pod) -> list[bool]:
    return [bool(passes) for passes in volume_binding(seen(state), wanted).passes]


def test_a_reserved_volume_is_not_reserved_again(state: ClusterState) -> None:
    assert fits(state, uses("d")) == [True, False]
    state.assume(uses("c"), "n0", TAKES)
    assert fits(state, uses("d")) == [False, False]
    assert seen(state).storage.volumes["v"].claim == "default/c"


@pytest.mark.parametrize(
    "end",
    [
        lambda state: state.forget(uses("c")),
        lambda state: state.apply(PodDeleted(uses("c"))),
        lambda state: state.apply(PodChanged(replace(uses("c"), node_name="n1"))),
    ],
    ids=["the plan failed", "its pod is deleted", "its pod was bound elsewhere"],
)
def test_a_plan_is_forgotten(state: ClusterState, end: Callable[[ClusterState], object]) -> None:
    state.assume(uses("c"), "n0", TAKES)
    end(state)
    assert fits(state, uses("d")) == [True, False]


def test_a_plan_stays_assumed_until_the_watch_shows_the_volume(state: ClusterState) -> None:
    """The pod's watch may be ahead of the volumes' watch."""
    state.assume(uses("c"), "n0", TAKES)
    state.apply(PodChanged(replace(uses("c"), node_name="n0")))
    assert fits(state, uses("d")) == [False, False]
    state.apply(ObjectChanged(replace(FREE, claim="default/c", claim_uid="uid-c")))
    assert fits(state, uses("d")) == [False, False]
    # After it was shown once, the plan is over and later changes count.
    state.apply(ObjectChanged(FREE))
    assert fits(state, uses("d")) == [True, False]


def test_a_claim_with_an_assumed_node_keeps_other_pods_on_it(state: ClusterState) -> None:
    assert fits(state, uses("w")) == [True, True]
    state.assume(uses("w"), "n1", SELECTS)
    assert fits(state, uses("w")) == [False, True]
    assert seen(state).storage.claims["default/w"].selected_node == "n1"


def test_what_the_cluster_shows_overrides_a_plan(state: ClusterState) -> None:
    state.assume(uses("w"), "n1", SELECTS)
    shown = claim("w", annotations={"volume.kubernetes.io/selected-node": "n0"})
    state.apply(ObjectChanged(shown))
    assert fits(state, uses("w")) == [True, False]


def test_a_plan_survives_a_relist_that_does_not_show_it(state: ClusterState) -> None:
    state.assume(uses("c"), "n0", TAKES)
    state.apply(Relisted(NODES, (uses("c"), uses("d")), (STATIC, FREE, CLAIM, OTHER)))
    assert fits(state, uses("d")) == [False, False]


def test_a_view_does_not_change_later(state: ClusterState) -> None:
    before = seen(state)
    state.apply(ObjectDeleted(CLAIM))
    state.apply(ObjectChanged(NamespaceLabels("blue", {"team": "a"})))
    assert "default/c" in before.storage.claims
    assert "default/c" not in seen(state).storage.claims
    assert before.namespaces.labels == {}
    assert seen(state).namespaces.labels == {"blue": {"team": "a"}}


def test_namespaces_are_selected_by_their_current_labels(state: ClusterState) -> None:
    of_team_a = (Requirement("team", "In", ("a",)),)
    found = []
    for labels in ({"team": "a"}, {"team": "a"}, {"team": "b"}):
        state.apply(ObjectChanged(NamespaceLabels("blue", labels)))
        found.append(seen(state).namespaces.selected(of_team_a))
    assert found == [["blue"], ["blue"], []]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (replace(FREE, size_bytes=FREE.size_bytes * 2), ClusterEvent.VOLUMES),
        (replace(CLAIM, terminating=True), ClusterEvent.CLAIMS),
        (StorageClass("new", "test"), ClusterEvent.CLASSES),
        (CsiNode("n0", {}), ClusterEvent.LIMITS),
        (CsiDriver("test"), ClusterEvent.LIMITS),
        (StorageCapacity("default/s", "new", None, None), ClusterEvent.LIMITS),
        (Attachment("a", "n0", "test", "v"), ClusterEvent.LIMITS),
        (NamespaceLabels("blue", {}), ClusterEvent.NAMESPACES),
    ],
)
def test_events_of_a_changed_object(
    state: ClusterState, made: ClusterObject, expected: ClusterEvent
) -> None:
    for change in (ObjectChanged(made), ObjectDeleted(made)):
        assert state.apply(change) == expected
        assert state.apply(change) == NO_EVENT


def test_a_kind_that_becomes_readable_is_an_event_of_all_kinds(state: ClusterState) -> None:
    hidden = Unreadable("StorageClass", "403")
    state.apply(ObjectChanged(hidden))
    events = state.apply(ObjectDeleted(hidden))
    for kind in (
        ClusterEvent.NAMESPACES,
        ClusterEvent.CLAIMS,
        ClusterEvent.VOLUMES,
        ClusterEvent.CLASSES,
        ClusterEvent.LIMITS,
    ):
        assert events & kind


WEB = (Requirement("app", "In", ("web",)),)
FRONT = (Requirement("tier", "In", ("front",)),)
WEB_SET = PodSelector("ReplicaSet", "default", "web", WEB)


def test_the_selectors_of_a_pod_follow_the_watch(state: ClusterState) -> None:
    labels = {"app": "web", "tier": "front"}
    owned = Pod("default", "p", labels=labels, owner=Owner("ReplicaSet", "web", "u", "apps/v1"))
    service = PodSelector("Service", "default", "front", FRONT)
    assert seen(state).pod_selectors.of(owned) == ()
    assert state.apply(ObjectChanged(WEB_SET)) == NO_EVENT
    state.apply(ObjectChanged(service))
    assert seen(state).pod_selectors.of(owned) == (*FRONT, *WEB)
    state.apply(ObjectChanged(replace(service, selector=WEB)))
    assert seen(state).pod_selectors.of(owned) == WEB
    state.apply(ObjectDeleted(service))
    state.apply(ObjectDeleted(WEB_SET))
    assert seen(state).pod_selectors.of(owned) == ()
    assert not state.objects.pod_selectors._services, "nothing is kept of namespaces"
    state.apply(Relisted(NODES, (), (service,)))
    assert seen(state).pod_selectors.of(owned) == FRONT


@examples(30)
@given(st.integers(0, 2**32))
def test_a_pod_is_selected_by_those_services_that_select_it(seed: int) -> None:
    random, state = Random(seed), ClusterState()
    state.apply(Relisted(NODES, ()))
    services: dict[str, PodSelector] = {}
    for _ in range(40):
        name = f"s{random.randrange(6)}"
        keys = random.sample("abc", random.randrange(4))
        selector = tuple(Requirement(key, "In", (random.choice("xy"),)) for key in keys)
        service = PodSelector("Service", random.choice(["default", "other"]), name, selector)
        if random.random() < 0.3:
            services.pop(service.key, None)
            state.apply(ObjectDeleted(service))
        else:
            services[service.key] = service
            state.apply(ObjectChanged(service))
        pod = Pod("default", "p", labels={key: random.choice("xy") for key in "ab"})
        expected = {
            each
            for one in services.values()
            if one.namespace == pod.namespace and one.selector and selects(one.selector, pod.labels)
            for each in one.selector
        }
        assert set(seen(state).pod_selectors.of(pod)) == expected


def test_a_selector_that_is_too_large_spreads_no_pods() -> None:
    def made(count: int) -> PodSelector:
        absent = [{"key": f"a{i}", "operator": "DoesNotExist"} for i in range(count)]
        manifest = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchExpressions": absent}},
        }
        return read_pod_selector(manifest, "replicasets[0]", "ReplicaSet")

    assert made(500).selector is not None
    assert made(501).selector is None


def test_pods_with_claims_need_no_selectors(state: ClusterState) -> None:
    before = fits(state, uses("c"))
    state.apply(ObjectChanged(Unreadable("replicasets", "replicasets is forbidden")))
    assert fits(state, uses("c")) == before
    assert any(before)

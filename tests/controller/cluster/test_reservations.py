"""Room that is kept for the replacement of a moved pod."""

from __future__ import annotations

from dataclasses import replace

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.ports import PodChanged, PodDeleted, Relisted
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

WEB = Owner("ReplicaSet", "web", "uid-web")


def pod(name: str, owner: Owner | None = WEB, on: str | None = None) -> Pod:
    requests = {CPU: 1000, PODS: 1}
    return Pod("default", name, f"uid-{name}", requests=requests, owner=owner, node_name=on)


class Cluster:
    """A state of two nodes with a pod on n1, and room for its replacement kept on n2."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.old = pod("old", on="n1")
        nodes = tuple(Node(name, {CPU: 4000, PODS: 9}) for name in ("n1", "n2"))
        self.state.apply(Relisted(nodes, (self.old,)))
        self.state.reserve(Reservation(self.old, "n2", "n1", "why"))

    def add(self, made: Pod) -> Pod:
        self.state.apply(PodChanged(made))
        return made

    def cpu(self, for_pod: Pod | None = None) -> list[int]:
        view = self.state.view(TelemetryState(TimesToLive()), 0.0, for_pod)
        assert view.placed_in_run.tolist() == [0, 0]
        return [int(each) for each in view.requested_of(CPU)]


def test_the_room_counts_for_all_but_the_replacement() -> None:
    here = Cluster()
    new, other = here.add(pod("new")), here.add(pod("other", None))
    assert here.cpu() == here.cpu(other) == [1000, 1000]
    assert here.cpu(new) == here.cpu(here.old) == [1000, 0]
    kept = here.state.reservations.of(new)
    assert kept is not None
    assert (kept.node, kept.source) == ("n2", "n1")
    assert here.state.reservations.of(other) is None


def test_a_pod_of_higher_priority_takes_the_room_as_it_would_preempt_who_is_in_it() -> None:
    here = Cluster()
    important = here.add(replace(pod("important", None), priority=1))
    assert here.cpu(important) == [1000, 0]


def test_the_replacement_takes_the_room_once() -> None:
    here = Cluster()
    new, second = here.add(pod("new")), here.add(pod("second"))
    here.state.assume(new, "n2")

    assert here.state.reservations.of(second) is None
    found = here.state.replacement_of("uid-old")
    assert found is not None
    assert found.uid == "uid-new"

    here.state.forget(new)  # the binding failed
    assert here.state.reservations.of(second) is not None


def test_a_replacement_that_is_deleted_leaves_the_room_kept() -> None:
    here = Cluster()
    here.add(pod("new", on="n2"))
    assert here.state.replacement_of("uid-old") is not None
    here.state.apply(PodDeleted(pod("new", on="n2")))
    assert here.state.replacement_of("uid-old") is None
    assert here.state.reservations.of(here.add(pod("third"))) is not None


def test_the_old_pod_and_pods_of_others_do_not_take_it() -> None:
    here = Cluster()
    here.add(replace(here.old, labels={"a": "b"}))
    here.add(pod("other", replace(WEB, uid="else"), on="n2"))
    assert here.state.replacement_of("uid-old") is None


def test_a_stateful_sets_pod_keeps_its_name() -> None:
    owner = Owner("StatefulSet", "db", "uid-db")
    reservation = Reservation(pod("db-0", owner, "n1"), "n2", "n1")
    assert not reservation.is_for(pod("db-1", owner))
    assert reservation.is_for(replace(pod("db-0", owner), uid="another"))


def test_room_for_a_pending_pod_is_for_that_pod() -> None:
    pending = pod("p", None)
    reservation = Reservation(pending, "n2", None)
    assert reservation.is_for(pending)
    assert not reservation.is_for(pod("q", None))


def test_released_room_is_free() -> None:
    here = Cluster()
    here.state.unreserve("uid-old")
    assert here.cpu() == [1000, 0]


def test_a_new_list_of_all_objects_keeps_the_room() -> None:
    here = Cluster()
    nodes = tuple(here.state.nodes().values())
    here.state.apply(Relisted(nodes, (pod("new", on="n2"),)))
    found = here.state.replacement_of("uid-old")
    assert found is not None
    assert found.uid == "uid-new"

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.assigned_pods import attractions_of, kind_of
from leadline_controller.framework.model import (
    CPU,
    PODS,
    AffinityTerm,
    ClaimUse,
    DeclaredPeer,
    Disk,
    HostPort,
    Node,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.ports import (
    NodeChanged,
    NodeDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.controller.builders import node
from tests.support.examples import examples

HTTP = HostPort("0.0.0.0", "TCP", 80)
GPU = "example.com/gpu"
GUARD = AffinityTerm("zone", (), frozenset({"default"}))
LEFT = ClusterEvent.ASSIGNED_PODS | ClusterEvent.RESOURCES_FREED
NOTHING_MEASURED = TelemetryState(TimesToLive())


def pod(name: str, cpu: int = 500, **fields: Any) -> Pod:
    mbps = fields.pop("mbps", None)
    fields["anti_affinity"] = (GUARD,) if fields.pop("guards", False) else ()
    requests = {CPU: cpu, PODS: 1, **fields.pop("more", {})}
    annotations = PodAnnotations(bandwidth_mbps=mbps)
    return Pod(
        "default", name, uid=f"uid-{name}", requests=requests, annotations=annotations, **fields
    )


def cluster(*pods: Pod, nodes: tuple[str, ...] = ("n1", "n2")) -> ClusterState:
    state = ClusterState()
    state.apply(Relisted(tuple(node(name) for name in nodes), pods))
    return state


def seen(state: ClusterState) -> ClusterView:
    return state.view(NOTHING_MEASURED, 0.0)


def cpu(state: ClusterState) -> list[int]:
    return [int(milli) for milli in seen(state).requested_of(CPU)]


def test_the_state_is_empty_before_the_first_list() -> None:
    state = ClusterState()
    assert not state.listed
    assert len(state.table) == 0
    assert cpu(state) == []


def test_only_running_pods_are_counted() -> None:
    state = cluster(
        pod("a", node_name="n1"),
        pod("b", node_name="n2", terminating=True),  # it uses its resources until it is deleted
        pod("c", node_name="n2", finished=True),
        pod("d"),
        pod("e", node_name="gone"),
    )
    assert cpu(state) == [500, 500]


def test_strategies_need_the_rows_of_the_control_plane_and_of_pods_users() -> None:
    def used_from(user: str | None, name: str, **fields: Any) -> Pod:
        return replace(pod(name, **fields), annotations=PodAnnotations(user_node=user))

    state = cluster(
        used_from("n2", "a"),
        used_from("n3", "b"),
        used_from("n3", "c", node_name="n1"),
        used_from("gone", "d"),
        used_from("n1", "e", finished=True),
        used_from(None, "f"),
        nodes=("n1", "n2", "n3", "n4"),
    )
    assert state.nodes_of_rows() == ["n3", "n2"]
    role = "node-role.kubernetes.io/control-plane"
    state.apply(NodeChanged(node("n4", taints=(Taint(role, "", "NoSchedule"),))))
    state.apply(NodeChanged(node("n1", labels={role: "true"})))
    assert state.nodes_of_rows() == ["n1", "n4", "n3", "n2"]


def test_strategies_need_the_rows_of_peers() -> None:
    def talking(name: str, *peers: str, **fields: Any) -> Pod:
        declared = tuple(map(DeclaredPeer, peers))
        return replace(pod(name, **fields), annotations=PodAnnotations(peers=declared))

    state = cluster(
        talking("a", "node/n3", "db", "node/gone"),
        talking("b", "node/n3", "node/n2"),
        pod("db", labels={"app": "db"}, node_name="n4"),
        nodes=("n1", "n2", "n3", "n4"),
    )
    assert state.nodes_of_rows() == ["n3", "n2"]
    workload = ("default", frozenset({("app", "db")}))
    counted = PeerTraffic(workload, "default/db", 5.0, 0.0, 0.0)
    state.use_traffic(Traffic({workload: (counted, replace(counted, peer="n1", mbps=1.0))}))
    assert state.nodes_of_rows() == ["n3", "n2", "n4", "n1"]
    assert state.view(TelemetryState(TimesToLive()), 0.0).traffic.peers[workload][0] is counted


def test_what_pods_declare_counts_while_they_are_on_a_node() -> None:
    def callers(state: ClusterState) -> dict[tuple[str, str], list[tuple[str, int]]]:
        found = state.view(NOTHING_MEASURED, 0.0).callers
        return {key: [(who.name, n) for who, n in of.items()] for key, of in found.items()}

    def web(name: str, *peers: str, **fields: Any) -> Pod:
        declared = PodAnnotations(peers=tuple(map(DeclaredPeer, peers)))
        return replace(pod(name, labels={"app": "web"}, **fields), annotations=declared)

    here = web("1", "db", "mqtt.infra", "node/n2", "192.0.2.7", node_name="n1")
    state = cluster(here, web("2", "db", node_name="n2"), web("3", "db"))
    of_each = [("default/1", 1), ("default/2", 1)]
    assert callers(state) == {("default", "db"): of_each, ("infra", "mqtt"): of_each[:1]}
    state.assume(web("3", "db"), "n1")
    assert len(callers(state)["default", "db"]) == 3
    state.apply(PodChanged(replace(here, annotations=PodAnnotations())))
    for name in ("2", "3"):
        state.apply(PodDeleted(web(name, "db")))
    assert callers(state) == {}


def test_an_assumed_pod_counts_at_once_and_not_twice_when_the_watch_shows_it() -> None:
    state = cluster(one := pod("a", mbps=0.1, host_ports=(HTTP,)))
    state.assume(one, "n2")
    assert cpu(state) == [0, 500]
    assert seen(state).bandwidth_requested_mbps.tolist() == [0.0, 0.1]
    assert seen(state).host_ports == {1: (HTTP,)}
    assert seen(state).placed_in_run.tolist() == [0, 1]
    assert state.is_assumed(one.uid)

    state.apply(PodChanged(replace(one, node_name="n2")))
    assert cpu(state) == [0, 500]
    assert not state.is_assumed(one.uid)
    assert seen(state).placed_in_run.tolist() == [0, 1]


def test_the_watch_overrides_an_assumed_node() -> None:
    state = cluster(one := pod("a"))
    state.assume(one, "n2")
    state.apply(PodChanged(replace(one, node_name="n1")))
    assert cpu(state) == [500, 0]


def test_a_change_from_before_the_binding_does_not_end_the_assumption() -> None:
    state = cluster(one := pod("a"))
    state.assume(one, "n2")
    state.apply(PodChanged(replace(one, labels={"x": "y"})))
    assert cpu(state) == [0, 500]
    assert state.is_assumed(one.uid)


def test_a_pod_that_changed_during_the_decision_is_counted_with_its_new_requests() -> None:
    state = cluster(old := pod("a", cpu=500))
    state.apply(PodChanged(pod("a", cpu=700)))
    state.assume(old, "n1")
    assert cpu(state) == [700, 0]
    state.apply(PodChanged(pod("a", cpu=900)))
    assert cpu(state) == [900, 0]
    state.forget(old)
    assert cpu(state) == [0, 0]


def test_a_failed_binding_frees_what_the_pod_used() -> None:
    state = cluster(
        one := pod("a", mbps=0.3, host_ports=(HTTP,), more={GPU: 1}), pod("b", mbps=0.1)
    )
    state.assume(one, "n1")
    state.forget(one)
    state.forget(one)
    view = seen(state)
    assert cpu(state) == [0, 0]
    assert view.requested_of(GPU).tolist() == [0, 0]
    assert view.bandwidth_requested_mbps.tolist() == [0.0, 0.0]
    assert view.placed_in_run.tolist() == [0, 0]
    assert view.host_ports == {}


def test_a_binding_that_the_watch_showed_is_not_undone() -> None:
    state = cluster(one := pod("a"))
    state.assume(one, "n1")
    state.apply(PodChanged(replace(one, node_name="n1")))
    state.forget(one)
    assert cpu(state) == [500, 0]
    state.assume(one, "n2")  # it is on a node already
    assert cpu(state) == [500, 0]
    state.forget(one)
    assert cpu(state) == [500, 0]


def test_a_deleted_pod_cannot_be_assumed() -> None:
    state = cluster(one := pod("a"))
    state.apply(PodDeleted(one))
    state.assume(one, "n1")
    state.forget(one)
    assert cpu(state) == [0, 0]
    assert list(state.pods()) == []


def test_a_pod_that_is_deleted_during_its_binding_is_not_counted() -> None:
    state = cluster(one := pod("a"))
    state.assume(one, "n1")
    assert state.apply(PodDeleted(one))
    assert cpu(state) == [0, 0]
    state.forget(one)
    assert cpu(state) == [0, 0]


def test_a_relist_during_bindings_keeps_the_assumptions() -> None:
    pending, bound, deleted = pod("a"), pod("b"), pod("c")
    state = cluster(pending, bound, deleted)
    for one in (pending, bound, deleted):
        state.assume(one, "n1")
    nodes = (node("n1"), node("n2"))
    assert state.apply(Relisted(nodes, (pending, replace(bound, node_name="n2"))))
    assert cpu(state) == [500, 500]
    assert [state.is_assumed(x.uid) for x in (pending, bound, deleted)] == [True, False, False]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pod("a", node_name="n1"), pod("a", node_name="n1", finished=True), LEFT),
        (
            pod("a", 500, node_name="n1"),
            pod("a", 400, node_name="n1"),
            ClusterEvent.RESOURCES_FREED,
        ),
        (pod("a", 500, node_name="n1"), pod("a", 600, node_name="n1"), NO_EVENT),
        (
            pod("a", node_name="n1"),
            pod("a", node_name="n1", labels={"x": "y"}),
            ClusterEvent.ASSIGNED_PODS,
        ),
        (
            pod("a", node_name="n1"),
            pod("a", node_name="n1", terminating=True),
            ClusterEvent.ASSIGNED_PODS,
        ),
        (
            pod("a", mbps=9, node_name="n1"),
            pod("a", mbps=8, node_name="n1"),
            ClusterEvent.BANDWIDTH,
        ),
        (pod("a", mbps=9, node_name="n1"), pod("a", mbps=10, node_name="n1"), NO_EVENT),
        (pod("a"), pod("a", node_name="n1"), ClusterEvent.ASSIGNED_PODS),
        (pod("a", node_name="n1"), pod("a", node_name="n2"), LEFT),
        (
            pod("a", host_ports=(HTTP,), node_name="n1"),
            pod("a", node_name="n1"),
            LEFT | ClusterEvent.PORTS_FREED,
        ),
        (pod("a"), pod("a", labels={"x": "y"}), NO_EVENT),
    ],
)
def test_events_of_a_changed_pod(before: Pod, after: Pod, expected: ClusterEvent) -> None:
    state = cluster(before)
    assert state.apply(PodChanged(after)) == expected
    on_node = after.node_name is not None and not after.finished
    here = after.node_name if on_node else None
    assert cpu(state) == [after.requests[CPU] * (here == name) for name in ("n1", "n2")]


def test_events_of_a_deleted_pod() -> None:
    claim, disk = (ClaimUse("c"),), (Disk("iscsi", "x"),)
    had: dict[str, tuple[dict[str, Any], ClusterEvent]] = {
        "a": ({}, LEFT),
        "b": ({"host_ports": (HTTP,)}, LEFT | ClusterEvent.PORTS_FREED),
        "c": ({"claims": claim}, LEFT | ClusterEvent.MOUNTS),
        "d": ({"disks": disk}, LEFT | ClusterEvent.MOUNTS),
        "e": ({"mbps": 5.0}, LEFT | ClusterEvent.BANDWIDTH),
        "f": ({"finished": True}, NO_EVENT),
    }
    for name, (fields, expected) in had.items():
        state = cluster(placed := pod(name, node_name="n1", **fields))
        assert state.apply(PodDeleted(placed)) == expected
    state = cluster()
    assert state.apply(PodChanged(waiting := pod("b"))) == NO_EVENT
    assert state.apply(PodDeleted(waiting)) == NO_EVENT
    assert state.apply(PodDeleted(pod("never-seen", node_name="n1"))) == NO_EVENT


def test_an_assumed_pod_is_an_event_only_when_the_watch_shows_it_or_it_is_deleted() -> None:
    state = cluster(one := pod("a"), other := pod("b"))
    state.assume(one, "n1")
    state.assume(other, "n1")
    assert state.apply(PodChanged(pod("a", node_name="n1"))) == ClusterEvent.ASSIGNED_PODS
    assert state.forget(one) == NO_EVENT  # only the answer was lost
    assert state.forget(other) == LEFT
    assert state.forget(other) == NO_EVENT
    state.assume(other, "n1")
    assert state.apply(PodDeleted(other)) == LEFT
    assert state.forget(other) == NO_EVENT


def test_a_pod_that_was_bound_elsewhere_frees_its_assumed_node() -> None:
    state = cluster(one := pod("a"))
    state.assume(one, "n1")
    assert state.apply(PodChanged(pod("a", node_name="n2"))) == LEFT
    assert cpu(state) == [0, 500]


def test_events_of_an_added_or_changed_node() -> None:
    state, taint = cluster(), Taint("a", "", "NoSchedule")
    known = node("n3")
    assert state.apply(NodeChanged(known)) == ClusterEvent.NODES
    for change, better, worse in (
        ({"unschedulable": True}, ClusterEvent.UNCORDONED, NO_EVENT),
        ({"ready": False}, ClusterEvent.READY, NO_EVENT),
        ({"taints": (taint,)}, ClusterEvent.UNTAINTED, ClusterEvent.TAINTED),
        ({"labels": {"x": "y"}}, ClusterEvent.LABELS, ClusterEvent.LABELS),
        ({"bandwidth_mbps": 5.0}, ClusterEvent.BANDWIDTH, ClusterEvent.BANDWIDTH),
        ({"features": frozenset({"F"})}, NO_EVENT, ClusterEvent.FEATURES),
        ({"allocatable": {**known.allocatable, GPU: 1}}, NO_EVENT, ClusterEvent.RESOURCES_FREED),
        ({"tier": "cloud"}, NO_EVENT, NO_EVENT),
    ):
        changed = replace(known, **change)
        assert state.apply(NodeChanged(known)) == NO_EVENT
        assert state.apply(NodeChanged(changed)) == worse
        assert state.apply(NodeChanged(changed)) == NO_EVENT
        assert state.apply(NodeChanged(known)) == better
    assert state.apply(NodeDeleted("n3")) == ClusterEvent.NODE_DELETED
    assert state.apply(NodeDeleted("n3")) == NO_EVENT
    assert state.table.names == ("n1", "n2")
    assert state.apply(Relisted((), ())) == ANY_EVENT


def test_a_node_that_is_added_again_still_has_its_pods() -> None:
    state = cluster(pod("a", node_name="n1"), one := pod("b"))
    state.assume(one, "n1")
    state.apply(NodeDeleted("n1"))
    assert cpu(state) == [0]
    assert seen(state).placed_in_run.tolist() == [0]
    state.apply(NodeChanged(node("n1")))
    assert cpu(state) == [1000, 0]
    assert seen(state).placed_in_run.tolist() == [1, 0]


def test_a_pod_may_be_listed_before_its_node() -> None:
    state = cluster(pod("a", node_name="late"))
    state.apply(NodeChanged(node("late")))
    assert dict(zip(state.table.names, cpu(state), strict=True))["late"] == 500


def test_pods_that_went_while_the_watch_was_broken_are_not_of_the_run() -> None:
    state = cluster(*(pods := [pod(name) for name in "abc"]))
    for each in pods:
        state.assume(each, "n1", charge={CPU: 700})
    gone, done, there = (replace(each, node_name="n1") for each in pods)
    state.apply(Relisted((node("n1"), node("n2")), (replace(done, finished=True), there)))
    assert gone.uid not in {each.uid for each, _ in state.pods()}
    assert seen(state).placed_in_run.tolist() == [1, 0]
    assert seen(state).charged_in_run[CPU].tolist() == [200, 0]


def test_a_run_counts_the_pods_that_it_placed() -> None:
    state = cluster(first := pod("a"), second := pod("b"))
    state.assume(first, "n1")
    state.run.begin()
    state.assume(second, "n1")
    state.forget(first)  # of the previous run
    assert seen(state).placed_in_run.tolist() == [1, 0]


def test_removed_pods_leave_no_bandwidth_rounding_errors() -> None:
    pods = [pod(f"p{i}", mbps=mbps) for i, mbps in enumerate((0.1, 0.2, 0.7))]
    state = cluster(*pods)
    for one in pods:
        state.assume(one, "n1")
    assert seen(state).bandwidth_requested_mbps.tolist() == [1.0, 0.0]
    assert state.bandwidth_requested_mbps() == {"n1": 1.0}
    for one in pods:
        state.forget(one)
    assert seen(state).bandwidth_requested_mbps.tolist() == [0.0, 0.0]
    assert state.bandwidth_requested_mbps() == {}


def test_two_containers_may_name_one_port() -> None:
    one, two = (pod(name, node_name="n1", host_ports=(HTTP,)) for name in "ab")
    state = cluster(one, two)
    assert seen(state).host_ports == {0: (HTTP, HTTP)}
    state.apply(PodDeleted(one))
    assert seen(state).host_ports == {0: (HTTP,)}


def test_a_view_does_not_change_later() -> None:
    state = cluster(one := pod("a", mbps=1.0, host_ports=(HTTP,)))
    view = seen(state)
    state.assume(one, "n1")
    assert view.requested_of(CPU).tolist() == [0, 0]
    assert view.bandwidth_requested_mbps.tolist() == [0.0, 0.0]
    assert view.host_ports == {}


def test_a_view_keeps_its_pods_while_others_come_and_go() -> None:
    random, state, running = Random(1), cluster(), dict[str, Pod]()
    views: list[tuple[ClusterView, list[list[int]]]] = []
    for number in range(400):
        if running and random.random() < 0.4:
            state.apply(PodDeleted(running.pop(random.choice(sorted(running)))))
        else:
            one = pod(f"p{number}", node_name=random.choice(("n1", "n2")), priority=number)
            running[one.uid] = one
            state.apply(PodChanged(one))
        if random.random() < 0.5:
            views.append((view := seen(state), view.assigned_pods.rows.tolist()))
    assert all(view.assigned_pods.rows.tolist() == rows for view, rows in views)
    assert len({len(rows[0]) for _, rows in views}) > 10


def test_kinds_of_deleted_pods_are_forgotten_when_they_are_the_majority() -> None:
    state = cluster()
    for i in range(3000):
        state.apply(PodChanged(one := pod(f"p{i}", node_name="n1", labels={"n": str(i)})))
        state.apply(PodDeleted(one))
    assert len(seen(state).assigned_pods.kinds) < 1100


# After any series of changes the columns equal those of a new count.

NODES = ("n1", "n2", "n3")
PODS_NAMED = tuple("abcde")
drawn_ports = st.builds(HostPort, st.just("0.0.0.0"), st.just("TCP"), st.integers(80, 82))
drawn_pods = st.builds(
    pod,
    st.sampled_from(PODS_NAMED),
    cpu=st.integers(0, 4000),
    mbps=st.none() | st.floats(0, 1000),
    more=st.just({}) | st.builds(lambda n: {GPU: n}, st.integers(0, 8)),
    host_ports=st.lists(drawn_ports, max_size=2).map(tuple),
    node_name=st.none() | st.sampled_from((*NODES, "elsewhere")),
    finished=st.booleans(),
    terminating=st.booleans(),
    labels=st.sampled_from(({}, {"app": "web"}, {"app": "db"})),
    priority=st.integers(-1, 1),
    guards=st.booleans(),
    claims=st.sampled_from(((), (ClaimUse("c"),))),
)
drawn_nodes = st.builds(node, st.sampled_from(NODES), cores=st.integers(1, 8))


def decoded(view: ClusterView) -> list[str]:
    """Each assigned pod's columns, decoded."""
    names, there = view.table.names, view.assigned_pods
    return [
        repr(
            (
                names[at],
                there.kinds.values[kind],
                there.anti_affinities.values[anti_affinity_id],
                priority,
                there.attractions.values[attractions_id],
            )
        )
        for at, kind, anti_affinity_id, priority, attractions_id in there.rows.T.tolist()
    ]


def mounted(view: ClusterView) -> list[tuple[str, str]]:
    return [(view.table.names[at], p.uid) for at, pods in view.mounts.items() for p in pods]


class Changes(RuleBasedStateMachine):
    """The state beside a model that only remembers which pod is on which node."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, str] = {}

    @initialize(nodes=st.lists(drawn_nodes, max_size=3), pods=st.lists(drawn_pods, max_size=4))
    def begin(self, nodes: list[Node], pods: list[Pod]) -> None:
        self.listed(nodes, pods)

    @rule(nodes=st.lists(drawn_nodes, max_size=3), pods=st.lists(drawn_pods, max_size=4))
    def listed(self, nodes: list[Node], pods: list[Pod]) -> None:
        self.nodes = {n.name: n for n in nodes}
        self.pods = {p.uid: p for p in pods}
        self.state.apply(Relisted(tuple(self.nodes.values()), tuple(self.pods.values())))
        self._settle()

    @rule(changed=drawn_nodes)
    def node_changed(self, changed: Node) -> None:
        self.nodes[changed.name] = changed
        self.state.apply(NodeChanged(changed))

    @rule(name=st.sampled_from(NODES))
    def node_deleted(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.state.apply(NodeDeleted(name))

    @rule(changed=drawn_pods)
    def pod_changed(self, changed: Pod) -> None:
        self.pods[changed.uid] = changed
        self.state.apply(PodChanged(changed))
        self._settle()

    @rule(gone=drawn_pods)
    def pod_deleted(self, gone: Pod) -> None:
        self.pods.pop(gone.uid, None)
        self.state.apply(PodDeleted(gone))
        self._settle()

    @rule(one=drawn_pods, name=st.sampled_from((*NODES, "elsewhere")))
    def assume(self, one: Pod, name: str) -> None:
        known = self.pods.get(one.uid)
        self.state.assume(one, name)
        if known is not None and known.node_name is None:
            self.assumed[one.uid] = name

    @precondition(lambda self: self.pods)
    @rule(one=drawn_pods)
    def forget(self, one: Pod) -> None:
        self.state.forget(one)
        self.assumed.pop(one.uid, None)

    def _settle(self) -> None:
        """An assumption ends when the watch shows the pod on a node, or deleted."""
        for uid in list(self.assumed):
            if uid not in self.pods or self.pods[uid].node_name is not None:
                del self.assumed[uid]

    @invariant()
    def columns_are_those_of_a_count_from_scratch(self) -> None:
        view = seen(self.state)
        assert view.table.nodes == tuple(self.nodes[name] for name in sorted(self.nodes))
        requested: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        ports: dict[str, list[HostPort]] = {name: [] for name in self.nodes}
        mbps = dict.fromkeys(self.nodes, 0.0)
        assigned_pods, mounts = [], []
        for uid, one in self.pods.items():
            where = one.node_name or self.assumed.get(uid)
            if where in self.nodes and where is not None and not one.finished:
                requested[where].update(one.requests)
                ports[where] += one.host_ports
                mbps[where] += one.annotations.bandwidth_mbps or 0.0
                kind = kind_of(one)
                terms = one.anti_affinity, one.priority, attractions_of(one)
                assigned_pods.append(repr((where, kind, *terms)))
                mounts += [(where, uid)] if one.claims else []
        assert sorted(decoded(view)) == sorted(assigned_pods)
        assert sorted(mounted(view)) == sorted(mounts)
        for at, name in enumerate(view.table.names):
            for resource in {*requested[name], *view.requested}:
                assert view.requested_of(resource)[at] == requested[name][resource]
            assert sorted(map(repr, view.host_ports.get(at, ()))) == sorted(map(repr, ports[name]))
            assert view.bandwidth_requested_mbps[at] == pytest.approx(mbps[name], abs=1e-5)
            if not mbps[name]:
                assert view.bandwidth_requested_mbps[at] == 0.0

    @invariant()
    def assumptions_are_those_that_nothing_ended(self) -> None:
        found = {uid for uid in {*self.pods, *self.assumed} if self.state.is_assumed(uid)}
        assert found == set(self.assumed)
        placed = {one.uid: where for one, where in self.state.pods()}
        assert placed == {u: p.node_name or self.assumed.get(u) for u, p in self.pods.items()}


TestChanges = Changes.TestCase
TestChanges.settings = settings(examples(20), stateful_step_count=30)

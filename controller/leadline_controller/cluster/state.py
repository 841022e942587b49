"""The cluster's state, updated from its changes and from the pods that were just placed.

The watch shows a binding only later, so the pod is assumed on its node at once; otherwise a burst
of pods would pile up on one node. The API server stays the only truth: an assumption ends when
the watch shows the pod or the binding fails.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from leadline_controller.cluster.cluster_objects import ObjectState
from leadline_controller.cluster.node_images import ImageState
from leadline_controller.cluster.nominations import Nominations
from leadline_controller.cluster.occupancy import Occupancy, counts_alike
from leadline_controller.cluster.recent_pods import RecentPods
from leadline_controller.cluster.reservations import Reservation, Reservations
from leadline_controller.cluster.run import Run
from leadline_controller.cluster.service_profiles import ServiceProfiles
from leadline_controller.framework import queueing_hints
from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.model import NODE_PEER, PODS, Node, Pod
from leadline_controller.framework.peers import busiest_nodes
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
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.framework.traffic import NO_TRAFFIC, Traffic
from leadline_controller.framework.view import (
    AssumedLoad,
    ClusterView,
    NodeTable,
    beyond_requests,
)
from leadline_controller.telemetry.state import TelemetryState

_MOST_TALKING = 8  # nodes of observed peers whose round trips to all others are measured
# What frees when room is kept no longer.
_ROOM = ClusterEvent.RESOURCES_FREED | ClusterEvent.PORTS_FREED | ClusterEvent.BANDWIDTH


class ClusterState:
    """Nodes, pods, and the objects that pods use. Used by one thread. images: what the nodes have
    of the pods' images. recent: the pods that the boards' reports do not contain yet. objects:
    namespaces and storage. run: the run of decisions that is under way. reservations, nominations:
    the room that is kept for pods.

    assumes_load: whether strategies see more than was measured, namely with what the recent pods
    are expected to use. unix_offset_s: from the clock of the decisions to the wall clock, None
    while that is not set. now_s: the clock of the decisions, which dates pulls and what pods do.
    """

    def __init__(
        self,
        *,
        assumes_load: bool = True,
        unix_offset_s: Callable[[], float | None] = lambda: time.time() - time.monotonic(),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.listed = False
        self.run = Run()
        self.images = ImageState(now_s)
        self.recent = RecentPods(unix_offset_s, now_s)
        self._assumes_load = assumes_load
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._profiles = ServiceProfiles()
        self._traffic = NO_TRAFFIC
        self._assumed: dict[str, str] = {}
        self.objects = ObjectState()
        self.reservations = Reservations()
        self.nominations = Nominations()
        self._table = NodeTable(())
        self._occupancy = Occupancy(self._table)
        # Since the table was built: whether nodes came or went, and which ones changed.
        self._stale, self._renewed = False, set[str]()

    @property
    def table(self) -> NodeTable:
        """The nodes, sorted by name."""
        if self._stale or self._renewed:
            before = self._table
            if self._stale:
                self._table = NodeTable([self._nodes[name] for name in sorted(self._nodes)])
            else:
                self._table = before.with_nodes([self._nodes[name] for name in self._renewed])
            self._stale, self._renewed = False, set()
            if (self._table.names, self._table.resources) != (before.names, before.resources):
                self._recount()
        return self._table

    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    def pods(self) -> Iterator[tuple[Pod, str | None]]:
        """Every pod with its node, also an assumed one."""
        return ((pod, self._node_of(pod)) for pod in self._pods.values())

    def staying(self, view: ClusterView) -> list[tuple[Pod, int]]:
        """The pods that run, start or are assumed on nodes of the view, and are not about to end;
        each with the index of its node."""
        index = view.table.index
        return [
            (pod, index[node])
            for pod, node in self.pods()
            if node is not None and node in index and not (pod.finished or pod.terminating)
        ]

    def pod(self, uid: str) -> Pod | None:
        """The pod with this uid, as last seen."""
        return self._pods.get(uid)

    def use_profiles(self, profiles: ServiceProfiles) -> None:
        """Give these profiles of services to the pods without one of their own, those of now and
        those to come."""
        self._profiles = profiles
        self._pods = {uid: profiles.applied(pod) for uid, pod in self._pods.items()}

    def use_traffic(self, traffic: Traffic) -> None:
        """Show this traffic to decisions from now on."""
        self._traffic = traffic

    def has_maker(self, pod: Pod) -> bool:
        """Whether a controller or a Service as last seen is for pods like this one, which may be
        gone."""
        return bool(self.objects.pod_selectors.of(pod))

    def profiled(self, pod: Pod) -> Pod:
        """A pod that the watch has not shown, with its service's profile."""
        return self._profiles.applied(pod)

    def shown(self) -> Relisted:
        """The whole cluster as last seen."""
        objects = tuple(self.objects.all())
        return Relisted(tuple(self._nodes.values()), tuple(self._pods.values()), objects)

    def reserve(self, reservation: Reservation, taker: Pod | None = None) -> None:
        """Keep room for a pod, in every view for another pod, until `unreserve`. taker: the pod
        that was placed in it already."""
        self.reservations.put(reservation)
        if taker is not None:
            self.reservations.placed(taker)

    def unreserve(self, uid: str) -> ClusterEvent:
        """Keep the room for the pod with this uid no longer. Returns the events that may make
        other pods schedulable."""
        self.reservations.remove(uid)
        return _ROOM

    def unreserve_own(self, uid: str) -> ClusterEvent:
        """Keep no room for this pending pod any more: it is placed, or fits nowhere. Returns the
        events that may make other pods schedulable."""
        return _ROOM if self.reservations.remove_own(uid) else NO_EVENT

    def replacement_of(self, uid: str) -> Pod | None:
        """The pod that was placed in the room kept for the moved pod with this uid."""
        taken = self.reservations.taken_by(uid)
        return None if taken is None else self._pods.get(taken)

    def nominate(self, uid: str, node: str | None) -> ClusterEvent:
        """Keep room on a node for a pending pod, from pods of at most its priority; None for no
        room any more. Returns the events that may make other pods schedulable."""
        before = self.nominations.of(uid)
        self.nominations.make(uid, node)
        return NO_EVENT if before in (None, node) else _ROOM | ClusterEvent.ASSIGNED_PODS

    def nominated(self) -> list[tuple[Pod, str]]:
        """The pending pods that are nominated for a node and not assumed on one, each with it."""
        return [
            (pod, node)
            for uid, node in self.nominations
            if uid not in self._assumed and (pod := self._pods.get(uid)) is not None
        ]

    def node_of(self, uid: str) -> str | None:
        """The node of the pod with this uid, also an assumed one."""
        pod = self._pods.get(uid)
        return None if pod is None else self._node_of(pod)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod was placed and the watch has not shown that yet."""
        return uid in self._assumed

    def apply(self, change: ClusterChange) -> ClusterEvent:
        """Apply one change. Returns the events that may make an unschedulable pod schedulable."""
        match change:
            case Relisted(nodes, pods, objects):
                self.listed = True
                self._nodes = {node.name: node for node in nodes}
                self._relist_reservations(pods)
                were_on = [(each, self._node_of(each)) for each in self._pods.values()]
                self._pods = {pod.uid: self.profiled(pod) for pod in pods}
                self.images.relisted(nodes)
                self._drop_absent()
                self._tell_recent_of_all(were_on)
                self._stale = True
                self._table = NodeTable(())  # so that `table` counts all pods again
                self._occupancy = Occupancy(self._table, self._occupancy)
                self.objects.replace_all(objects)
                self.reservations.keep_own(self._pods)
                self.nominations.observe_all(pods)
                return ANY_EVENT
            case NodeChanged(node):
                before = self._nodes.get(node.name)
                self._nodes[node.name] = node
                if before != node:
                    self._stale |= before is None
                    self._renewed.add(node.name)
                    self.images.node_changed(node)
                return queueing_hints.node_changed(before, node)
            case NodeDeleted(name):
                known = self._nodes.pop(name, None) is not None
                self._stale |= known
                self.images.node_deleted(name)
                return ClusterEvent.NODE_DELETED if known else NO_EVENT
            case PodChanged(pod):
                return self._pod_changed(self.profiled(pod))
            case PodDeleted(pod):
                counted = self._counted(pod.uid)
                self._replace(pod.uid, None)
                self._assumed.pop(pod.uid, None)
                self.objects.forget(pod.uid)
                had_room = self.nominations.of(pod.uid) is not None
                self.nominations.forget(pod.uid)
                had_room |= self.reservations.remove_own(pod.uid)
                kept = _ROOM if had_room else NO_EVENT
                return kept | (queueing_hints.pod_removed(counted) if counted else NO_EVENT)
            case ObjectChanged(found):
                changed = self.objects.put(found)
                return queueing_hints.object_changed(found) if changed else NO_EVENT
            case ObjectDeleted(found):
                known = self.objects.remove(found)
                return queueing_hints.object_changed(found) if known else NO_EVENT

    def assume(
        self,
        pod: Pod,
        node: str,
        volumes: VolumePlan | None = None,
        charge: Mapping[str, int] | None = None,
    ) -> None:
        """Count a known pod as running on `node`, and its volume plan as carried out. A pod that is
        on a node already stays there. charge: what its strategy charges it within this run."""
        if not self._is_free(pod.uid):
            return
        known = self._pods[pod.uid]
        self.reservations.placed(known)
        self._count_out(known)
        self._assumed[pod.uid] = node
        self.recent.put(known, node)
        self._count_in(known)
        self.run.join(pod.uid, node, beyond_requests(pod, charge))
        if volumes is not None:
            self.objects.assume(pod.uid, volumes)

    def forget(self, pod: Pod) -> ClusterEvent:
        """End an assumption after a failed binding: the pod is where the watch shows it. Returns
        the events that may make other pods schedulable."""
        counted, known = self._counted(pod.uid), self._pods.get(pod.uid)
        if known is not None and known.node_name is None:
            self._count_out(known)
            self.objects.forget(pod.uid)
            if (node := self._assumed.get(pod.uid)) is not None:
                self.recent.end(known, node)
        self._assumed.pop(pod.uid, None)
        if known is None or known.node_name is None:
            self.reservations.withdrawn(pod.uid)
        self.run.leave(pod.uid)
        left = counted is not None and self._counted(pod.uid) is None
        return queueing_hints.pod_removed(counted) if counted and left else NO_EVENT

    def bandwidth_requested_mbps(self) -> dict[str, float]:
        """The bandwidth that the pods of each node request, by node, where they request any."""
        names, requested_mbps = self.table.names, self._occupancy.bandwidth_requested_mbps()
        return {names[i]: float(requested_mbps[i]) for i in np.flatnonzero(requested_mbps)}

    def pod_counts(self) -> dict[str, int]:
        """How many unfinished pods each node has, by node, assumed ones too."""
        names, counts = self.table.names, self._occupancy.requested.get(PODS)
        return {} if counts is None else dict(zip(names, counts.tolist(), strict=True))

    def nodes_of_rows(self) -> list[str]:
        """The nodes whose round trips to all others strategies need: the control plane, where
        requests enter the cluster, and the nodes of the pods' users: those that pods name as user
        or peer, those of most pods first, then some where the largest observed peers are."""
        pods = [pod.annotations for pod in self._pods.values() if not pod.finished]
        users = Counter(each.user_node for each in pods)
        users.update(
            peer.name.removeprefix(NODE_PEER)
            for each in pods
            for peer in each.peers
            if peer.name.startswith(NODE_PEER)
        )
        control_plane = [name for name, node in self._nodes.items() if node.is_control_plane]
        known = [name for name, _ in users.most_common() if name in self._nodes]
        talking: list[str] = []
        if self._traffic.peers:
            table = self.table  # which may count all pods again
            assigned = self._occupancy.assigned_pods()
            talking = busiest_nodes(self._traffic, assigned, table, _MOST_TALKING)
        return list(dict.fromkeys((*sorted(control_plane), *known, *talking)))

    def view(self, telemetry: TelemetryState, now_s: float, pod: Pod | None = None) -> ClusterView:
        """The cluster for a decision at `now_s`; a copy. Room that is reserved counts as used,
        except what is kept for `pod`."""
        return self.reservations.apply(self.unreserved_view(telemetry, now_s), pod)

    def unreserved_view(self, telemetry: TelemetryState, now_s: float) -> ClusterView:
        """As `view`, but room that is reserved does not count."""
        table = self.table
        if self._occupancy.is_bloated():
            self._recount()
        counted = self._occupancy
        requested_mbps, recent = counted.bandwidth_requested_mbps(), self.recent
        recent.look(table, telemetry, now_s, requested_mbps)
        recently_placed, rates_unknown = recent.counts
        assumed = AssumedLoad(recent.measured, recent.expected, rates_unknown)
        return ClusterView(
            table=table,
            requested={name: column.copy() for name, column in counted.requested.items()},
            metrics=recent.metrics if self._assumes_load else recent.measured,
            assumed=assumed if self._assumes_load else None,
            recently_placed=recently_placed,
            links=telemetry.link_table(table, now_s),
            bandwidth_requested_mbps=requested_mbps,
            placed_in_run=self.run.placed.copy(),
            charged_in_run={name: col.copy() for name, col in self.run.charged.items()},
            host_ports=dict(counted.host_ports),
            assigned_pods=counted.assigned_pods(),
            mounts=dict(counted.mounts),
            callers=counted.callers(),
            namespaces=self.objects.namespaces,
            pod_selectors=self.objects.pod_selectors,
            storage=self.objects.storage(),
            images=self.images.table(table),
            traffic=self._traffic,
            nominated=tuple(
                (each, table.index[node]) for each, node in self.nominated() if node in table.index
            ),
        )

    def look(self, telemetry: TelemetryState, now_s: float) -> None:
        """Take in the boards' reports between decisions; see RecentPods."""
        table = self.table
        self.recent.look(table, telemetry, now_s, self._occupancy.bandwidth_requested_mbps())

    def _relist_reservations(self, pods: Iterable[Pod]) -> None:
        before, now = self._pods, {pod.uid: pod for pod in pods}
        for uid in before.keys() - now.keys():
            self.reservations.withdrawn(uid)
        for uid, pod in now.items():
            known = before.get(uid)
            if pod.node_name is not None and (known is None or known.node_name is None):
                self.reservations.placed(pod)

    def _counted(self, uid: str) -> Pod | None:
        """The pod, if it uses resources of a node."""
        pod = self._pods.get(uid)
        if pod is None or pod.finished or self._node_of(pod) is None:
            return None
        return pod

    def _pod_changed(self, pod: Pod) -> ClusterEvent:
        kept_on = self.nominations.of(pod.uid)
        self.nominations.observe(pod)
        before, shown = self._counted(pod.uid), self._pods.get(pod.uid)
        node = self._node_of(before) if before else None
        self._replace(pod.uid, pod)
        after = self._counted(pod.uid)
        event = NO_EVENT
        if before and after and node == self._node_of(after):
            event = queueing_hints.pod_changed(before, after)
        elif before:
            event = queueing_hints.pod_removed(before)
        if kept_on not in (None, self.nominations.of(pod.uid), pod.node_name):
            event |= _ROOM
        # An assumption is no event yet: the binding may still fail.
        if after and after.node_name != (shown.node_name if shown else None):
            event |= queueing_hints.pod_assigned(after)
        return event

    def _is_free(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and pod.node_name is None

    def _drop_absent(self) -> None:
        """After a relist, end what is assumed of pods that are bound or gone. A run may go on for
        days, and the pods that it placed may have gone unseen."""
        for uid in [uid for uid in self._assumed if not self._is_free(uid)]:
            del self._assumed[uid]
        for uid in self.run.pods():
            if (pod := self._pods.get(uid)) is None or pod.finished:
                self.run.leave(uid)
            elif pod.node_name is not None:
                self.run.seen_on(uid, pod.node_name)

    def _node_of(self, pod: Pod) -> str | None:
        return pod.node_name or self._assumed.get(pod.uid)

    def _replace(self, uid: str, pod: Pod | None) -> None:
        before = self._pods.pop(uid, None)
        was_on = None if before is None else self._node_of(before)
        stays_on = self._stays_on(before, pod)
        if before is not None and stays_on is None:
            self._count_out(before)
        if pod is None:
            if before is not None:
                self.reservations.withdrawn(uid)
            self.run.leave(uid)
            self._tell_recent(before, was_on, None)
            return
        self._pods[uid] = pod
        if pod.node_name is not None:
            self._observe_node(before, pod, pod.node_name)
        self._tell_recent(before, was_on, pod)
        if before is None or stays_on is None:
            self._count_in(pod)
        else:
            self.images.update(before, pod, stays_on)
        if pod.finished:
            self.run.leave(uid)

    def _stays_on(self, before: Pod | None, pod: Pod | None) -> str | None:
        """The node of which both versions of a pod use the same, so that nothing needs to be
        counted again: what the watch shows most often is a binding that was assumed, or how far
        the containers are. None if that is not so."""
        if before is None or pod is None or before.finished or pod.finished:
            return None
        node = self._node_of(before)
        return node if node == self._node_of(pod) and counts_alike(before, pod) else None

    def _observe_node(self, before: Pod | None, pod: Pod, node: str) -> None:
        """The watch shows a pod on this node: an assumption has ended, or another scheduler has
        placed the pod."""
        if before is None or before.node_name is None:
            self.reservations.placed(pod)
        if self._assumed.pop(pod.uid, None) not in (None, node):
            self.objects.forget(pod.uid)
        self.run.seen_on(pod.uid, node)

    def _recount(self) -> None:
        self._occupancy = Occupancy(self._table, self._occupancy)
        for pod in self._pods.values():
            self._count_in(pod)
        self.run.recount(self._table)

    def _tell_recent(self, before: Pod | None, was_on: str | None, pod: Pod | None) -> None:
        """Tell which pod came to a node, began to run, or ended. was_on: the node of `before`."""
        had_ended = before is not None and before.finished
        is_on = None if pod is None else self._node_of(pod)
        if pod is not None and pod.finished:
            if is_on is not None and not had_ended:
                self.recent.end(pod, is_on)
            return
        if before is not None and was_on is not None and was_on != is_on and not had_ended:
            self.recent.end(before, was_on)
        if pod is None or is_on is None:
            return
        if before is None or was_on != is_on or before.runs_s != pod.runs_s:
            self.recent.put(pod, is_on)
        known = None if before is None else (before.starting_s, before.restarted)
        says = pod.starting_s, pod.restarted
        if says not in (known, (None, False)):
            self.recent.started(pod, is_on)

    def _tell_recent_of_all(self, were_on: Iterable[tuple[Pod, str | None]]) -> None:
        """Tell what has changed since these were the pods, each with its node."""
        new = dict(self._pods)
        for before, was_on in were_on:
            self._tell_recent(before, was_on, new.pop(before.uid, None))
        for pod in new.values():
            self._tell_recent(None, None, pod)

    def _count_in(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.add(pod, node)
            self.images.add(pod, node)

    def _count_out(self, pod: Pod) -> None:
        node = self._node_of(pod)
        if node is not None and not pod.finished:
            self._occupancy.remove(pod, node)
            self.images.remove(pod, node)

"""What a pod talks to, where that is, and how long the two wait for each other. Pure.

A pod's peers are those that it declares (`leadline.dev/peers`), those that declare it, and those
that were counted (`ClusterView.traffic`). A peer is a distribution over the nodes: that of its
pods, or one node.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.assigned_pods import AssignedPods
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.callers import named
from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import NODE_PEER, DeclaredPeer, Pod
from leadline_controller.framework.selectors import Selector, selects
from leadline_controller.framework.services import PER_REPLICA_LABELS, Service, workload_name
from leadline_controller.framework.traffic import NO_PEERS, PeerAt, PeerTraffic, PodPeers, Traffic
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints, NodeTable

_MOST_OBSERVED = 16  # peers of a workload that count, those with the most traffic
_REQUESTS_PER_MBPS = 4.0  # where nothing tells the requests: of 31 kB each


def peers_of(view: ClusterView, pod: Pod) -> tuple[PeerAt, ...]:
    """The pod's peers that are somewhere. view: without the pod, as for any decision about it.

    Where one is both declared and observed, what is declared counts, and the requests that were
    observed if none are declared. Pods that are being deleted are nowhere: their successors are to
    take their places.
    """
    return _found(view, pod).somewhere


class PeerAmong(NamedTuple):
    """A peer of a pod of which some pods are not placed yet."""

    name: str  # as in PeerAt
    mbps: float  # with all its pods, both directions together
    least_requests_per_s: float
    most_requests_per_s: float
    placed: int  # its pods that are on a node
    members: Bools  # which of the others are it, shape (len(others),)


def peers_among(view: ClusterView, pod: Pod, others: Sequence[Pod]) -> Iterator[PeerAmong]:
    """The peers that the pod declares, or that were counted, of which some of `others` are: pods
    that come together with it. Those that declare the pod are not its peers here, but it theirs."""
    counted = list(view.traffic.peers.get(workload_of(pod), ())[:_MOST_OBSERVED])
    for declared in pod.annotations.peers:
        place, is_same = _place(view, pod, declared)
        same = [each for each in counted if is_same(each)]
        counted = [each for each in counted if not is_same(each)]
        if named(pod, declared) is None:
            continue
        end = declared_end(view, pod, declared)
        members = np.array([_is_end(each, end, pod) for each in others], dtype=np.bool_)
        if members.any():
            bounds = _bounds(declared, same)
            yield PeerAmong(declared.name, declared.mbps, *bounds, int(place.sum()), members)
    for peer in counted:
        members = np.array(
            [workload_of(each) == peer.peer and each.key != pod.key for each in others],
            dtype=np.bool_,
        )
        if members.any() and not isinstance(peer.peer, str):
            placed = int(view.assigned_pods.replicas(peer.peer, len(view)).sum())
            bounds = peer.least_requests_per_s, peer.most_requests_per_s
            yield PeerAmong(peer.name, peer.mbps, *bounds, placed, members)


def absent_peers(view: ClusterView, pod: Pod) -> tuple[DeclaredPeer, ...]:
    """The declared peers that are nowhere: they have no pods, or their node or address is not
    known."""
    return _found(view, pod).nowhere


def _found(view: ClusterView, pod: Pod) -> PodPeers:
    if not (pod.annotations.peers or view.traffic.peers or view.callers):
        return NO_PEERS
    for asked, found in view.last_peers:
        if asked is pod:
            return found
    found = _find(view, pod)
    view.last_peers[:] = [(pod, found)]
    return found


def _find(view: ClusterView, pod: Pod) -> PodPeers:
    observed = list(view.traffic.peers.get(workload_of(pod), ())[:_MOST_OBSERVED])
    callers = list(_callers(view, pod))
    found, absent = [], []
    for declared in pod.annotations.peers:
        place, is_same = _place(view, pod, declared)
        callers = [each for each in callers if not is_same(each)]  # its own word counts
        same = [each for each in observed if is_same(each)]
        observed = [each for each in observed if not is_same(each)]
        if not place.any():
            absent.append(declared)
            continue
        bounds = _bounds(declared, same)
        rates = declared.mbps, *bounds, declared.most_rtt_ms
        found.append(PeerAt(declared.name, place / place.sum(), *rates, declared=True))
    calls = {each.peer for each in callers}
    for each in (*callers, *(each for each in observed if each.peer not in calls)):
        if isinstance(each.peer, str):
            place = _at(view, each.peer)
        else:
            place = view.assigned_pods.replicas(each.peer, len(view))
        if place.any():
            bounds = each.least_requests_per_s, each.most_requests_per_s
            rates = each.mbps, *bounds, None
            share = place / place.sum()
            found.append(PeerAt(each.name, share, *rates, declared=each.peer in calls))
    return PodPeers(tuple(found), tuple(absent))


def _callers(view: ClusterView, pod: Pod) -> Iterator[PeerTraffic]:
    """What one pod of this workload exchanges with those that declare it, by its Services' names or
    its own."""
    if not view.callers:
        return
    own = workload_of(pod)
    names = [name for name, _ in view.pod_selectors.services_of(pod)]
    names.append(workload_name(pod).partition("/")[2])
    found: dict[Service, PeerTraffic] = {}
    for name in dict.fromkeys(names):
        for caller, count in view.callers.get((pod.namespace, name), {}).items():
            if caller.workload == own:
                continue
            least, most = _bounds(caller.declared, ())
            before = found.get(caller.workload)
            if before is None:
                before = PeerTraffic(caller.workload, caller.name, 0.0, 0.0, 0.0)
            found[caller.workload] = replace(
                before,
                mbps=before.mbps + count * caller.declared.mbps,
                least_requests_per_s=before.least_requests_per_s + count * least,
                most_requests_per_s=before.most_requests_per_s + count * most,
            )
    replicas = 1 + int(view.assigned_pods.replicas(own, len(view)).sum()) if found else 1
    for each in found.values():
        yield replace(
            each,
            mbps=each.mbps / replicas,
            least_requests_per_s=each.least_requests_per_s / replicas,
            most_requests_per_s=each.most_requests_per_s / replicas,
        )


def main_peer(view: ClusterView, pod: Pod) -> PeerAt | None:
    """The peer that the pod waits for most often: the one with the most requests, then with the
    most Mbit/s, then the first. It does not depend on where the pod is, or the pod would change
    its peer by each move."""
    peers = [each for each in peers_of(view, pod) if not each.is_everywhere]
    return max(peers, key=lambda each: (each.requests_per_s, each.mbps), default=None)


def round_trips_ms(view: ClusterView, peers: Sequence[PeerAt]) -> Floats:
    """Expected round trip from each node to each peer, ms, shape (len(peers), n): the mean over
    where its pods are, 0 for those on the node itself; NaN if one of them is unknown."""
    shares = np.array([peer.share for peer in peers]).reshape(len(peers), len(view))
    hosts = np.flatnonzero(shares.any(axis=0))
    rtt_ms = np.zeros((hosts.size, len(view)))
    for row, host in enumerate(hosts.tolist()):
        rtt_ms[row] = view.links.rtt_ms_from(host)
        rtt_ms[row, host] = 0.0
    return _expected(shares[:, hosts], rtt_ms)


def free_mbps(view: ClusterView, pod: Pod, peers: Sequence[PeerAt]) -> Floats:
    """`bandwidth_free_mbps` of a view without this pod, shape (n,). What a measured link has left
    lacks the traffic of a pod that runs, and that follows it: else its own node would always look
    worse than others."""
    free = view.bandwidth_free_mbps()
    here = view.table.index.get(pod.node_name or "")
    if here is None:
        return free
    is_measured = np.isnan(view.table.bandwidth_mbps)
    for peer in peers:
        away = peer.mbps * peer.share
        away[here] = 0.0
        away[here] = away.sum()
        free += np.where(is_measured, away, 0.0)
    return free


def waits_s(
    view: ClusterView,
    peers: Sequence[PeerAt],
    candidates: Ints,
    rtt_ms: Floats | None = None,
    left_mbps: Floats | None = None,
) -> Floats:
    """Seconds each second that a pod on each candidate and each peer would wait for each other,
    both directions together, shape (len(peers), len(candidates)): requests times the expected round
    trip, and Mbit/s over what is left on the slower of the two links, nothing across one board. NaN
    where one of these is unknown; 0 for a peer that is everywhere.

    rtt_ms: `round_trips_ms` of the candidates, by default as these are. left_mbps: of each node's
    link, shape (n,), by default what is not requested.
    """
    waits = np.zeros((len(peers), candidates.size))
    near = [at for at, peer in enumerate(peers) if not peer.is_everywhere]
    if not near:
        return waits
    counted = [peers[at] for at in near]
    rtt_ms = round_trips_ms(view, counted)[:, candidates] if rtt_ms is None else rtt_ms[near]
    left = view.bandwidth_free_mbps() if left_mbps is None else left_mbps
    left = np.maximum(left, MIN_MBPS)
    shares = np.array([peer.share for peer in counted])
    hosts = np.flatnonzero(shares.any(axis=0))
    megabit_s = 1 / np.minimum(left[hosts][:, np.newaxis], left[candidates])
    megabit_s[hosts[:, np.newaxis] == candidates] = 0.0
    requests = np.array([[peer.requests_per_s] for peer in counted])
    mbps = np.array([[peer.mbps] for peer in counted])
    by_requests = np.where(requests > 0, requests * rtt_ms / 1000, 0.0)
    waits[near] = by_requests + _expected(shares[:, hosts] * mbps, megabit_s)
    return waits


def wait_s(view: ClusterView, peers: Sequence[PeerAt], candidates: Ints) -> Floats:
    """The sum of `waits_s` over the peers, shape (len(candidates),)."""
    total: Floats = waits_s(view, peers, candidates).sum(axis=0)
    return total


def waits_text(view: ClusterView, peers: Sequence[PeerAt], waits: Floats) -> str:
    """The waits for each peer on one node, s each second, shape (len(peers),), as a part of a
    sentence with the longest three: "waits 0.012 s each second for db (pi-2), 0.003 for ..."."""
    longest = np.argsort(-waits, kind="stable")[:3].tolist()
    texts = []
    for number, at in enumerate(longest):
        nodes, name = peers[at].nodes.tolist(), peers[at].name
        where = ", ".join(view.table.names[node] for node in nodes[:2])
        where += f" and {len(nodes) - 2} more" if len(nodes) > 2 else ""
        shown = "" if name.startswith(NODE_PEER) else f" ({where})"
        unit = " s each second" if number == 0 else ""
        wait = "for an unknown time" if np.isnan(waits[at]) else f"{waits[at]:.3g}{unit}"
        texts.append(f"{wait} for {name}{shown}")
    return f"waits {', '.join(texts)}"


def busiest_nodes(
    traffic: Traffic, assigned: AssignedPods, table: NodeTable, most: int
) -> list[str]:
    """The nodes of the observed peers with the most traffic, `most` at most, the busiest first."""
    rates: dict[Service | str, float] = {}
    for peers in traffic.peers.values():
        for each in peers:
            rates[each.peer] = rates.get(each.peer, 0.0) + each.mbps
    found: dict[str, None] = {}
    for peer, _ in sorted(rates.items(), key=lambda item: -item[1])[:most]:
        if isinstance(peer, str):
            found |= {peer: None} if peer in table.index else {}
            continue
        counts = assigned.replicas(peer, len(table))
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        found |= dict.fromkeys(table.names[at] for at in order[:most])
    return list(found)[:most]


class DeclaredEnd(NamedTuple):
    """What the name of a declared peer stands for."""

    name: str  # "namespace/name" of a Service or a workload, "node/name", or an address
    node: str = ""  # of a node its name; of an address the node where it lies, "" if unknown
    selector: Selector | None = None  # of a Service, by which it has its pods


def declared_end(view: ClusterView, pod: Pod, declared: DeclaredPeer) -> DeclaredEnd:
    """What a pod means by the name of a peer. An address that a node has is that node."""
    key = named(pod, declared)
    if key is not None:
        return DeclaredEnd("/".join(key), selector=view.pod_selectors.service(*key))
    name = declared.name
    if not name.startswith(NODE_PEER):
        own = next((each.name for each in view.nodes if name in each.addresses), None)
        if own is None:
            return DeclaredEnd(name, view.traffic.entries.get(name, ""))
        name = NODE_PEER + own
    return DeclaredEnd(name, name.removeprefix(NODE_PEER))


def _is_end(each: Pod, end: DeclaredEnd, of: Pod) -> bool:
    """Whether a pod is one of this Service or workload, and not `of` itself."""
    if each.key == of.key or end.name.partition("/")[0] != each.namespace:
        return False
    if end.selector is None:
        return workload_name(each) == end.name
    return selects(end.selector, each.labels)


IsSame = Callable[[PeerTraffic], bool]


def _place(view: ClusterView, pod: Pod, declared: DeclaredPeer) -> tuple[Ints, IsSame]:
    """How much of a declared peer is on each node, shape (n,), and what tells whether an observed
    peer is the same."""
    key, end = named(pod, declared), declared_end(view, pod, declared)
    namespace, selector = "" if key is None else key[0], end.selector
    shared = tuple(each for each in selector or () if each.key not in PER_REPLICA_LABELS)

    def is_same(each: PeerTraffic) -> bool:
        if selector is None:
            return each.name == end.name
        if isinstance(each.peer, str) or each.peer[0] != namespace:
            return False
        return selects(shared, dict(each.peer[1]))

    if key is None:
        return _at(view, end.node), is_same
    assigned = view.assigned_pods
    if selector is None:
        chosen = assigned.kinds.of_owner(*key) & ~assigned.kinds.terminating()
    else:
        chosen = assigned.kinds.living(namespace, selector)
    return assigned.per_node(chosen[assigned.kind], len(view)), is_same


def _at(view: ClusterView, node: str) -> Ints:
    place = np.zeros(len(view), dtype=np.int64)
    if (at := view.table.index.get(node)) is not None:
        place[at] = 1
    return place


def _bounds(declared: DeclaredPeer, same: Sequence[PeerTraffic]) -> tuple[float, float]:
    """The fewest and the most requests a second of a declared peer."""
    if declared.requests_per_s is not None:
        return declared.requests_per_s, declared.requests_per_s
    if same:
        least = sum(each.least_requests_per_s for each in same)
        return least, sum(each.most_requests_per_s for each in same)
    return declared.mbps * _REQUESTS_PER_MBPS, declared.mbps * _REQUESTS_PER_MBPS


def _expected(weights: Floats, values: Floats) -> Floats:
    """weights @ values, NaN where an unknown value has a weight. Shapes (p, h) and (h, c)."""
    unknown = np.isnan(values)
    total: Floats = weights @ np.where(unknown, 0.0, values)
    if unknown.any():
        # As floats, of which numpy multiplies matrices a hundred times as quickly.
        counted = (weights > 0).astype(np.float64) @ unknown.astype(np.float64)
        total[counted > 0] = np.nan
    return total

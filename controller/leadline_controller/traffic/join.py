"""Joins the addresses in a board's counts with pods and nodes, and says what a board may say.

An agent is believed only about its own pods and its own board, by the API server's word on which
pods these are. Pure: times are seconds on the clock of the decisions.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from math import inf
from typing import NamedTuple

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import NODE_PEER, Node, Pod
from leadline_controller.framework.services import Service, workload_name
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.telemetry.traffic import CountedFlow

# Kubelet's probes, 4 a second of 5 packets each, are at most this much of what a board sends to its
# own pod. They follow the pod, so they say nothing of where it should be, and are not counted.
_MOST_PROBE_PACKETS_PER_S = 20.0
_KEPT_S = 120.0  # the address of a pod that ended: its board's last report has yet to come


class Place(NamedTuple):
    """One end of a flow: a workload, "node/NAME", or an address; and the node where it is, "" for
    an address outside of the cluster."""

    who: Service | str
    node: str

    @property
    def workload(self) -> Service | None:
        """None for a node or an address."""
        return None if isinstance(self.who, str) else self.who

    @property
    def is_outside(self) -> bool:
        """Whether it is an address that neither a pod nor a node has."""
        return not self.node


class Key(NamedTuple):
    """What a board counts together."""

    source: Place  # as its own board knows it
    seen: Place  # as the destination sees it: other than `source` where a board translates it
    destination: Place
    port: int
    # Which ends the board knows: where both are its own, nobody else can know better.
    has_source: bool
    has_destination: bool
    enters: bool  # the board lets the connections of an outside address in


@dataclass(slots=True)
class _Holder:
    """A pod that has, or had, an address."""

    place: Place
    from_s: float
    until_s: float = inf


@dataclass(slots=True)
class _Known:
    """A pod as last seen."""

    pod: Pod
    workload: Service
    holders: Mapping[str, _Holder]  # by the addresses that it has


@dataclass(slots=True)
class Addresses:
    """Who has, or had lately, which address. unix_offset_s: from the clock of the decisions to the
    wall clock, None while that is not set."""

    unix_offset_s: Callable[[], float | None]
    # Of each workload of a pod: the name that people know, a pod of it, and when it last had any.
    names: dict[Service, str] = field(default_factory=dict)
    pods: dict[Service, Pod] = field(default_factory=dict)
    seen_s: dict[Service, float] = field(default_factory=dict)
    # Of each workload with pods that run: on how many of which nodes.
    running: dict[Service, dict[str, int]] = field(default_factory=dict)
    _known: dict[str, _Known] = field(default_factory=dict)  # by uid
    _holders: dict[str, list[_Holder]] = field(default_factory=dict)
    _nodes: dict[str, str] = field(default_factory=dict)
    _networks: dict[tuple[int, int, int], str] = field(default_factory=dict)
    _lengths: set[tuple[int, int]] = field(default_factory=set)  # version, bits that are not common
    _networks_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def update(self, pods: Iterable[Pod], nodes: Mapping[str, Node], now_s: float) -> None:
        """These are the pods and the nodes now."""
        self._nodes = {each: name for name, node in nodes.items() for each in node.addresses}
        networks = {name: node.pod_networks for name, node in nodes.items()}
        if networks != self._networks_of:
            self._use_networks(networks)
        offset_s, is_first = self.unix_offset_s(), not self._known
        running: dict[Service, dict[str, int]] = {}
        known: dict[str, _Known] = {}
        for pod in pods:
            before = self._known.get(pod.uid)
            each = before
            if each is None or each.pod is not pod:
                since_s = -inf if is_first else now_s
                each = self._seen(pod, before, since_s, now_s, offset_s)
            known[pod.uid] = each
            workload, node = each.workload, pod.node_name
            self.seen_s[workload] = now_s
            if node is not None and not pod.finished:
                on = running.setdefault(workload, {})
                on[node] = on.get(node, 0) + 1
        for uid, gone in self._known.items():
            if uid not in known:
                self.seen_s[gone.workload] = now_s
                for holder in gone.holders.values():
                    holder.until_s = min(holder.until_s, now_s)
        self._known, self.running = known, running
        self._forget(now_s)

    def forget_workload(self, workload: Service) -> None:
        """Its pods are gone for long."""
        for table in (self.names, self.pods, self.seen_s):
            table.pop(workload, None)

    def place(self, address: str, begin_s: float, end_s: float) -> Place | None:
        """Who had this address from `begin_s` to `end_s`. None if several had, or if one in the
        cluster had and nobody knows which: then the traffic counts for none of them."""
        node = self._nodes.get(address)
        if node is not None:
            return Place(NODE_PEER + node, node)
        holders = self._holders.get(address)
        if holders is not None:
            found = {x.place for x in holders if x.from_s < end_s and x.until_s > begin_s}
            return found.pop() if len(found) == 1 else None
        parsed = read_unicast(address)
        if parsed is None or parsed.is_loopback or parsed.is_link_local:
            return None
        number = int(parsed)
        for version, spare in self._lengths:
            if version == parsed.version:
                node = self._networks.get((version, spare, number >> spare))
                if node is not None:
                    # The first two are the node's own: flannel's and the bridge's.
                    is_own = number & ((1 << spare) - 1) <= 1
                    return Place(NODE_PEER + node, node) if is_own else None
        return Place(address, "")

    def _seen(
        self,
        pod: Pod,
        before: _Known | None,
        since_s: float,
        now_s: float,
        offset_s: float | None,
    ) -> _Known:
        workload = workload_of(pod)
        self.names[workload], self.pods[workload] = workload_name(pod), pod
        holders = {} if before is None else dict(before.holders)
        if pod.ips and pod.node_name is not None:
            # A board that starts again gives its pods other addresses.
            for address in holders.keys() - set(pod.ips):
                holders.pop(address).until_s = now_s
            unix_s = pod.bound_s or pod.started_s
            if before is not None and before.holders:
                since_s = now_s
            elif unix_s is not None and offset_s is not None:
                since_s = min(unix_s - offset_s, now_s)
            place = Place(workload, pod.node_name)
            for address in pod.ips:
                if address not in holders:
                    holders[address] = _Holder(place, since_s)
                    self._holders.setdefault(address, []).append(holders[address])
        if pod.finished:
            ended_s = now_s
            if pod.ended_s is not None and offset_s is not None:
                ended_s = min(pod.ended_s - offset_s, now_s)
            for holder in holders.values():
                holder.until_s = min(holder.until_s, ended_s)
        return _Known(pod, workload, holders)

    def _forget(self, now_s: float) -> None:
        for address, holders in list(self._holders.items()):
            left = [each for each in holders if each.until_s > now_s - _KEPT_S]
            if len(left) < len(holders):
                if left:
                    self._holders[address] = left
                else:
                    del self._holders[address]

    def _use_networks(self, networks: Mapping[str, tuple[str, ...]]) -> None:
        self._networks_of, self._networks, self._lengths = networks, {}, set()
        for name, texts in networks.items():
            for text in texts:
                with suppress(ValueError):
                    network = ip_network(text, strict=False)
                    spare = network.max_prefixlen - network.prefixlen
                    self._lengths.add((network.version, spare))
                    first = int(network.network_address) >> spare
                    self._networks[network.version, spare, first] = name


def credited(
    flow: CountedFlow, node: str, addresses: Addresses, begin_s: float, end_s: float
) -> Key | None:
    """As what a flow counts that the board `node` has reported for this time. None where the board
    has no say: neither end is the board or a pod on it, and it lets nobody in from outside; and for
    kubelet's probes."""
    source = addresses.place(flow.source, begin_s, end_s)
    destination = addresses.place(flow.destination, begin_s, end_s)
    if source is None or destination is None:
        return None
    has_source, has_destination = source.node == node, destination.node == node
    if has_source and has_destination and isinstance(source.who, str):
        rarer = min(flow.packets_sent, flow.packets_received)
        if rarer <= _MOST_PROBE_PACKETS_PER_S * (end_s - begin_s):
            return None
    enters = flow.translated and source.is_outside and not isinstance(destination.who, str)
    if not (has_source or has_destination or enters):
        return None
    seen = source
    if has_destination:
        has_source |= source.is_outside  # that has no agent
    else:
        has_source = True
        if flow.translated_source:
            # Whatever it says: a board can only translate to an address of its own.
            seen = Place(NODE_PEER + node, node)
        has_destination = destination.is_outside
    return Key(source, seen, destination, flow.port, has_source, has_destination, enters)

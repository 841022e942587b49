"""Who talks to whom, as a snapshot states it: what `Traffic` holds of the snapshot's pods."""

from collections.abc import Iterable, Iterator

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import NODE_PEER, Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import NO_TRAFFIC, PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.selectors import Manifest, without_empty
from leadline_controller.parsing.fields import Fields
from leadline_controller.snapshot.stated import MAX_VALUE, read_workload

_AMOUNTS = ("mbps", "least_requests_per_s", "most_requests_per_s")


def write_traffic(view: ClusterView, pods: Iterable[Pod], names: Names) -> Manifest:
    """The section `traffic`, of the workloads of these pods; empty if nothing is known."""
    traffic, nodes = view.traffic, view.table.index
    if traffic is NO_TRAFFIC:
        return {}
    workloads = {workload_of(pod) for pod in pods} & traffic.peers.keys()
    return without_empty(
        {
            "workloads": [
                {
                    **write_workload(who, names),
                    "peers": [
                        _peer(each, names)
                        for each in traffic.peers[who]
                        if not isinstance(each.peer, str) or each.peer in nodes
                    ],
                }
                for who in sorted(workloads, key=in_order)
            ],
            "entries": [
                {"address": names("address", address), "node": names("node", node)}
                for address, node in sorted(traffic.entries.items())
                if node in nodes
            ],
            "flowing": [
                {"node": names("node", node), "mbps": mbps}
                for node, mbps in sorted(traffic.flowing_mbps.items())
                if node in nodes
            ],
        }
    )


def write_workload(workload: Service, names: Names) -> Manifest:
    """The fields that tell a workload from others."""
    namespace, pairs = workload
    labels = dict(sorted(pairs))
    uid = labels.pop("", None)
    by = {"labels": names.labels(labels)} if uid is None else {"uid": uid and names("uid", uid)}
    return {"namespace": names("namespace", namespace), **by}


def in_order(workload: Service) -> tuple[str, list[tuple[str, str]]]:
    """By which workloads are sorted."""
    return workload[0], sorted(workload[1])


def _peer(peer: PeerTraffic, names: Names) -> Manifest:
    amounts = {name: getattr(peer, name) for name in _AMOUNTS}
    if not isinstance(peer.peer, str):
        space, _, name = peer.name.partition("/")
        called = f"{names('namespace', space)}/{names('owner', name)}"
        return {"workload": write_workload(peer.peer, names), "name": called, **amounts}
    node = names("node", peer.peer)
    called = NODE_PEER + node if peer.name.startswith(NODE_PEER) else names("address", peer.name)
    return {"node": node, "name": called, **amounts}


def read_traffic(root: Fields, table: NodeTable) -> Traffic:
    """The traffic; none if the file has none."""
    if not root.has("traffic"):
        return NO_TRAFFIC
    stated = root.object("traffic")
    stated.only("workloads", "entries", "flowing")
    peers = {}
    for entry in stated.objects("workloads"):
        entry.only("namespace", "labels", "uid", "peers")
        peers[read_workload(entry)] = tuple(_peers(entry, table))
    entries = {}
    for entry in stated.objects("entries"):
        entry.only("address", "node")
        entries[entry.text("address")] = _node(entry, table)
    flowing_mbps = {}
    for entry in stated.objects("flowing"):
        entry.only("node", "mbps")
        flowing_mbps[_node(entry, table)] = entry.number("mbps", MAX_VALUE) or 0.0
    return Traffic(peers, entries, flowing_mbps)


def _peers(of: Fields, table: NodeTable) -> Iterator[PeerTraffic]:
    for entry in of.objects("peers"):
        entry.only("workload", "node", "name", *_AMOUNTS)
        amounts = (entry.number(name, MAX_VALUE) or 0.0 for name in _AMOUNTS)
        peer: Service | str
        if entry.has("workload"):
            workload = entry.object("workload")
            workload.only("namespace", "labels", "uid")
            peer = read_workload(workload)
        else:
            peer = _node(entry, table)
        yield PeerTraffic(peer, entry.text("name"), *amounts)


def _node(entry: Fields, table: NodeTable) -> str:
    node = entry.text("node")
    if node not in table.index:
        raise entry.error("node", "the name of a node in this file")
    return node

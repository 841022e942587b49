"""The traffic in a snapshot, which decisions about its pods read: of their workloads, at the
addresses that they declare, and on each node's link."""

from collections.abc import Iterator, Mapping, Sequence

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import NODE_PEER, Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.selectors import Manifest, without_empty
from leadline_controller.parsing.fields import Fields
from leadline_controller.snapshot.stated import MAX_VALUE, WORKLOAD, read_workload

_RATES = ("mbps", "least_requests_per_s", "most_requests_per_s")


def write_workload(workload: Service, names: Names) -> Manifest:
    """A workload: its namespace, and labels or the uid of what stands alone."""
    namespace, pairs = workload
    labels = dict(sorted(pairs))
    uid = labels.pop("", None)
    by = {"labels": names.labels(labels)} if uid is None else {"uid": uid and names("uid", uid)}
    return {"namespace": names("namespace", namespace), **by}


def in_order(workload: Service) -> tuple[str, list[tuple[str, str]]]:
    """By what workloads are sorted in a file."""
    return workload[0], sorted(workload[1])


def declared_addresses(pods: Sequence[Pod]) -> frozenset[str]:
    """What these pods declare as peers beside nodes, among it every address."""
    names = (peer.name for pod in pods for peer in pod.annotations.peers)
    return frozenset(name for name in names if not name.startswith(NODE_PEER))


def write_traffic(view: ClusterView, pods: Sequence[Pod], names: Names) -> Manifest:
    """What decisions about these pods read of the traffic; the nodes state `flowing_mbps`."""
    traffic, declared = view.traffic, declared_addresses(pods)
    workloads = {workload_of(pod) for pod in pods} & traffic.peers.keys()
    return without_empty(
        {
            "workloads": [
                {
                    **write_workload(each, names),
                    "peers": [_peer(peer, names) for peer in traffic.peers[each]],
                }
                for each in sorted(workloads, key=in_order)
            ],
            "entries": [
                {"address": names.address(address), "node": names("node", node)}
                for address, node in sorted(traffic.entries.items())
                if address in declared
            ],
        }
    )


def _peer(peer: PeerTraffic, names: Names) -> Manifest:
    rates = {name: getattr(peer, name) for name in _RATES}
    if isinstance(peer.peer, str):
        return {"name": names.peer(peer.name), "node": names("node", peer.peer), **rates}
    namespace, _, name = peer.name.partition("/")
    called = f"{names('namespace', namespace)}/{names('owner', name)}"
    return {"name": called, "workload": write_workload(peer.peer, names), **rates}


def read_traffic(root: Fields, table: NodeTable, entries: Sequence[Fields]) -> Traffic:
    """The traffic that a file states. entries: of its nodes, in the order of the table. Raises
    FieldError."""
    stated = root.object("traffic")
    stated.only("workloads", "entries")
    peers: dict[Service, tuple[PeerTraffic, ...]] = {}
    for entry in stated.objects("workloads"):
        entry.only(*WORKLOAD, "peers")
        peers[read_workload(entry)] = tuple(_read_peers(entry))
    places: dict[str, str] = {}
    for entry in stated.objects("entries"):
        entry.only("address", "node")
        places[entry.text("address")] = entry.text("node")
    flowing = {
        name: mbps
        for name, entry in zip(table.names, entries, strict=True)
        if (mbps := entry.number("flowing_mbps", MAX_VALUE)) is not None
    }
    return Traffic(peers, places, flowing)


def _read_peers(entry: Fields) -> Iterator[PeerTraffic]:
    for each in entry.objects("peers"):
        each.only("name", "node", "workload", *_RATES)
        peer: Service | str = each.text("node", "")
        if not peer:
            each.object("workload").only(*WORKLOAD)
            peer = read_workload(each.object("workload"))
        rates: Mapping[str, float] = {name: each.number(name, MAX_VALUE) or 0.0 for name in _RATES}
        yield PeerTraffic(peer, each.text("name"), **rates)

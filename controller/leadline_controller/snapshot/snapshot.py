"""Reads a ClusterSnapshot file: a cluster for offline decisions.

Unknown fields are errors, because with a mistyped field the cluster is not the one that its author
means.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import numpy as np

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.assigned_pods import AssignedPods, Namespaces
from leadline_controller.framework.batch import Running
from leadline_controller.framework.callers import Caller, count
from leadline_controller.framework.cluster_objects import (
    ClusterObject,
    NamespaceLabels,
    PodSelector,
    PodSelectors,
    Storage,
    Unreadable,
)
from leadline_controller.framework.image_layers import ImageTable, full_name
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import PODS, HostPort, Image, Layer, Node, Pod, Taint
from leadline_controller.framework.quantity import MAX_AMOUNT
from leadline_controller.framework.view import ClusterView, Ints, NodeTable
from leadline_controller.kubeobjects.amounts import read_amounts
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.kubeobjects.schema import Quantities
from leadline_controller.parsing.documents import read_document
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.typed import decode
from leadline_controller.snapshot.stated import (
    MAX_VALUE,
    NODE_FIELDS,
    StatedRule,
    by_architecture,
    charged,
    counts,
    read_estimates,
    read_metrics,
    read_rule,
    with_load,
    with_queues,
)
from leadline_controller.snapshot.traffic import read_traffic

API_VERSION = "leadline.dev/v1"
KIND = "ClusterSnapshot"
MAX_BYTES = 64 * 1024 * 1024  # 1,000 boards with 10,000 pods take 10 MB
_DEFAULT_PODS = 110  # the kubelet's
_MAX_RESOURCES = 256  # in requests and nodes; real clusters have a dozen
_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9._]{0,251}[a-zA-Z0-9])?")
_NODE_FIELDS = (
    *("name", "tier", "schedulable", "ready", "labels", "taints", "allocatable", "requested"),
    *("bandwidth_mbps", "bandwidth_requested_mbps", "metrics", "metric_errors"),
    *("image_layers", "pulling_mb", "registry_mbps"),
    *NODE_FIELDS,
)
# Lists of Kubernetes manifests -> the kind of their entries.
RESOURCES = {
    "namespaces": "Namespace",
    "claims": "PersistentVolumeClaim",
    "volumes": "PersistentVolume",
    "storage_classes": "StorageClass",
    "csi_nodes": "CSINode",
    "csi_drivers": "CSIDriver",
    "storage_capacities": "CSIStorageCapacity",
    "volume_attachments": "VolumeAttachment",
    "services": "Service",
    "replication_controllers": "ReplicationController",
    "replica_sets": "ReplicaSet",
    "stateful_sets": "StatefulSet",
}
_ROOT_FIELDS = (
    *("apiVersion", "kind", "nodes", "links", "images", "pods", *RESOURCES),
    *("rule", "estimates", "problems", "nominations", "reservations", "expected_use", "starts"),
    *("unreadable", "traffic"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A cluster view and its pending pods, in the file's order."""

    view: ClusterView
    pods: tuple[Pod, ...]
    running: tuple[Running, ...] = ()  # the assigned pods, each with the index of its node
    # Room that is kept for pods; the view is without it.
    reservations: tuple[Reservation, ...] = ()
    rule: StatedRule | None = None
    now_s: float = 0.0  # when it was taken, on the clock of the view's times

    def every_pod(self) -> Iterator[Pod]:
        """All pods in it; one may come twice."""
        yield from self.pods
        yield from (pod for pod, _ in self.running)
        yield from (pod for pod, _ in self.view.nominated)
        yield from (each.pod for each in self.reservations)


def load_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file, of standard input for "-". Raises FieldError with the file, the field
    and what was expected."""
    is_input = str(path) == "-"
    try:
        return read_snapshot(read_document(None if is_input else path, MAX_BYTES))
    except FieldError as error:
        raise FieldError(f"{'standard input' if is_input else path}: {error}") from None


def read_snapshot(document: object) -> Snapshot:
    """The snapshot in this document. Assigned pods count on their nodes; finished pods, and pending
    ones that are being deleted, are left out. Raises FieldError."""
    root = Fields(document, "")
    root.only(*_ROOT_FIELDS)
    root.choice("apiVersion", API_VERSION)
    root.choice("kind", KIND)
    if not root.has("nodes"):
        raise root.error("nodes", "a list")
    entries = list(root.objects("nodes"))
    nodes = [_node(entry) for entry in entries]
    _check_unique(entries, [node.name for node in nodes], "name")
    # By name as in a cluster: the order decides where a strategy takes the first of equal nodes.
    by_name = sorted(zip(nodes, entries, strict=True), key=lambda pair: pair[0].name)
    table, entries = NodeTable([node for node, _ in by_name]), [entry for _, entry in by_name]
    links = _links(root, table)
    images, sizes_mb = _images(root)
    pods = _pods(root, table)
    running = [
        (pod, table.index[pod.node_name])
        for pod in pods
        if pod.node_name is not None and not pod.finished
    ]
    pending = [p for p in pods if p.node_name is None and not (p.finished or p.terminating)]
    objects = _cluster_objects(root)
    namespaces = {pod.namespace: {"kubernetes.io/metadata.name": pod.namespace} for pod in pods}
    stated = {each.name: each.labels for each in objects if isinstance(each, NamespaceLabels)}
    # A node that states its download queue has nothing else in it.
    pulling = [(pod, at) for pod, at in running if not entries[at].has("download_queue")]
    view = replace(
        _view(table, entries, links, running),
        namespaces=Namespaces({**namespaces, **stated}),
        pod_selectors=PodSelectors(each for each in objects if isinstance(each, PodSelector)),
        storage=Storage.of([*objects, *_unreadable(root)]),
        images=with_queues(images.with_running(table, pulling), entries, sizes_mb),
        nominated=tuple(_nominations(root, table)),
        traffic=read_traffic(root, table),
    )
    reservations = tuple(_reservations(root))
    rule = read_rule(root)
    view = with_load(view, root, entries)
    return Snapshot(view, tuple(pending), tuple(running), reservations, rule)


def _unreadable(root: Fields) -> Iterator[Unreadable]:
    for entry in root.objects("unreadable"):
        entry.only("kind", "why")
        yield Unreadable(entry.text("kind"), entry.text("why", ""))


def _nominations(root: Fields, table: NodeTable) -> Iterator[Running]:
    for entry in root.objects("nominations"):
        entry.only("pod", "node")
        pod = _pod(entry.object("pod"))
        if not pod.uid:  # by which it is told from the pod that is decided on
            raise entry.object("pod").error("metadata.uid", "text")
        if (at := table.index.get(entry.text("node"))) is None:
            raise entry.error("node", "the name of a node in this file")
        yield pod, at


def _reservations(root: Fields) -> Iterator[Reservation]:
    for entry in root.objects("reservations"):
        entry.only("pod", "node", "source", "why")
        pod = _pod(entry.object("pod"))
        if not pod.uid:
            raise entry.object("pod").error("metadata.uid", "text")
        source = entry.text("source") if entry.has("source") else None
        yield Reservation(pod, entry.text("node"), source, entry.text("why", ""))


def _node(entry: Fields) -> Node:
    entry.only(*_NODE_FIELDS)
    name = _name(entry, "name")
    return Node(
        name=name,
        allocatable={PODS: _DEFAULT_PODS, **_amounts(entry, "allocatable")},
        # Every kubelet gives its node this label.
        labels={"kubernetes.io/hostname": name, **entry.text_map("labels")},
        taints=tuple(_taints(entry)),
        unschedulable=not entry.flag("schedulable", default=True),
        ready=entry.flag("ready", default=True),
        tier=entry.choice("tier", "edge", "cloud") if entry.has("tier") else "",
        bandwidth_mbps=entry.number("bandwidth_mbps", MAX_VALUE),
        image_layers=frozenset(entry.texts("image_layers")),
        pulling_mb=entry.number("pulling_mb", MAX_VALUE),
        registry_mbps=entry.number("registry_mbps", MAX_VALUE),
        features=frozenset(entry.texts("features")),
        addresses=entry.texts("addresses"),
    )


def _amounts(entry: Fields, name: str) -> dict[str, int]:
    path = entry.at(name)
    return read_amounts(decode(entry.object(name).data, Quantities, path), path)


def _taints(entry: Fields) -> Iterator[Taint]:
    for taint in entry.objects("taints"):
        taint.only("key", "value", "effect", "timeAdded")
        effect = taint.choice("effect", "NoSchedule", "PreferNoSchedule", "NoExecute")
        yield Taint(taint.text("key"), taint.text("value", ""), effect)


def _links(root: Fields, table: NodeTable) -> LinkTable:
    ends: list[tuple[int, int]] = []
    rtt_ms: list[float] = []
    at_s: list[float] = []
    unreachable: list[tuple[int, int]] = []
    pairs = set()
    for entry in root.objects("links"):
        entry.only("a", "b", "rtt_ms", "bandwidth_mbps", "age_s", "unreachable")
        a, b = entry.text("a"), entry.text("b")
        for end in ("a", "b"):
            if entry.raw(end) not in table.index:
                raise entry.error(end, "the name of a node in this file")
        if a == b:
            raise entry.error("b", f"another node than {a}")
        pair = frozenset((a, b))
        if pair in pairs:
            raise FieldError(f"{entry.path}: the link between {a} and {b} comes twice")
        pairs.add(pair)
        entry.number("bandwidth_mbps", MAX_VALUE)  # which no strategy reads of a pair
        age_s, places = entry.number("age_s", MAX_VALUE), (table.index[a], table.index[b])
        if (ms := entry.number("rtt_ms", MAX_VALUE)) is not None:
            ends.append(places)
            rtt_ms.append(ms)
            at_s.append(nan if age_s is None else -age_s)
        if entry.flag("unreachable", default=False):
            unreachable.append(places)
    return LinkTable.of_columns(
        len(table),
        np.array(ends, dtype=np.int64).reshape(-1, 2),
        np.array(rtt_ms, dtype=np.float64),
        np.array(at_s, dtype=np.float64),
        read_estimates(root, table),
        np.array(unreachable, dtype=np.int64).reshape(-1, 2),
    )


def _images(root: Fields) -> tuple[ImageTable, dict[str, float]]:
    """The images, and the sizes of their layers by digest."""
    entries = list(root.objects("images"))
    sizes_mb: dict[str, tuple[float, str]] = {}
    images = [_image(entry, sizes_mb) for entry in entries]
    for_all = [x.text("architecture", "") for x in entries]
    named = list(zip(images, for_all, strict=True))
    _check_unique(entries, [" for ".join(filter(None, (i.name, a))) for i, a in named], "name")
    _check_unique(
        entries, [" for ".join(filter(None, (full_name(i.name), a))) for i, a in named], "name"
    )
    rows = [(full_name(image.name), a, image.layers) for image, a in named]
    table = ImageTable.of(image for image, a in named if not a)
    return replace(table, by_architecture=by_architecture(rows)), {
        digest: size_mb for digest, (size_mb, _) in sizes_mb.items()
    }


def _image(entry: Fields, sizes_mb: dict[str, tuple[float, str]]) -> Image:
    """sizes_mb: digest -> size of the layer and path of its entry, for all images so far."""
    entry.only("name", "layers", "architecture")
    layers: dict[str, Layer] = {}
    for layer in entry.objects("layers"):
        layer.only("digest", "size_mb")
        digest, size_mb = layer.text("digest"), layer.number("size_mb", MAX_VALUE)
        if size_mb is None:
            raise layer.error("size_mb", "a number")
        if digest in layers:
            raise FieldError(f"{layer.at('digest')}: layer {digest!r} comes twice in one image")
        known_mb, place = sizes_mb.setdefault(digest, (size_mb, layer.path))
        if known_mb != size_mb:
            where = f"{layer.at('size_mb')}: layer {digest!r}"
            raise FieldError(f"{where} has {size_mb:g} MB here and {known_mb:g} MB in {place}")
        layers[digest] = Layer(digest, size_mb)
    return Image(entry.text("name"), tuple(layers.values()))


def _pods(root: Fields, table: NodeTable) -> list[Pod]:
    entries = list(root.objects("pods"))
    pods = [_pod(entry) for entry in entries]
    for entry, pod in zip(entries, pods, strict=True):
        if pod.node_name is not None and pod.node_name not in table.index:
            raise entry.object("spec").error("nodeName", "the name of a node in this file")
    _check_unique(entries, [pod.key for pod in pods], "metadata.name")
    problems = {}
    for entry in root.objects("problems"):
        entry.only("pod", "problem")
        problems[entry.text("pod")] = entry.text("problem")
    if not problems:
        return pods
    return [replace(pod, problem=problems.get(pod.key, pod.problem)) for pod in pods]


def _pod(entry: Fields) -> Pod:
    entry.choice("apiVersion", "v1", default="v1")
    entry.choice("kind", "Pod", default="Pod")
    metadata = entry.object("metadata")
    entry.object("spec")
    _name(metadata, "name")
    if metadata.has("namespace"):
        _name(metadata, "namespace")
    return read_pod(entry.data, entry.path)


def _cluster_objects(root: Fields) -> list[ClusterObject]:
    found: list[ClusterObject] = []
    for name, kind in RESOURCES.items():
        seen: dict[str, str] = {}
        for entry in root.objects(name):
            entry.choice("kind", kind, default=kind)
            made = READERS[kind](entry.data, entry.path)
            if made.key in seen:
                raise FieldError(f"{entry.path}: {made.key} is taken by {seen[made.key]}")
            seen[made.key] = entry.path
            found.append(made)
    return found


def _view(
    table: NodeTable, entries: Sequence[Fields], links: LinkTable, running: Sequence[Running]
) -> ClusterView:
    requested = [_amounts(entry, "requested") for entry in entries]
    stated = (entry.number("bandwidth_requested_mbps", MAX_VALUE) or 0.0 for entry in entries)
    bits_per_s = [round(each * 1e6) for each in stated]  # as a cluster counts, so that sums agree
    ports: defaultdict[int, list[HostPort]] = defaultdict(list)
    mounts: defaultdict[int, list[Pod]] = defaultdict(list)
    callers: dict[tuple[str, str], Mapping[Caller, int]] = {}
    for pod, at in running:
        count(callers, pod, +1)
        for name, amount in pod.requests.items():
            requested[at][name] = min(requested[at].get(name, 0) + amount, MAX_AMOUNT)
        bits_per_s[at] += round((pod.annotations.bandwidth_mbps or 0.0) * 1e6)
        if pod.host_ports:
            ports[at] += pod.host_ports
        if pod.claims or pod.disks:
            mounts[at].append(pod)
    return ClusterView(
        table=table,
        requested=_columns(requested, table),
        metrics=read_metrics(entries),
        links=links,
        bandwidth_requested_mbps=np.array([each / 1e6 for each in bits_per_s], dtype=np.float64),
        placed_in_run=counts(entries, "placed_in_run"),
        charged_in_run=charged(entries),
        host_ports={at: tuple(held) for at, held in ports.items()},
        assigned_pods=AssignedPods().with_pods(running),
        mounts={at: tuple(held) for at, held in mounts.items()},
        callers=callers,
    )


def _columns(requested: Sequence[dict[str, int]], table: NodeTable) -> dict[str, Ints]:
    names = {name for amounts in requested for name in amounts}
    offered = names & table.resources
    if len(offered) > _MAX_RESOURCES:  # each is a column over all nodes
        raise FieldError(
            f"nodes: {len(offered)} different resources are requested,"
            f" expected {_MAX_RESOURCES} at most"
        )
    # A request for a resource that no node has fails without its column.
    names = offered.union(sorted(names - offered)[: _MAX_RESOURCES - len(offered)])
    return {
        name: np.array([amounts.get(name, 0) for amounts in requested], dtype=np.int64)
        for name in sorted(names)
    }


def _name(entry: Fields, field: str) -> str:
    name = entry.text(field)
    if not _NAME.fullmatch(name):
        raise entry.error(field, "letters, digits, '-', '.' and '_', 253 at most")
    return name


def _check_unique(entries: Sequence[Fields], names: Iterable[str], field: str) -> None:
    first: dict[str, Fields] = {}
    for entry, name in zip(entries, names, strict=True):
        if name in first:
            raise FieldError(f"{entry.at(field)}: {name!r} is taken by {first[name].path}")
        first[name] = entry

"""Reads a ClusterSnapshot file: a cluster for offline decisions.

Unknown fields are errors, because with a mistyped field the cluster is not the one that its author
means.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from leadline_controller.framework.assigned_pods import AssignedPods, Namespaces
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cluster_objects import (
    ClusterObject,
    NamespaceLabels,
    PodSelector,
    PodSelectors,
    Storage,
)
from leadline_controller.framework.image_layers import ImageTable, full_name
from leadline_controller.framework.model import PODS, HostPort, Image, Layer, Link, Node, Pod, Taint
from leadline_controller.framework.quantity import MAX_AMOUNT
from leadline_controller.framework.view import (
    METRICS,
    ClusterView,
    Floats,
    Ints,
    LinkTable,
    NodeMetrics,
    NodeTable,
)
from leadline_controller.kubeobjects.amounts import read_amounts
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.kubeobjects.schema import Quantities
from leadline_controller.parsing.documents import read_document
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.typed import decode

API_VERSION = "leadline.dev/v1"
KIND = "ClusterSnapshot"
_DEFAULT_PODS = 110  # the kubelet's
_MAX_RESOURCES = 256  # in requests and nodes; real clusters have a dozen
_MAX_VALUE = 1e15  # far above any measurement; sums and squares stay finite
_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9._]{0,251}[a-zA-Z0-9])?")
_NODE_FIELDS = (
    *("name", "tier", "schedulable", "ready", "labels", "taints", "allocatable", "requested"),
    *("bandwidth_mbps", "bandwidth_requested_mbps", "metrics", "metric_errors"),
    *("image_layers", "pulling_mb", "registry_mbps"),
)
# Lists of Kubernetes manifests -> the kind of their entries.
_RESOURCES = {
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


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A cluster view and its pending pods, in the file's order."""

    view: ClusterView
    pods: tuple[Pod, ...]
    running: tuple[Running, ...] = ()  # the assigned pods, each with the index of its node


def load_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file, of standard input for "-". Raises FieldError with the file, the field
    and what was expected."""
    is_input = str(path) == "-"
    try:
        return read_snapshot(read_document(None if is_input else path))
    except FieldError as error:
        raise FieldError(f"{'standard input' if is_input else path}: {error}") from None


def read_snapshot(document: object) -> Snapshot:
    """The snapshot in this document. Assigned pods count on their nodes; finished pods, and pending
    ones that are being deleted, are left out. Raises FieldError."""
    root = Fields(document, "")
    root.only("apiVersion", "kind", "nodes", "links", "images", "pods", *_RESOURCES)
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
    links = LinkTable(table.index, _links(root, table))
    images = ImageTable.of(_images(root))
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
    view = replace(
        _view(table, entries, links, running),
        namespaces=Namespaces({**namespaces, **stated}),
        pod_selectors=PodSelectors(each for each in objects if isinstance(each, PodSelector)),
        storage=Storage.of(objects),
        images=images.with_running(table, running),
    )
    return Snapshot(view, tuple(pending), tuple(running))


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
        bandwidth_mbps=entry.number("bandwidth_mbps", _MAX_VALUE),
        image_layers=frozenset(entry.texts("image_layers")),
        pulling_mb=entry.number("pulling_mb", _MAX_VALUE),
        registry_mbps=entry.number("registry_mbps", _MAX_VALUE),
    )


def _amounts(entry: Fields, name: str) -> dict[str, int]:
    path = entry.at(name)
    return read_amounts(decode(entry.object(name).data, Quantities, path), path)


def _taints(entry: Fields) -> Iterator[Taint]:
    for taint in entry.objects("taints"):
        taint.only("key", "value", "effect", "timeAdded")
        effect = taint.choice("effect", "NoSchedule", "PreferNoSchedule", "NoExecute")
        yield Taint(taint.text("key"), taint.text("value", ""), effect)


def _links(root: Fields, table: NodeTable) -> list[Link]:
    found: list[Link] = []
    pairs = set()
    for entry in root.objects("links"):
        entry.only("a", "b", "rtt_ms", "bandwidth_mbps")
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
        found.append(
            Link(
                a, b, entry.number("rtt_ms", _MAX_VALUE), entry.number("bandwidth_mbps", _MAX_VALUE)
            )
        )
    return found


def _images(root: Fields) -> list[Image]:
    entries = list(root.objects("images"))
    sizes_mb: dict[str, tuple[float, str]] = {}
    images = [_image(entry, sizes_mb) for entry in entries]
    _check_unique(entries, [image.name for image in images], "name")
    _check_unique(entries, [full_name(image.name) for image in images], "name")
    return images


def _image(entry: Fields, sizes_mb: dict[str, tuple[float, str]]) -> Image:
    """sizes_mb: digest -> size of the layer and path of its entry, for all images so far."""
    entry.only("name", "layers")
    layers: dict[str, Layer] = {}
    for layer in entry.objects("layers"):
        layer.only("digest", "size_mb")
        digest, size_mb = layer.text("digest"), layer.number("size_mb", _MAX_VALUE)
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
    pods = []
    entries = list(root.objects("pods"))
    for entry in entries:
        entry.choice("apiVersion", "v1", default="v1")
        entry.choice("kind", "Pod", default="Pod")
        metadata, spec = entry.object("metadata"), entry.object("spec")
        _name(metadata, "name")
        if metadata.has("namespace"):
            _name(metadata, "namespace")
        pod = read_pod(entry.data, entry.path)
        if pod.node_name is not None and pod.node_name not in table.index:
            raise spec.error("nodeName", "the name of a node in this file")
        pods.append(pod)
    _check_unique(entries, [pod.key for pod in pods], "metadata.name")
    return pods


def _cluster_objects(root: Fields) -> list[ClusterObject]:
    found: list[ClusterObject] = []
    for name, kind in _RESOURCES.items():
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
    bandwidth = [entry.number("bandwidth_requested_mbps", _MAX_VALUE) or 0.0 for entry in entries]
    ports: defaultdict[int, list[HostPort]] = defaultdict(list)
    mounts: defaultdict[int, list[Pod]] = defaultdict(list)
    for pod, at in running:
        for name, amount in pod.requests.items():
            requested[at][name] = min(requested[at].get(name, 0) + amount, MAX_AMOUNT)
        bandwidth[at] += pod.annotations.bandwidth_mbps or 0.0
        if pod.host_ports:
            ports[at] += pod.host_ports
        if pod.claims or pod.disks:
            mounts[at].append(pod)
    return ClusterView(
        table=table,
        requested=_columns(requested, table),
        metrics=_metrics(entries),
        links=links,
        bandwidth_requested_mbps=np.array(bandwidth, dtype=np.float64),
        placed_in_run=np.zeros(len(table), dtype=np.int64),
        host_ports={at: tuple(held) for at, held in ports.items()},
        assigned_pods=AssignedPods().with_pods(running),
        mounts={at: tuple(held) for at, held in mounts.items()},
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


def _metrics(entries: Sequence[Fields]) -> NodeMetrics:
    values, errors = (_columns_of(entries, field) for field in ("metrics", "metric_errors"))
    known = any(entry.has("metric_errors") for entry in entries)
    stated = np.nan_to_num(np.stack(tuple(errors.values()), axis=1)) if known else np.zeros((0, 0))
    return replace(NodeMetrics.of(values), errors=stated)


def _columns_of(entries: Sequence[Fields], field: str) -> dict[str, Floats]:
    """Of each of METRICS the numbers in this field, NaN where there is none."""
    measured = [entry.object(field) for entry in entries]
    for metrics in measured:
        metrics.only(*METRICS)

    def column(name: str) -> Floats:
        highest = 100.0 if name.endswith("_percent") else _MAX_VALUE
        numbers = [metrics.number(name, highest) for metrics in measured]
        return np.array([np.nan if v is None else v for v in numbers], dtype=np.float64)

    return {name: column(name) for name in METRICS}


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

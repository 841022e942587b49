"""Snapshot -> ClusterSnapshot document, the inverse of the reader.

It holds what decisions read, and nothing else. Numbers are exact, so that a file decides as the
cluster did.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from leadline_controller.framework.assumed_load import PodUse, workload_of
from leadline_controller.framework.cluster_objects import (
    ClusterObject,
    NamespaceLabels,
    PodSelector,
)
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import PODS, Layer, Node, Pod
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.kubeobjects.names import HOSTNAME, Names
from leadline_controller.kubeobjects.object_writer import write_object
from leadline_controller.kubeobjects.pod_writer import resource_name, write_amounts, write_pod
from leadline_controller.kubeobjects.selectors import Manifest, without_empty
from leadline_controller.snapshot.anonymous import Collected
from leadline_controller.snapshot.snapshot import API_VERSION, KIND, RESOURCES, Snapshot
from leadline_controller.snapshot.stated import MAX_VALUE, StatedRule
from leadline_controller.snapshot.traffic import in_order, write_traffic, write_workload
from leadline_controller.telemetry.coordinates import EstimatesOf

_LISTS = {kind: field for field, kind in RESOURCES.items()}
USE = PodUse._fields


def write_snapshot(snapshot: Snapshot, *, anonymous: bool = False) -> Manifest:
    """The document. anonymous: with other names for whatever somebody has named, so that decisions
    on it are the same but for the names."""
    nodes = frozenset(snapshot.view.table.names)
    ephemeral = {
        (pod.namespace, f"{pod.name}-{use.name}"): (pod.name, use.name)
        for pod in snapshot.every_pod()
        for use in pod.claims
        if use.ephemeral
    }
    if not anonymous:
        return _document(snapshot, Names(nodes, ephemeral))
    collected = Collected(nodes, ephemeral)
    _document(snapshot, collected)
    return _document(snapshot, collected.numbered())


def _document(snapshot: Snapshot, names: Names) -> Manifest:
    view, objects = snapshot.view, defaultdict[str, list[Manifest]](list)
    for each in _objects(snapshot):
        kind, manifest = write_object(each, names)
        objects[_LISTS[kind]].append(manifest)
    for listed in objects.values():
        listed.sort(key=_by_name)
    running = [write_pod(pod, names, view.table.names[at]) for pod, at in snapshot.running]
    pending = [write_pod(pod, names) for pod in snapshot.pods]
    images, held = _images(snapshot, names)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **({"rule": _rule(snapshot.rule)} if snapshot.rule else {}),
        "nodes": list(_nodes(snapshot, held, names)),
        "links": list(_links(view, snapshot.now_s, names)),
        **without_empty(
            {
                "estimates": _estimates(view, names),
                "images": images,
                "pods": [*running, *pending],
                "problems": [
                    {"pod": _key(pod, names), "problem": names.sentence(pod.problem)}
                    for pod in (*(each for each, _ in snapshot.running), *snapshot.pods)
                    if pod.problem
                ],
                "nominations": [
                    {"pod": write_pod(pod, names), "node": names("node", view.table.names[at])}
                    for pod, at in view.nominated
                ],
                "reservations": [
                    {
                        "pod": write_pod(each.pod, names),
                        "node": names("node", each.node),
                        **({"source": names("node", each.source)} if each.source else {}),
                        "why": names.sentence(each.why),
                    }
                    for each in snapshot.reservations
                ],
                "expected_use": list(_expected_use(snapshot, names)),
                "starts": _starts(snapshot, names),
                "traffic": write_traffic(view, snapshot.every_pod(), names),
                **objects,
                "unreadable": [
                    {"kind": each.kind, "why": names.sentence(each.why)}
                    for each in view.storage.unreadable
                ],
            }
        ),
    }


def _by_name(manifest: Manifest) -> tuple[str, str]:
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _key(pod: Pod, names: Names) -> str:
    return f"{names('namespace', pod.namespace)}/{names('pod', pod.name)}"


def _rule(rule: StatedRule) -> Manifest:
    return {
        "strategy": rule.strategy,
        "options": dict(rule.options),
        "preferences": rule.preferences,
        "letter": rule.letter,
        "assumed_load": rule.assumed_load,
        **({} if rule.seed is None else {"seed": rule.seed}),
    }


def _objects(snapshot: Snapshot) -> Iterator[ClusterObject]:
    """Those that a decision about these pods can read: of the controllers that own pods, only
    theirs."""
    view, storage = snapshot.view, snapshot.view.storage
    yield from (NamespaceLabels(*each) for each in view.namespaces.labels.items())
    yield from storage.claims.values()
    yield from storage.volumes.values()
    yield from storage.classes.values()
    yield from storage.csi_nodes.values()
    yield from storage.drivers.values()
    yield from storage.capacities
    yield from storage.attachments
    pods = list(snapshot.every_pod())
    spaces = {pod.namespace for pod in pods}
    owners = {(pod.owner.kind, pod.namespace, pod.owner.name) for pod in pods if pod.owner}
    for each in view.pod_selectors:
        if (each.kind == "Service" and each.namespace in spaces) or _owner(each) in owners:
            yield each


def _owner(made: PodSelector) -> tuple[str, str, str]:
    return made.kind, made.namespace, made.name


def _nodes(snapshot: Snapshot, held: Mapping[int, list[str]], names: Names) -> Iterator[Manifest]:
    """held: by index of the node, the layers that it has."""
    view = snapshot.view
    columns = _Columns(snapshot)
    peers = {peer.name for pod in snapshot.every_pod() for peer in pod.annotations.peers}
    for at, node in enumerate(view.nodes):
        labels = dict(node.labels)
        if labels.get(HOSTNAME) == node.name:
            del labels[HOSTNAME]  # the reader adds it
        yield {
            "name": names("node", node.name),
            **without_empty(
                {
                    "tier": node.tier if node.tier in ("edge", "cloud") else None,
                    "labels": names.labels(labels),
                    "taints": [
                        {
                            "key": names.key(each.key),
                            "value": names.value(each.key, each.value),
                            "effect": each.effect,
                        }
                        for each in node.taints
                    ],
                    "features": sorted(node.features),
                    # Those by which pods name it as their peer, and no others.
                    "addresses": [
                        names("address", each) for each in node.addresses if each in peers
                    ],
                    "image_layers": [names("layer", each) for each in held.get(at, ())],
                }
            ),
            **({"schedulable": False} if node.unschedulable else {}),
            **({} if node.ready else {"ready": False}),
            "allocatable": write_amounts({PODS: 0, **node.allocatable}, names),
            **_stated(node),
            **columns.of(at, names),
        }


def _stated(node: Node) -> Manifest:
    return {
        name: value
        for name in ("bandwidth_mbps", "pulling_mb", "registry_mbps")
        if (value := getattr(node, name)) is not None
    }


class _Columns:
    """The columns of a view, node by node."""

    def __init__(self, snapshot: Snapshot) -> None:
        view = self._view = snapshot.view
        self._now_s = snapshot.now_s
        # What no pod of the snapshot explains.
        self._requested = {name: column.copy() for name, column in view.requested.items()}
        bits_per_s = np.rint(view.bandwidth_requested_mbps * 1e6)
        for pod, at in snapshot.running:
            for name, amount in pod.requests.items():
                if name in self._requested:
                    self._requested[name][at] -= amount
            bits_per_s[at] -= round((pod.annotations.bandwidth_mbps or 0.0) * 1e6)
        self._requested_mbps = np.maximum(bits_per_s, 0.0) / 1e6

    def of(self, at: int, names: Names) -> Manifest:
        """The fields of the node with this index."""
        view, measured, images = self._view, self._view.measured, self._view.images
        known = {name: float(getattr(measured, name)[at]) for name in METRICS}
        read = {name: float(getattr(view.metrics, name)[at]) for name in METRICS}
        left = {name: int(column[at]) for name, column in self._requested.items()}
        charged = {name: int(column[at]) for name, column in view.charged_in_run.items()}
        found: Manifest = {
            "requested": write_amounts({n: left[n] for n in left if left[n] > 0}, names),
            "bandwidth_requested_mbps": float(self._requested_mbps[at]) or None,
            "metrics": _known(known),
            "metrics_with_assumed": _known(
                {name: value for name, value in read.items() if value != known[name]}
            ),
            "recently_placed": int(view.recently_placed_pods()[at]) or None,
            "placed_in_run": int(view.placed_in_run[at]) or None,
            "charged_in_run": {resource_name(n, names): charged[n] for n in charged if charged[n]},
            "bandwidth_host_limited": bool(view.measured.bandwidth_host_limited[at])
            if measured.bandwidth_host_limited.size
            else None,
            "throttling": _other(measured.throttling, at, 1.0),
            "throttling_error": _other(measured.throttling_error, at, 0.0),
            "absence_ms": _other(measured.absence_ms, at, 0.0),
            "pulls": _known(
                {
                    "mbps": _at(images.pull_mbps, at),
                    "overhead_s": _at(images.overhead_s, at),
                    "delay_s": _at(images.delay_s, at),
                }
            ),
        }
        if view.assumed is not None:
            found["rates_unknown"] = int(view.assumed.rates_unknown[at]) or None
        if measured.measured_at_s.size:
            ages_s = dict(zip(METRICS, self._now_s - measured.measured_at_s[at], strict=True))
            found["metric_ages_s"] = _known(
                {n: max(float(age_s), 0.0) for n, age_s in ages_s.items() if n in found["metrics"]}
            )
        if measured.bandwidth_most_mbps.size:
            most_mbps = float(measured.bandwidth_most_mbps[at])
            if most_mbps != known["bandwidth_mbps"]:
                found |= {"bandwidth_is_bound": True, **_known({"bandwidth_most_mbps": most_mbps})}
        made = without_empty(found)
        if measured.errors.size:  # also where all are unknown: it says that comparisons know them
            errors = dict(zip(METRICS, measured.errors[at].tolist(), strict=True))
            # Of a link without any bound it is as large as a number can be.
            made["metric_errors"] = {n: min(e, MAX_VALUE) for n, e in errors.items() if e}
        made["download_queue"] = self._queue(at, names)
        return made

    def _queue(self, at: int, names: Names) -> Manifest:
        images = self._view.images
        queued = sorted(digest for digest, nodes in images.queued.items() if at in nodes)
        return {
            **without_empty({"layers": [names("layer", each) for each in queued]}),
            **({"mb": images.queue_mb[at]} if at in images.queue_mb else {}),
            **({"ready_s": images.queue_s[at]} if at in images.queue_s else {}),
        }


def _at(column: Floats, at: int) -> float:
    return float(column[at]) if at < column.size else float("nan")


def _other(column: Floats, at: int, usual: float) -> float | None:
    """The node's value; None if it is the usual one, as where the column is empty."""
    value = float(column[at]) if column.size else usual
    return None if value == usual else value


def _known(values: Mapping[str, float]) -> dict[str, float]:
    """Those that are finite."""
    return {name: value for name, value in values.items() if np.isfinite(value)}


def _links(view: ClusterView, now_s: float, names: Names) -> Iterator[Manifest]:
    called = [names("node", name) for name in view.table.names]
    ends, rtt_ms, at_s = view.links.measured()
    lost = {frozenset(pair): pair for pair in map(tuple, view.links.unreachable.tolist())}
    rows = zip(ends.tolist(), rtt_ms.tolist(), (now_s - at_s).tolist(), strict=True)
    for (a, b), ms, age_s in rows:
        is_lost = lost.pop(frozenset((a, b)), None) is not None
        yield {
            **{"a": called[a], "b": called[b], "rtt_ms": ms},
            **_known({"age_s": max(age_s, 0.0)}),
            **({"unreachable": True} if is_lost else {}),
        }
    for a, b in lost.values():
        yield {"a": called[a], "b": called[b], "unreachable": True}


def _estimates(view: ClusterView, names: Names) -> Manifest | None:
    """The model instead of its estimates, of which there are n^2: coordinates, and the measured
    pairs whose deviations from them correct the estimates of their neighbours."""
    if not isinstance(view.links.estimates, EstimatesOf):
        return None
    model = view.links.estimates.estimates
    heights_ms = model.coordinates.heights.tolist()
    return {
        "nodes": [names("node", name) for name in model.names],
        "positions_ms": model.coordinates.positions.tolist(),
        "heights_ms": [None if each != each else each for each in heights_ms],
        "pairs": [
            [a, b, ms]
            for (a, b), ms in zip(model.ends.tolist(), model.rtt_ms.tolist(), strict=True)
        ],
    }


def _images(snapshot: Snapshot, names: Names) -> tuple[list[Manifest], dict[int, list[str]]]:
    """The layers of the pods' images, and by index of the node those that it has."""
    view, made = snapshot.view, list[Manifest]()
    images, table = view.images, view.table
    sizes_mb: dict[str, float] = {}
    used = {full_name(each) for pod in snapshot.every_pod() for each in pod.init_images}
    used |= {full_name(each) for pod in snapshot.every_pod() for each in pod.images}
    for name in sorted(used):
        variants = dict(images.by_architecture.get(name, {}))
        rest = images.catalogue.get(name, table.images.get(name))
        if rest is not None:
            variants.setdefault("", rest)
        for architecture, layers in variants.items():
            # Nodes may state different sizes of one image.
            sizes = {x.digest: sizes_mb.setdefault(x.digest, x.size_mb) for x in layers}
            made.append(
                {
                    "name": names("image", name),
                    **({"architecture": architecture} if architecture else {}),
                    "layers": [
                        {"digest": names("layer", digest), "size_mb": size_mb}
                        for digest, size_mb in sizes.items()
                    ],
                }
            )
    held: dict[int, list[str]] = {}
    for digest in sorted(sizes_mb):
        for at in np.flatnonzero(images.cached(table, Layer(digest, sizes_mb[digest]))).tolist():
            held.setdefault(at, []).append(digest)
    return made, held


def _expected_use(snapshot: Snapshot, names: Names) -> Iterator[Manifest]:
    """What the workloads of these pods are expected to use."""
    assumed = snapshot.view.assumed
    if assumed is None:
        return
    expected = assumed.expected
    known = expected.usage.keys() | expected.learned.keys() | expected.lives.keys()
    known |= expected.starts.usual_s.keys()
    if not known:
        return
    workloads = {workload_of(pod) for pod in snapshot.every_pod()} & known
    for workload in sorted(workloads, key=in_order):
        found = write_workload(workload, names)
        if (usage := expected.usage.get(workload)) is not None:
            found["measured"] = _known(dict(zip(USE, usage, strict=False)))
        if (learned := expected.learned.get(workload)) is not None:
            found["learned"] = _known(learned._asdict())
        if (lives := expected.lives.get(workload)) is not None:
            found["lives"] = lives._asdict()
        if (usual_s := expected.starts.usual_s.get(workload)) is not None:
            found["start_s"] = usual_s
        yield found


def _starts(snapshot: Snapshot, names: Names) -> Manifest | None:
    """How classes of boards differ in starts."""
    assumed = snapshot.view.assumed
    if assumed is None or not assumed.expected.starts.others_s:
        return None
    starts = assumed.expected.starts
    # Classes of a size keep their name.
    called = {
        name: name if "/" in name else names.value(CLASS_LABEL, name) for name in starts.factors
    }
    return {
        "others_s": starts.others_s,
        "classes": [{"class": called[n], "factor": each} for n, each in starts.factors.items()],
    }

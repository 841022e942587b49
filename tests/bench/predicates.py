"""The time of the filters on clusters of 1,000 and 5,000 nodes that run 10,000 pods.

Each figure is the median for one pod on a new view of the controller's state, as before every
decision. Half of the running pods are replicas, in groups of twenty. The other half have labels of
their own, like a StatefulSet's pods, and an anti-affinity to their group.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import ClusterObject
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

SIZES = (1000, 5000)
RUNNING_PODS = 10_000
ROUNDS = 30
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_uids = count()


def _pod(app: str, **spec: Any) -> Pod:
    labels = {"app": app, **spec.pop("labels", {})}
    container = {"name": "c", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    metadata = {"name": f"p{next(_uids)}", "uid": f"u{next(_uids)}", "labels": labels}
    return read_pod({"metadata": metadata, "spec": {"containers": [container], **spec}})


def _term(app: str, key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def _requiring(kind: str, app: str, key: str) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}
    return {"affinity": {kind: required}}


def _spreading(app: str, *keys: str) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{**_term(app, key), "maxSkew": 1000} for key in keys]}


def _claiming(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


def _storage(size: int) -> list[ClusterObject]:
    """Two storage classes that wait for the first consumer. One provisions volumes, the other has
    one volume on each node."""
    later = {"volumeBindingMode": "WaitForFirstConsumer"}
    objects: list[tuple[str, dict[str, Any]]] = []
    for name, provisioner in (
        ("made", "rancher.io/local-path"),
        ("local", "kubernetes.io/no-provisioner"),
    ):
        storage_class = {"metadata": {"name": name}, "provisioner": provisioner, **later}
        claim = {"metadata": {"name": name}, "spec": {"storageClassName": name}}
        objects += [("StorageClass", storage_class), ("PersistentVolumeClaim", claim)]
    for i in range(size):
        on_the_node = {"key": HOST, "operator": "In", "values": [f"node-{i}"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [on_the_node]}]}
        spec = {"storageClassName": "local", "nodeAffinity": {"required": terms}, "local": {}}
        volume = {"metadata": {"name": f"v{i}"}, "spec": spec, "status": {"phase": "Available"}}
        objects.append(("PersistentVolume", volume))
    return [READERS[kind](manifest, kind) for kind, manifest in objects]


def cluster(size: int) -> ClusterState:
    """The controller's state of a cluster with all its pods."""
    nodes = tuple(
        read_node(
            {
                "metadata": {
                    "name": f"node-{i}",
                    "labels": {HOST: f"node-{i}", ZONE: f"zone-{i % 8}"},
                },
                "status": {
                    "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        for i in range(size)
    )
    pods = []
    for i in range(RUNNING_PODS):
        node = {"nodeName": f"node-{i * 7 % size}"}
        if i % 2:
            pods.append(_pod(f"app-{i // 40}", **node))
        else:
            own = {"labels": {"statefulset.kubernetes.io/pod-name": f"s-{i}"}}
            anti_affinity = _requiring("podAntiAffinity", f"set-{i // 40}", HOST)
            pods.append(_pod(f"set-{i // 40}", **node, **own, **anti_affinity))
    state = ClusterState()
    state.apply(Relisted(nodes, tuple(pods), tuple(_storage(size))))
    return state


def kinds() -> Mapping[str, Sequence[Pod]]:
    """ROUNDS pending pods for each kind of demand."""
    specs: Mapping[str, Callable[[int], dict[str, Any]]] = {
        "nothing special": lambda _: {},
        "anti-affinity by host": lambda _: _requiring("podAntiAffinity", "app-3", HOST),
        "affinity by zone": lambda _: _requiring("podAffinity", "app-3", ZONE),
        "spread by zone and host": lambda _: _spreading("app-3", ZONE, HOST),
        "spread, never asked before": lambda i: _spreading(f"app-{i}", ZONE),
        "claim, volume to be made": lambda _: _claiming("made"),
        "claim, a volume a node": lambda _: _claiming("local"),
    }
    return {what: [_pod("app-3", **spec(i)) for i in range(ROUNDS)] for what, spec in specs.items()}


def rows() -> list[tuple[str, list[float]]]:
    """The name of each measurement, and its milliseconds at each of SIZES."""
    found: dict[str, list[float]] = {}
    telemetry = TelemetryState(TimesToLive())
    for size in SIZES:
        state = cluster(size)
        for what, pending in kinds().items():
            view_s, filter_s = [], []
            for pod in pending:
                changed = _pod("passer-by", nodeName=f"node-{next(_uids) % size}")
                state.apply(PodChanged(replace(changed, uid="passer-by")))
                start = time.perf_counter()
                view = state.view(telemetry, 0.0)
                view_s.append(time.perf_counter() - start)
                filter_s.append(_filter_s(view, pod))
            if what == "nothing special":
                found.setdefault("making the view", []).append(median(view_s) * 1000)
            found.setdefault(what, []).append(median(filter_s) * 1000)
    return list(found.items())


def _filter_s(view: ClusterView, pod: Pod) -> float:
    start = time.perf_counter()
    for test in FILTERS.values():
        test(view, pod)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    print(f"all filters for one pod with {RUNNING_PODS:,} running pods, median ms")
    print(f"{'':28}" + "".join(f"{size:>10,}" for size in SIZES) + "   nodes")
    for what, times in rows():
        print(f"{what:28}" + "".join(f"{each:10.3f}" for each in times))


if __name__ == "__main__":
    main()

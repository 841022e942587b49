"""How long the filters take beside 10,000 residents, over clusters of 1,000 and 5,000 nodes.

Each figure is the median for one pod over a view that the controller's state has just made, as
before every decision. Half of the residents are replicas, twenty alike; the other half have labels
of their own, as a StatefulSet's pods have, and keep away from their like.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.framework.resources import Resource
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.kubeobjects.resources import READERS
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

SIZES = (1000, 5000)
RESIDENTS = 10_000
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


def _storage(size: int) -> list[Resource]:
    """Two classes of the kind that waits: one makes volumes, of the other each node has one."""
    later = {"volumeBindingMode": "WaitForFirstConsumer"}
    objects: list[tuple[str, dict[str, Any]]] = []
    for name, provisioner in (
        ("made", "rancher.io/local-path"),
        ("local", "kubernetes.io/no-provisioner"),
    ):
        made = {"metadata": {"name": name}, "provisioner": provisioner, **later}
        claim = {"metadata": {"name": name}, "spec": {"storageClassName": name}}
        objects += [("StorageClass", made), ("PersistentVolumeClaim", claim)]
    for i in range(size):
        there = {"key": HOST, "operator": "In", "values": [f"node-{i}"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [there]}]}
        spec = {"storageClassName": "local", "nodeAffinity": {"required": terms}, "local": {}}
        volume = {"metadata": {"name": f"v{i}"}, "spec": spec, "status": {"phase": "Available"}}
        objects.append(("PersistentVolume", volume))
    return [READERS[kind](manifest, kind) for kind, manifest in objects]


def cluster(size: int) -> ClusterState:
    """The controller's state of a full cluster."""
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
    for i in range(RESIDENTS):
        where = {"nodeName": f"node-{i * 7 % size}"}
        if i % 2:
            pods.append(_pod(f"app-{i // 40}", **where))
        else:
            own = {"labels": {"statefulset.kubernetes.io/pod-name": f"s-{i}"}}
            shy = _requiring("podAntiAffinity", f"set-{i // 40}", HOST)
            pods.append(_pod(f"set-{i // 40}", **where, **own, **shy))
    state = ClusterState()
    state.apply(Relisted(nodes, tuple(pods), tuple(_storage(size))))
    return state


def kinds() -> Mapping[str, Sequence[Pod]]:
    """Pods to be placed, by what they demand: as many of each as there are rounds."""
    made: Mapping[str, Callable[[int], dict[str, Any]]] = {
        "nothing special": lambda _: {},
        "anti-affinity by host": lambda _: _requiring("podAntiAffinity", "app-3", HOST),
        "affinity by zone": lambda _: _requiring("podAffinity", "app-3", ZONE),
        "spread by zone and host": lambda _: _spreading("app-3", ZONE, HOST),
        "spread, never asked before": lambda i: _spreading(f"app-{i}", ZONE),
        "claim, volume to be made": lambda _: _claiming("made"),
        "claim, a volume a node": lambda _: _claiming("local"),
    }
    return {what: [_pod("app-3", **spec(i)) for i in range(ROUNDS)] for what, spec in made.items()}


def rows() -> list[tuple[str, list[float]]]:
    """What is measured, and its milliseconds at each of SIZES."""
    found: dict[str, list[float]] = {}
    telemetry = TelemetryState(TimesToLive())
    for size in SIZES:
        state = cluster(size)
        for what, wanted in kinds().items():
            views, filters = [], []
            for one in wanted:
                changed = _pod("passer-by", nodeName=f"node-{next(_uids) % size}")
                state.apply(PodChanged(replace(changed, uid="passer-by")))
                start = time.perf_counter()
                view = state.view(telemetry, 0.0)
                views.append(time.perf_counter() - start)
                filters.append(_filtered(view, one))
            found.setdefault("making the view", []).extend(
                [median(views) * 1000][: what == "nothing special"]
            )
            found.setdefault(what, []).append(median(filters) * 1000)
    return list(found.items())


def _filtered(view: ClusterView, pod: Pod) -> float:
    start = time.perf_counter()
    for test in FILTERS.values():
        test(view, pod)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    print(f"all filters for one pod beside {RESIDENTS:,} residents, median ms")
    print(f"{'':28}" + "".join(f"{size:>10,}" for size in SIZES) + "   nodes")
    for what, times in rows():
        print(f"{what:28}" + "".join(f"{each:10.3f}" for each in times))


if __name__ == "__main__":
    main()

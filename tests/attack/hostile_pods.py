"""Pods of 1.5 MB, the API server's limit: the time that one of them takes in the event loop."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.ports import PodChanged
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.bench.predicates import HOST, cluster
from tests.support.check import Check

POD_BYTES = 1_500_000
NODES = (100, 1_000)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_STALL_S = 0.25
_TRIES = 3
Manifest = dict[str, Any]


def _pod(**spec: Any) -> Manifest:
    metadata = {"name": "large", "namespace": "default", "uid": "large", "labels": {"app": "app-3"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


def _wants(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator, "values": list(values)}


def _neighbour(number: int, operator: str = "NotIn", key: str = HOST) -> Manifest:
    wanted = _wants("app", operator, f"none-{number}")
    return {"topologyKey": key, "labelSelector": {"matchExpressions": [wanted]}}


def _near(terms: list[Manifest]) -> Manifest:
    return _pod(affinity={"podAffinity": {_REQUIRED: terms}})


def _away(terms: list[Manifest]) -> Manifest:
    return _pod(affinity={"podAntiAffinity": {_REQUIRED: terms}})


def _nodes(terms: list[list[Manifest]]) -> Manifest:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return _pod(affinity={"nodeAffinity": {_REQUIRED: wanted}})


def _spread(count: int) -> Manifest:
    rule = {"maxSkew": 1000, "whenUnsatisfiable": "DoNotSchedule"}
    return _pod(topologySpreadConstraints=[{**rule, **_neighbour(i, "In")} for i in range(count)])


def _spread_among(count: int) -> Manifest:
    nodes = _nodes([[_wants(HOST, "NotIn", f"n{i}")] for i in range(count // 2)])
    return _pod(**nodes["spec"] | _spread(count // 2)["spec"])


def _claims(count: int, name: str) -> Manifest:
    mounts = ({"persistentVolumeClaim": {"claimName": name}} for _ in range(count))
    return _pod(volumes=[{"name": f"v{i}", **mount} for i, mount in enumerate(mounts)])


def _containers(count: int) -> Manifest:
    return _pod(
        containers=[
            {"name": f"c{i}", "resources": {"requests": {f"e.x/r{i}": "1"}}} for i in range(count)
        ]
    )


def _sidecars(count: int) -> Manifest:
    made = _containers(count)["spec"]["containers"]
    return _pod(initContainers=[{**each, "restartPolicy": "Always"} for each in made])


# Pods that have very many of one thing, by its name.
KINDS: dict[str, Callable[[int], Manifest]] = {
    "anti-affinity terms": lambda n: _away([_neighbour(i, "In") for i in range(n)]),
    "anti-affinity over other labels": lambda n: _away(
        [_neighbour(i, "In", f"k{i}") for i in range(n)]
    ),
    "anti-affinity, the same term": lambda n: _away([_neighbour(0, "In")] * n),
    "affinity terms": lambda n: _near([_neighbour(i) for i in range(n)]),
    "affinity terms with namespace selectors": lambda n: _near(
        [{**_neighbour(i), "namespaceSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(n)]
    ),
    "expressions in one term": lambda n: _away(
        [
            {
                "topologyKey": HOST,
                "labelSelector": {
                    "matchExpressions": [_wants("app", "NotIn", f"n{i}") for i in range(n)]
                },
            }
        ]
    ),
    "values in one expression": lambda n: _away(
        [
            {
                "topologyKey": HOST,
                "labelSelector": {
                    "matchExpressions": [_wants("app", "NotIn", *map(str, range(n)))]
                },
            }
        ]
    ),
    "preferred affinity and anti-affinity terms": lambda n: _pod(
        affinity={
            kind: {
                _PREFERRED: [
                    {"weight": 1, "podAffinityTerm": _neighbour(i, "In")} for i in range(n // 2 + 1)
                ]
            }
            for kind in ("podAffinity", "podAntiAffinity")
        }
    ),
    "preferred node affinity terms": lambda n: _pod(
        affinity={
            "nodeAffinity": {
                _PREFERRED: [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [_wants(HOST, "NotIn", f"n{i}")]},
                    }
                    for i in range(n)
                ]
            }
        }
    ),
    "spread constraints": _spread,
    "spread constraints and node affinity": _spread_among,
    "node affinity terms": lambda n: _nodes([[_wants(HOST, "NotIn", f"n{i}")] for i in range(n)]),
    "node affinity, Gt": lambda n: _nodes([[_wants(HOST, "Gt", str(i))] for i in range(n)]),
    "node affinity expressions": lambda n: _nodes(
        [[_wants(f"key{i}", "NotIn", "x") for i in range(n)]]
    ),
    "node affinity values": lambda n: _nodes([[_wants(HOST, "NotIn", *map(str, range(n)))]]),
    "nodeSelector labels": lambda n: _pod(nodeSelector={f"key{i}": "v" for i in range(n)}),
    "tolerations": lambda n: _pod(
        tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(n)]
    ),
    "host ports": lambda n: _pod(
        containers=[{"name": "c", "ports": [{"hostPort": i % 65_000 + 1} for i in range(n)]}]
    ),
    "claims of a volume to be made": lambda n: _claims(n, "made"),
    "claims of a volume a node": lambda n: _claims(n, "local"),
    "disks": lambda n: _pod(
        volumes=[{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in range(n)]
    ),
    "labels": lambda n: {
        **_pod(),
        "metadata": {"name": "large", "uid": "large"}
        | {"labels": {f"l{i}": "v" for i in range(n)}},
    },
    "resources": lambda n: _pod(
        containers=[{"name": "c", "resources": {"requests": {f"e.x/r{i}": "1" for i in range(n)}}}]
    ),
    "containers with a resource each": _containers,
    "sidecars with a resource each": _sidecars,
}


def manifest(kind: str, size: int = POD_BYTES) -> Manifest:
    """A pod of this kind, about `size` bytes of JSON."""
    few, more = (len(json.dumps(KINDS[kind](count))) for count in (100, 200))
    return KINDS[kind](max(1, 100 * (size - few) // max(1, more - few) + 100))


def largest(kind: str, most: int) -> Manifest:
    """The pod of this kind that has the most that is still evaluated, `most` at the most."""

    def is_evaluated(size: int) -> bool:
        return read_pod(KINDS[kind](size)).problem is None

    least = 1
    while 2 * least <= most and is_evaluated(2 * least):
        least *= 2
    most = min(most, 2 * least - 1)
    while least < most:
        middle = (least + most + 1) // 2
        if is_evaluated(middle):
            least = middle
        else:
            most = middle - 1
    return KINDS[kind](least)


def pod_checks(
    size: int = POD_BYTES, nodes: tuple[int, ...] = NODES, most: int = 30_000
) -> Iterator[Check]:
    """Each kind of pod, once as large as the API server takes it and once as large as it is still
    evaluated, read and tried a few times beside 10,000 other pods. CPU time is what counts: as
    long as that takes, nothing else happens in the event loop."""
    for count in nodes:
        state, telemetry = cluster(count), TelemetryState(TimesToLive())
        state.view(telemetry, 0.0)
        for kind in KINDS:
            for what, made in (
                ("", manifest(kind, size)),
                ("within the limit, ", largest(kind, most)),
            ):
                text = json.dumps(made)
                found = _tried(state, telemetry, text)
                yield Check(
                    f"{count:,} nodes, {what}a pod of {len(text) / 1e6:.2f} MB of {kind}",
                    f"{_STALL_S} s at most",
                    str(found),
                    max(found.read_s, *found.tries_s) < _STALL_S,
                )


@dataclass(frozen=True, slots=True)
class Tried:
    """The CPU seconds that a pod took, and its outcome."""

    read_s: float
    tries_s: list[float]
    why: str

    def __str__(self) -> str:
        tries = ", ".join(f"{each * 1000:.0f}" for each in self.tries_s)
        return f"read in {self.read_s * 1000:.0f} ms, tried in {tries} ms: {self.why[:70]}"


def _tried(state: ClusterState, telemetry: TelemetryState, text: str) -> Tried:
    manifest = json.loads(text)
    start_s = time.thread_time()
    pod = read_pod(manifest)
    read_s = time.thread_time() - start_s
    log, tries_s = DecisionLog(), []
    for _ in range(_TRIES):
        start_s = time.thread_time()
        state.apply(PodChanged(pod))
        view = state.view(telemetry, 0.0)
        decision = decide(view, pod, Rule(STRATEGIES["dacs"](), FILTERS))
        log.add(decision, 0.0, PENDING, {})
        tries_s.append(time.thread_time() - start_s)
    return Tried(read_s, tries_s, decision.why)

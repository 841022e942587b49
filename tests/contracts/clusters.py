"""Clusters and pods of every kind, for the contracts that each filter and strategy keeps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import signature
from random import Random
from typing import Any

import numpy as np
from leadline_controller.framework.cluster_objects import ClusterObject, PodSelector
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    ClaimUse,
    HostPort,
    Image,
    Layer,
    Link,
    Node,
    Pod,
    Taint,
)
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView, NodeTable

from tests.controller.builders import GIB, node, pod, view
from tests.controller.storing import claim, storage_class, volume
from tests.support.examples import examples

GPU = "example.com/gpu"
TAINTS = (Taint("dedicated", "db", "NoSchedule"), Taint("soft", "", "PreferNoSchedule"))
PORTS = (HostPort("0.0.0.0", "TCP", 80), HostPort("10.0.0.1", "UDP", 53))
PEERS = ("node/n0<80ms", "node/n0=5@3rps, web=2", "web=1@20rps<60ms, gone=3")
NUMBERS = ("0", "0.5", "3", "1e12")

STORAGE: Sequence[ClusterObject] = (
    storage_class(
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]
    ),
    claim("w"),
    claim("c", volume="v", accessModes=["ReadWriteOncePod"]),
    volume("v", labels={"topology.kubernetes.io/zone": "a"}),
    PodSelector("Service", "default", "web", (Requirement("app", "In", ("web",)),)),
)

LAYERS = (Layer("base", 400.0), Layer("web", 90.0))
IMAGES = ImageTable.of([Image("web:1", LAYERS)])

# What holds for every strategy, or every filter, is tried on the same few clusters for each: there
# are some twenty of each, a view never changes, and a seed has no edges that more draws would find.
CASES = 20


def _node(random: Random, name: str) -> Node:
    return node(
        name,
        cores=random.choice([0, 1, 4, 8]),
        gib=random.choice([0, 1, 8, 16]),
        pods=random.choice([0, 110, 110, 110]),
        extended=random.choice([{}, {GPU: 1}]),
        labels={"zone": random.choice("ab"), CLASS_LABEL: f"pi{4 + int(name[1:]) % 2}"},
        taints=random.choice([(), (), TAINTS[:1], TAINTS]),
        unschedulable=random.random() < 0.2,
        ready=random.random() < 0.8,
        bandwidth_mbps=random.choice([None, 0.0, 10.0, 100.0]),
        image_layers=frozenset(random.choice([(), ("base",), ("base", "web")])),
        pulling_mb=random.choice([None, 0.0, 80.0]),
        registry_mbps=random.choice([None, None, 0.0, 50.0]),
    )


def _measured(random: Random) -> float:
    return random.choice([math.nan, 0.0, 50.0, random.uniform(0, 100)])


def _cluster(random: Random, count: int) -> ClusterView:
    pairs = [(a, b) for a in range(count) for b in range(a) if random.random() < 0.6]

    def column(values: Sequence[Any]) -> list[Any]:
        return [random.choice(values) for _ in range(count)]

    made = view(
        [_node(random, f"n{i}") for i in range(count)],
        requested={
            CPU: column([0, 0, 500, 5000]),
            MEMORY: column([0, 0, GIB, 9 * GIB]),
            PODS: column([0, 1, 2]),
        },
        metrics={name: [_measured(random) for _ in range(count)] for name in METRICS},
        links=[
            Link(f"n{a}", f"n{b}", random.choice([None, 0.0, random.uniform(0, 500)]))
            for a, b in pairs
        ],
        bandwidth_requested_mbps=column([0.0, 5.0, 50.0]),
        placed=column([0, 1, 2, 3]),
        ports={i: PORTS for i in range(count) if random.random() < 0.4},
        assigned_pods=[_resident(random, f"r{i}", count) for i in range(random.randrange(4))],
        objects=STORAGE,
    )
    queued = {layer.digest: frozenset({random.randrange(count)}) for layer in LAYERS}
    images = replace(IMAGES, queued=queued, queue_mb={random.randrange(count): 30.0})
    return replace(made, images=images)


def _resident(random: Random, name: str, nodes: int) -> Pod:
    made = pod(name, nodeName=f"n{random.randrange(nodes)}", **_social(random, shy=0.5))
    return replace(made, claims=random.choice([(), (ClaimUse("c"),)]))


def _social(random: Random, shy: float) -> dict[str, Any]:
    """Labels, and now and then demands on pods with such labels."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    kind = random.choice(["podAffinity", "podAntiAffinity"])
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "labels": {"app": random.choice(["web", "db"])},
        "affinity": affinity if random.random() < shy else {},
        "topologySpreadConstraints": [{**term, "maxSkew": 1}] if random.random() < shy else [],
    }


def _pod(random: Random, users: int) -> Pod:
    annotations = {
        "data-mb": random.choice(NUMBERS),
        "bandwidth-mbps": random.choice(NUMBERS),
        "user-node": f"n{random.randrange(users)}",
        "peers": random.choice(PEERS),
        "profile-ms": random.choice(['{"n0": 100}', '{"n1": 0, "x": 50}', "{}"]),
    }
    requests = {
        "cpu": random.choice(["0", "250m", "2"]),
        "memory": random.choice(["100Mi", "2Gi"]),
        GPU: "1",
    }
    made = pod(
        annotations={key: text for key, text in annotations.items() if random.random() < 0.5},
        requests={name: text for name, text in requests.items() if random.random() < 0.3},
        limits=random.choice([None, {"cpu": "3"}]),
        tolerations=random.choice([[], [{"operator": "Exists"}]]),
        nodeSelector=random.choice([{}, {"zone": "a"}]),
        **_social(random, shy=0.2),
    )
    claims = random.choice([(), (), (ClaimUse("c"),), (ClaimUse("w"),), (ClaimUse("none"),)])
    images = random.choice([(), ("web:1",), ("web:1", "strange:1"), ("strange:1",)])
    ports = random.choice([(), (), PORTS[:1], PORTS])
    return replace(made, host_ports=ports, claims=claims, images=images)


@dataclass(frozen=True)
class Case:
    """A cluster and a pod. Its user, if any, is on n0, or on n1 where there are two nodes."""

    seed: int
    cluster: ClusterView = field(repr=False)
    wanted: Pod = field(repr=False)


@cache
def case(seed: int, least: int = 1, most: int = 6) -> Case:
    """A case with between `least` and `most` nodes."""
    random = Random(seed)
    count = random.randint(least, most)
    return Case(seed, _cluster(random, count), _pod(random, users=min(count, 2)))


def on_cases(least: int = 1, most: int = 6) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test on each case. A failure names the case's seed."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        given = signature(test)

        @wraps(test)
        def on_each(**parameters: Any) -> None:
            for seed in range(examples(CASES).max_examples):
                try:
                    test(**parameters, case=case(seed, least, most))
                except Exception as error:
                    error.add_note(f"in the case of seed {seed}, {least} to {most} nodes")
                    raise

        others = [each for name, each in given.parameters.items() if name != "case"]
        vars(on_each)["__signature__"] = given.replace(parameters=others)
        return on_each

    return decorate


def fingerprint(cluster: ClusterView) -> list[Any]:
    """Everything in the view, as plain values: equal fingerprints, equal views."""
    table, links = cluster.table, cluster.links
    everyone = np.ones(len(cluster), dtype=np.bool_)
    columns = {
        **{f"requested {name}": column for name, column in cluster.requested.items()},
        **{name: getattr(cluster.metrics, name) for name in METRICS},
        **{f"rtt {i}": links.rtt_ms_from(i) for i in range(len(cluster))},
        "mean": links.rtt_mean_and_deviation_ms(everyone)[0],
        "bandwidth": cluster.bandwidth_requested_mbps,
        "placed": cluster.placed_in_run,
    }
    known = {name: np.nan_to_num(column, nan=-1.0).tolist() for name, column in columns.items()}
    assigned_pods = cluster.assigned_pods.rows.tolist()
    storage = [cluster.storage.claims, cluster.storage.volumes, cluster.storage.classes]
    held = [dict(cluster.host_ports), dict(cluster.mounts), assigned_pods]
    images = [dict(cluster.images.queued), dict(cluster.images.queue_mb)]
    return [table.nodes, known, held, [dict(part) for part in storage], images]


def reordered(cluster: ClusterView, order: list[int]) -> ClusterView:
    """The same cluster with its nodes in another order."""
    names = cluster.table.names
    table = NodeTable([cluster.nodes[i] for i in order])
    links = [
        Link(names[a], names[b], float(rtt))
        for a in range(len(names))
        for b, rtt in enumerate(cluster.links.rtt_ms_from(a))
        if b < a and not np.isnan(rtt)
    ]
    rows = cluster.assigned_pods.rows.copy()
    rows[0] = np.argsort(order)[rows[0]]
    return replace(
        cluster,
        table=table,
        requested={name: column[order] for name, column in cluster.requested.items()},
        metrics=NodeMetrics(**{name: getattr(cluster.metrics, name)[order] for name in METRICS}),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=cluster.bandwidth_requested_mbps[order],
        placed_in_run=cluster.placed_in_run[order],
        host_ports={order.index(at): held for at, held in cluster.host_ports.items()},
        mounts={order.index(at): held for at, held in cluster.mounts.items()},
        assigned_pods=replace(cluster.assigned_pods, rows=rows),
        images=replace(
            cluster.images,
            queued={
                digest: frozenset(order.index(at) for at in nodes)
                for digest, nodes in cluster.images.queued.items()
            },
            queue_mb={order.index(at): mb for at, mb in cluster.images.queue_mb.items()},
        ),
    )


def with_metric(cluster: ClusterView, metric: str, values: list[float]) -> ClusterView:
    """The cluster with one column of metrics replaced."""
    column = np.array(values, dtype=np.float64)
    changed: dict[str, Any] = {metric: column}
    return replace(cluster, metrics=replace(cluster.metrics, **changed))

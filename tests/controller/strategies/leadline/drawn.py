"""Drawn clusters and pods for tests of plans."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    DeclaredPeer,
    HostPort,
    Link,
    Pod,
    PodAnnotations,
)
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView

from tests.controller.builders import node, view

MIB = 1024**2


def service(name: str) -> PodSelector:
    return PodSelector("Service", "default", name, (Requirement("app", "In", (name,)),))


def wanted(
    name: str,
    app: str,
    *,
    cpu: int = 100,
    mib: int = 64,
    peers: Sequence[DeclaredPeer] = (),
    profile_ms: float | None = None,
    data_mb: float | None = None,
    mbps: float | None = None,
    port: int | None = None,
) -> Pod:
    """A pod of the service `app`."""
    profile = {} if profile_ms is None else {"n0": profile_ms, "n1": 2 * profile_ms}
    return Pod(
        "default",
        name,
        uid=name,
        requests={CPU: cpu, MEMORY: mib * MIB, PODS: 1},
        labels={"app": app},
        host_ports=() if port is None else (HostPort("0.0.0.0", "TCP", port),),
        annotations=PodAnnotations(
            peers=tuple(peers), profile_ms=profile, data_mb=data_mb, bandwidth_mbps=mbps
        ),
    )


def hindered(seed: int, nodes: int, pods: int) -> tuple[ClusterView, list[Pod]]:
    """As `drawn`, and some of the boards are throttled, hot, or go away again and again."""
    found, wanted_pods = drawn(seed, nodes, pods)
    rng = np.random.default_rng(seed)
    times = np.where(rng.random(nodes) < 0.5, rng.uniform(1.0, 4.0, nodes), 1.0)
    metrics = replace(
        found.metrics,
        throttling=times,
        throttling_error=rng.uniform(0.0, 1.0, nodes),
        absence_ms=np.where(rng.random(nodes) < 0.5, rng.uniform(0.0, 300.0, nodes), 0.0),
    )
    return replace(found, metrics=metrics, assumed=None).assuming_load(), wanted_pods


def drawn(seed: int, nodes: int, pods: int) -> tuple[ClusterView, list[Pod]]:
    """A cluster of small boards whose load and links differ, and pods of a few services, some of
    which declare others as peers."""
    random = Random(seed)
    names = [f"n{i}" for i in range(nodes)]
    links = [
        Link(a, b, random.uniform(0.5, 30.0))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if random.random() < 0.9
    ]
    boards = [
        node(
            name,
            cores=random.choice([1, 2, 4]),
            gib=random.choice([1, 2]),
            bandwidth_mbps=random.choice([20.0, 100.0, None]),
        )
        for name in names
    ]
    load = {
        "cpu_percent": [random.uniform(0, 80) for _ in names],
        "memory_percent": [random.uniform(20, 80) for _ in names],
    }
    services = [f"s{i}" for i in range(3)]
    found = view(boards, links=links, metrics=load, objects=[service(each) for each in services])
    wanted_pods = []
    for i in range(pods):
        app = random.choice(services)
        others = [each for each in services if each != app and random.random() < 0.3]
        peers = [DeclaredPeer(each, random.uniform(0, 5), random.uniform(1, 30)) for each in others]
        kind = random.randrange(3)
        wanted_pods.append(
            wanted(
                f"p{i}",
                app,
                cpu=random.choice([100, 300, 700]),
                mib=random.choice([50, 200, 400]),
                peers=peers,
                profile_ms=random.uniform(5, 100) if kind == 0 else None,
                data_mb=random.uniform(0.01, 0.5) if kind == 1 else None,
                mbps=random.choice([None, 8.0]),
            )
        )
    return found.assuming_load(), wanted_pods

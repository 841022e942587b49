"""The waiting time that Leadline's extender adds to a pod of kube-scheduler.

One API server and 1,000 nodes; kube-scheduler alone and with the extender in turn, its client
limits lifted, so that nothing else is waited for. Pods come one at a time: what is timed is
from the moment that a pod is created until the watch shows where it is.
"""

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import partial
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from statistics import quantiles

from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.kube.cluster import KubeCluster

from tests.kube.api import BulkApi
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.daemon import Daemon
from tests.kube.extending import Extending, extending
from tests.kube.kwok import side_by_side
from tests.kube.objects import node, pod
from tests.kube.scheduler import kube_scheduler

NODES = 1000
PODS = 200
WARM_UP = 20
ASKED = 420  # so many of 1,000 nodes kube-scheduler looks at by default
SOLE_LEADER = "kube-scheduler alone"
ROUNDS = 2
LIFTED = 10_000
PATH = "/api/v1/namespaces/default/pods"
Started = Callable[[], AbstractContextManager[Daemon]]
WAYS = {
    "extender": (),
    "extender, binding too": ("--bind",),
    "extender, whole nodes": ("--no-node-cache-capable",),
}


@contextmanager
def extender_cluster() -> Iterator[tuple[ControlPlane, Extending]]:
    """An API server with nodes, and a controller with the extender."""
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as folder, control_plane() as plane:
        api = BulkApi(plane.kubeconfig)
        labels = {"leadline.dev/bandwidth-mbps": "1000"}
        names = [f"n{i:04}" for i in range(NODES)]
        side_by_side(lambda name: api.add_node(node(name, labels=labels)), names)
        with extending(plane, Path(folder)) as running:
            yield plane, running


@asynccontextmanager
async def bindings(plane: ControlPlane) -> AsyncIterator["asyncio.Queue[tuple[str, float]]"]:
    """The name of each bound pod, and the time of the watch event."""
    seen: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    listed = asyncio.Event()

    async def watch(cluster: KubeCluster) -> None:
        async with aclosing(cluster.watch()) as changes:
            async for change in changes:
                if isinstance(change, Relisted):
                    listed.set()
                elif isinstance(change, PodChanged) and change.pod.node_name:
                    seen.put_nowait((change.pod.name, time.perf_counter()))

    async with KubeCluster.connect(plane.kubeconfig) as cluster:
        watching = asyncio.create_task(watch(cluster))
        await listed.wait()
        yield seen
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def waits_ms(plane: ControlPlane, running: Started, prefix: str) -> list[float]:
    """The waiting time of each pod under the scheduler that `running` starts."""
    api = BulkApi(plane.kubeconfig)
    waits = []
    async with bindings(plane) as seen:
        with running():
            for number in range(WARM_UP + PODS):
                name = f"{prefix}-{number}"
                made = pod(name, cpu="1m", scheduler="default-scheduler")
                api.create(PATH, made)
                start = time.perf_counter()
                while (bound := await seen.get())[0] != name:
                    pass
                waits.append((bound[1] - start) * 1000)
    for number in range(WARM_UP + PODS):
        api.delete(f"{PATH}/{prefix}-{number}")
    return waits[WARM_UP:]


def row(what: str, waits: Sequence[float], alone: Sequence[float]) -> str:
    """p50 and p99, and their increase."""
    cuts, base = quantiles(waits, n=100), quantiles(alone, n=100)
    added = "" if waits is alone else f"{cuts[49] - base[49]:+9.1f}{cuts[98] - base[98]:+9.1f}"
    return f"{what:32}{cuts[49]:9.1f}{cuts[98]:9.1f}{added}"


def answers_ms(extended: Extending) -> dict[str, list[float]]:
    """The duration of each answer on an idle machine, for kube-scheduler's requests."""
    assert extended.caller is not None
    names = [f"n{i:04}" for i in range(ASKED)]
    took: dict[str, list[float]] = {"filter": [], "prioritize": []}
    with closing(
        HTTPSConnection(extended.address, context=extended.caller.context())
    ) as connection:
        for number in range(WARM_UP + PODS):
            made = pod(f"asked-{number}", cpu="1m", scheduler="default-scheduler")
            made["metadata"] |= {"namespace": "default", "uid": f"uid-{number}"}
            body = json.dumps({"Pod": made, "Nodes": None, "NodeNames": names})
            for verb, times in took.items():
                start = time.perf_counter()
                connection.request("POST", f"/{verb}", body)
                answer = connection.getresponse()
                answer.read()
                times.append((time.perf_counter() - start) * 1000)
                assert answer.status == HTTPStatus.OK
    return {f"{verb}, {ASKED} names": times[WARM_UP:] for verb, times in took.items()}


async def measure() -> dict[str, list[float]]:
    """Measure all schedulers in turn, in rounds, so that a load peak does not affect only one."""
    found: dict[str, list[float]] = {}
    with extender_cluster() as (plane, extended):
        found |= answers_ms(extended)
        limits = {"qps": LIFTED, "burst": LIFTED}
        ways: dict[str, Started] = {
            SOLE_LEADER: partial(kube_scheduler, plane, qps=LIFTED, burst=LIFTED)
        }
        for name, options in WAYS.items():
            ways[name] = partial(extended.scheduler, *options, **limits)
        for number in range(ROUNDS):
            for at, (name, running) in enumerate(ways.items()):
                found.setdefault(name, []).extend(
                    await waits_ms(plane, running, f"bench-{number}-{at}")
                )
    return found


def main() -> None:
    """Print the table."""
    gc.freeze()  # so that this process does not stop and measure itself
    found = asyncio.run(measure())
    alone = found[SOLE_LEADER]
    print(
        f"from creation to binding, ms, {NODES:,} nodes, {PODS * ROUNDS} pods each, one at a time"
    )
    print(f"{'':32}{'p50':>9}{'p99':>9}{'added':>9}{'added':>9}")
    for what in (SOLE_LEADER, *WAYS):
        print(row(what, found.pop(what), alone))
    print("of that the controller's own answers, over TLS, nobody else at work")
    for what, times in found.items():
        print(row(what, times, times))

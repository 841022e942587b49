"""Binds all pending pods of a schedulerName, without a watch, a decision or a record: what the API
server and the controller's client for it can do together.

    python -m tests.bench.raw_bindings KUBECONFIG SCHEDULER_NAME
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Relisted
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.scheduling.scheduler import BINDINGS_AT_ONCE


async def bind_all(kubeconfig: Path, scheduler_name: str) -> None:
    """Spread the pods over the nodes in turn."""
    async with KubeCluster.connect(kubeconfig) as cluster:
        async with aclosing(cluster.watch()) as changes:
            listed = await anext(changes)
        assert isinstance(listed, Relisted)
        pods = [pod for pod in listed.pods if pod.scheduler_name == scheduler_name]
        names = [node.name for node in listed.nodes]
        places = ((pod, names[at % len(names)]) for at, pod in enumerate(pods))
        gc.collect()
        gc.freeze()

        async def bind(places: Iterator[tuple[Pod, str]]) -> None:
            for pod, node in places:
                await cluster.bind(pod, node)

        await asyncio.gather(*(bind(places) for _ in range(BINDINGS_AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(bind_all(Path(sys.argv[1]), sys.argv[2]))
    # The benchmark ends it, and reads its CPU time before.
    sys.stdin.read()

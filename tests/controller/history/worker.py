"""A controller as a process of its own, on a cluster in memory and without a broker: it places
pods of a name for ever, or none, keeps its decisions in a file and answers inspections.

Says "answering" once it does and knows its cluster, and "kept N" each time that so many
decisions are written.
"""

import asyncio
import sys
from pathlib import Path
from random import Random

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.history.store import HistorySettings
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.wiring import Controller, Servers

from tests.support.memory_cluster import MemoryCluster

AT_ONCE = 7


def node(name: str, cpu_milli: int) -> Node:
    return Node(name, {CPU: cpu_milli, MEMORY: 2**40, PODS: 10**6})


def pod(name: str, cpu_milli: int = 0) -> Pod:
    return Pod("default", name, requests={CPU: cpu_milli, MEMORY: 2**20, PODS: 1})


async def all_bound(cluster: MemoryCluster) -> None:
    watch = cluster.watch()
    async for _ in watch:
        if all(each.node_name or each.name == "huge" for each in cluster.pods):
            return


async def work(path: Path, address: str, name: str) -> None:
    """Until killed."""
    settings = Settings(serve=GrpcSettings(address), decisions=HistorySettings(path), warm_up_s=0.0)
    cluster = MemoryCluster([node("n1", 4000), node("n2", 8000), node("small", 10)])
    if name:
        cluster.put_pod(pod("huge", cpu_milli=64_000))
    controller = Controller(settings, cluster, Rule(KubeDefault(), FILTERS, Random(1)))
    async with controller.storing_decisions(), Servers(controller).serving():
        scheduling = asyncio.gather(*controller.placing())
        while not controller.state.listed:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.01)
        print("answering", flush=True)
        made = 0
        while name:
            for _ in range(AT_ONCE):
                cluster.put_pod(pod(f"{name}{made}"))
                made += 1
            async with asyncio.timeout(60):
                await all_bound(cluster)
            await controller.history.about("default/huge")  # answers once all is written
            print(f"kept {made}", flush=True)
            for each in cluster.pods[1:]:
                cluster.remove_pod(each.key)
        await scheduling


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))

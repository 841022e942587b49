"""NetSched's Fig. 3 again: how soon etcd answers while 90 Deployments of one pod come and go,
placed by NetSched and by the stock kube-scheduler.

As clusterloader2 does for the paper: all Deployments are created, their pods run, and all are
deleted. The figure's operations are those of the API server's metric etcd_request_duration_seconds.
Nodes are KWOK's; a load generator of a few threads stands for clusterloader2.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from statistics import median

from tests.bench.scheduling import SchedulerBench, scheduler_bench
from tests.kube.api import Api
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import many_nodes, side_by_side
from tests.kube.objects import deployment, pod
from tests.support.boards import reporting
from tests.system.daemons import eventually

DEPLOYMENTS = 90
WORKERS = 4
ROUNDS = 5
OPERATIONS = ("create", "delete", "get", "list", "listWithCount", "update")
CONTROLLERS = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")
_PATH, _PODS = "/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/pods"
_LINE = re.compile(
    r'etcd_request_duration_seconds_(sum|count)\{[^}]*operation="(\w+)"[^}]*\} (\S+)'
)


def etcd_s(api: Api) -> Mapping[str, tuple[float, float]]:
    """Operation -> seconds of all its requests since the start, and how many they are."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for which, operation, value in _LINE.findall(api.text("GET", "/metrics")):
        sums[operation][which] += float(value)
    return {operation: (each["sum"], each["count"]) for operation, each in sums.items()}


def load(api: Api, prefix: str, scheduler: str) -> None:
    """Create the Deployments, wait until all pods run, and delete them."""
    names = [f"{prefix}-{number}" for number in range(DEPLOYMENTS)]
    spec = pod("", cpu="10m", memory="10M", scheduler=scheduler)["spec"]

    def phases() -> list[str]:
        return [each["status"]["phase"] for each in api.get(_PODS)["items"]]

    side_by_side(lambda name: api.create(_PATH, deployment(name, spec)), names)
    running = ["Running"] * DEPLOYMENTS
    eventually(phases, lambda found: found == running, f"pods of {scheduler} run", 300, 0.5)
    background = {"propagationPolicy": "Background"}
    side_by_side(lambda name: api.text("DELETE", f"{_PATH}/{name}", background), names)
    eventually(phases, lambda found: not found, f"pods of {scheduler} are gone", 300, 0.5)


def measured_ms(bench: SchedulerBench) -> Mapping[str, Mapping[str, list[float]]]:
    """Scheduler -> operation -> the mean of each round, ms."""
    api, found = Api(bench.plane.kubeconfig), defaultdict[str, dict[str, list[float]]](dict)
    ways: dict[str, AbstractContextManager[int]] = {}
    for number in range(ROUNDS):
        ways = {
            "leadline": bench.leadline(strategy="netsched"),
            "default-scheduler": bench.stock(),
        }
        for scheduler in sorted(ways, reverse=bool(number % 2)):
            with ways[scheduler]:
                before = etcd_s(api)
                load(api, f"round-{number}", scheduler)
                for operation, (sum_s, count) in etcd_s(api).items():
                    sum_before_s, count_before = before.get(operation, (0.0, 0.0))
                    if count > count_before:
                        mean_ms = (sum_s - sum_before_s) / (count - count_before) * 1000
                        found[scheduler].setdefault(operation, []).append(mean_ms)
    return found


def main() -> None:
    """Print the mean of each operation: the median of the rounds, the least and the largest."""
    with ExitStack() as stack:
        bench = stack.enter_context(scheduler_bench())
        stack.enter_context(kube_controller_manager(bench.plane, CONTROLLERS))
        labels = {"leadline.dev/bandwidth-mbps": "1000"}
        nodes = many_nodes(WORKERS, labels=labels)
        bench.kwok.add_nodes(nodes)
        stack.enter_context(reporting(bench.broker, [each["metadata"]["name"] for each in nodes]))
        found = measured_ms(bench)
    print(f"{DEPLOYMENTS} Deployments, {WORKERS} nodes, {ROUNDS} rounds; mean ms of an operation")
    print(f"{'':15}{'NetSched':>20}{'kube-scheduler':>20}")
    for operation in OPERATIONS:
        cells = ""
        for scheduler in ("leadline", "default-scheduler"):
            each = found[scheduler].get(operation, [])
            text = f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})" if each else "-"
            cells += f"{text:>20}"
        print(f"{operation:15}{cells}")

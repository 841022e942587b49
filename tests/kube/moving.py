"""A cluster in which pods are moved: real controllers of workloads, played kubelets, and a strategy
whose preference for nodes the test sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Better, Rule, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.rescheduler import Mode, Rescheduler, ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.wiring import Controller, running

from tests.kube.api import Api, ApiError
from tests.kube.objects import deployment, node

CONTROLLERS = ["deployment-controller", "replicaset-controller", "disruption-controller"]
NOTES = "/api/v1/namespaces/kube-system/configmaps/leadline-rescheduling"
PATIENCE_S = 120.0
_numbers = count(1)


@dataclass(frozen=True)
class Liking(Strategy):
    """Likes nodes as the test says; higher is better, and an unnamed node is worth 1."""

    likes: dict[str, float] = field(default_factory=dict)

    name: ClassVar[str] = "liking"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "a test"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        total = np.array([self.likes.get(view.table.names[i], 1.0) for i in candidates])
        return Scores(candidates, total, best(total, self.better), lambda at: f"liked {total[at]}")


class Town:
    """The nodes and workloads of one test, with names of its own."""

    def __init__(self, api: Api, nodes: int = 3) -> None:
        self.api = api
        self.name = f"moving{next(_numbers)}"
        self.pods_path = "/api/v1/namespaces/default/pods"
        self._deployments = "/apis/apps/v1/namespaces/default/deployments"
        self._budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        self._made: list[str] = []
        self.nodes = [f"{self.name}-n{number}" for number in range(1, nodes + 1)]
        for each in self.nodes:
            api.add_node(node(each, labels={"town": self.name}))
            self._made.append(f"/api/v1/nodes/{each}")

    def deployment(self, replicas: int = 1, suffix: str = "web", **spec: Any) -> str:
        """Create a Deployment on this town's nodes; returns its path."""
        name = f"{self.name}-{suffix}"
        whole = {
            "schedulerName": "leadline",
            "nodeSelector": {"town": self.name},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
            ],
            **spec,
        }
        self.api.create(self._deployments, deployment(name, whole, replicas))
        self._made.append(f"{self._deployments}/{name}")
        return f"{self._deployments}/{name}"

    def autoscaler(self, suffix: str = "web") -> None:
        """An autoscaler for a Deployment; nobody carries it out."""
        name = f"{self.name}-{suffix}"
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 1}
        self.api.create(path, {"metadata": {"name": name}, "spec": spec})
        self._made.append(f"{path}/{name}")

    def events(self) -> list[Any]:
        """The events about this town's pods."""
        found = self.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [each for each in found if each["regarding"].get("name", "").startswith(self.name)]

    def budget(self, suffix: str = "web", **spec: Any) -> str:
        """Create a disruption budget for a Deployment's pods; returns its path."""
        name = f"{self.name}-{suffix}"
        selector = {"matchLabels": {"app": name}}
        self.api.create(
            self._budgets, {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}
        )
        self._made.append(f"{self._budgets}/{name}")
        return f"{self._budgets}/{name}"

    def pods(self, suffix: str = "web") -> list[Any]:
        """The live pods of a Deployment."""
        found = self.api.get(f"{self.pods_path}?labelSelector=app%3D{self.name}-{suffix}")["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def where(self, suffix: str = "web") -> list[str]:
        """The nodes of its ready pods, sorted and without this town's name."""
        return sorted(
            each["spec"].get("nodeName", "").removeprefix(f"{self.name}-")
            for each in self.pods(suffix)
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in each.get("status", {}).get("conditions", ())
            )
        )

    def node(self, number: int) -> str:
        """The name of a node, from 1."""
        return self.nodes[number - 1]

    def clean(self) -> None:
        """Delete all that it made, and what the rescheduler kept."""
        for path in (NOTES, *self._made):
            with suppress(ApiError):
                self.api.delete(path)
        # Nobody collects what the Deployments leave, and the next test's controllers would go on.
        replica_sets = self._deployments.replace("deployments", "replicasets")
        for path in (replica_sets, self.pods_path):
            with suppress(ApiError):
                self.api.delete(f"{path}?labelSelector=app")


@dataclass
class Moving:
    """A scheduler with a rescheduler, in this process."""

    controller: Controller
    likes: dict[str, float]

    @property
    def rescheduler(self) -> Rescheduler:
        return self.controller.rescheduler

    async def knows(self, place: Town, nodes: list[str]) -> None:
        """Wait until the ready pods are on these nodes, and the controller's watch has shown it:
        kine's comes later than etcd's."""
        await until(lambda: place.where() == nodes)
        async with asyncio.timeout(PATIENCE_S):
            while self._watched(place) != nodes:
                await asyncio.to_thread(time.sleep, 0.05)

    def _watched(self, place: Town) -> list[str]:
        return sorted(
            node.removeprefix(f"{place.name}-")
            for pod, node in self.controller.state.pods()
            if node is not None and pod.ready and pod.name.startswith(f"{place.name}-web")
        )


@asynccontextmanager
async def moving(kubeconfig: Path, **settings: Any) -> AsyncIterator[Moving]:
    """Run them on this cluster, with any move allowed that the settings do not forbid."""
    settings = {"mode": "manual", "cooldown_s": 0.0, "timeout_s": 20.0, **settings}
    settings.setdefault("budgets", HourlyBudgets(100, 100, 100))
    likes: dict[str, float] = {}
    rule = Rule(Liking(likes), FILTERS, Random(7))
    async with KubeCluster.connect(kubeconfig) as cluster:
        whole = Settings(warm_up_s=0.0, rescheduling=ReschedulingSettings(**settings))
        controller = Controller(whole, cluster, rule)
        async with running(*controller.placing()):
            await until(lambda: controller.state.listed)
            yield Moving(controller, likes)


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; the test's requests run in a thread."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(_soon, holds):
            pass


def _soon(holds: Callable[[], object]) -> bool:
    if not holds():
        time.sleep(0.05)
        return False
    return True


def ship_notes(api: Api) -> None:
    """Make the ConfigMap that the manifests ship, if a test before has taken it away: the
    controller's account may not."""
    folder, _, name = NOTES.rpartition("/")
    with suppress(ApiError):
        api.create(folder, {"metadata": {"name": name}})


@contextmanager
def town(api: Api, nodes: int = 3) -> Iterator[Town]:
    """A town, deleted at the end."""
    ship_notes(api)
    made = Town(api, nodes)
    try:
        yield made
    finally:
        made.clean()


@asynccontextmanager
async def controlling(account: Path, mode: Mode) -> AsyncIterator[None]:
    rescheduling = ReschedulingSettings(
        mode=mode, cooldown_s=0.0, timeout_s=20.0, budgets=HourlyBudgets(100, 100, 100)
    )
    rule = Rule(Dacs(), FILTERS, Random(7))
    async with KubeCluster.connect(account) as cluster:
        controller = Controller(Settings(warm_up_s=0.0, rescheduling=rescheduling), cluster, rule)
        async with running(*controller.placing()):
            yield

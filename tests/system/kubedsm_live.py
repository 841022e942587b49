"""KubeDSM's four services on a live API server: pods come and go as the authors logged them,
and the controller places, suggests and moves. Run as a script, it prints a table of both ways:

    python -m tests.system.kubedsm_live --cycles 12

The nodes are Table 4's, played by KWOK; Deployments are the stock controllers'. Every pod is
accounted for: it runs, it was scaled down, or a move replaced it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.rescheduling.journal import HourlyBudgets, MoveNote
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.wiring import Controller, running
from leadline_experiments.kubedsm.logs import logs
from leadline_experiments.kubedsm.simulation import SERVICES, empty_cluster

from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import Kwok, kwok, side_by_side
from tests.kube.objects import Object, deployment, node

CONTROLLERS = ["deployment-controller", "replicaset-controller", "disruption-controller"]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
NOTES = "/api/v1/namespaces/kube-system/configmaps/leadline-rescheduling"
WORKLOAD = "1.4_0.4"
SETTLED_S = 4.0
LONGEST_S = 240.0
SMALL = 0.1  # of the paper's sizes, so that its 30 cores are boards of one machine
POLL_S = 0.25
IMAGE_MB = 20  # beside busybox


@dataclass(frozen=True)
class Cycle:
    """One cycle: the pods of each service, those of them on the edge, and their mean share."""

    wanted: dict[str, int]
    on_edge: dict[str, int]
    ratio: float
    settled_s: float


@dataclass(frozen=True)
class MoveTimes:
    """Seconds of one move. away_s: from when the old pod began to end until the new one was ready,
    negative if it was ready before. whole_s: from its beginning until the new pod was ready and the
    old one gone; then the next move begins."""

    away_s: float
    whole_s: float


@dataclass
class Account:
    """What became of the pods."""

    cycles: list[Cycle] = field(default_factory=list)
    created: int = 0
    deleted: int = 0  # pods that are gone
    alive: int = 0
    scaled_down: int = 0  # by which the services shrank
    evictions: int = 0  # that the API server accepted
    moves: dict[str, int] = field(default_factory=dict)  # how many ended in which way
    endings: list[str] = field(default_factory=list)
    times: list[MoveTimes] = field(default_factory=list)  # of the moves that ended as planned
    to_cloud: int = 0  # how many of these left the edge

    @property
    def edge_ratio(self) -> float:
        """The mean share on the edge over cycles and services, as the paper has it."""
        return float(np.mean([cycle.ratio for cycle in self.cycles]))

    @property
    def unexplained(self) -> int:
        """Pods that are gone without a scale-down or a move. 0, or as many as moves began and did
        not end as planned: each may have cost one pod, which was replaced."""
        return self.deleted - self.scaled_down - self.moves.get("moved", 0)


class Counting(KubeCluster):
    """Counts evictions."""

    evictions = 0

    async def evict(self, pod: Pod) -> None:
        await super().evict(pod)
        Counting.evictions += 1


@dataclass
class Life:
    """When a pod was first seen, ready, ending and gone, seconds since 1970."""

    owner: str
    seen_s: float
    ready_s: float = inf
    ends_s: float = inf
    gone_s: float = inf


class Registry:
    """Every pod of one run that the watch showed."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.lives: dict[str, Life] = {}

    def observe(self, change: ClusterChange) -> None:
        pods: Sequence[Pod] = ()
        match change:
            case Relisted(pods=listed):
                pods = listed
            case PodChanged(pod):
                pods = (pod,)
            case PodDeleted(pod):
                if (life := self.lives.get(pod.uid)) is not None:
                    life.gone_s = time.time()
                    life.ends_s = min(life.ends_s, life.gone_s)
        for pod in pods:
            if pod.name.startswith(self._prefix) and pod.owner is not None:
                now_s = time.time()
                life = self.lives.setdefault(pod.uid, Life(pod.owner.uid, now_s))
                life.ready_s = min(life.ready_s, now_s if pod.ready else inf)
                life.ends_s = min(life.ends_s, now_s if pod.terminating else inf)

    def ended(self) -> int:
        """How many pods are gone, or about to be."""
        return sum(life.ends_s < inf for life in self.lives.values())

    def times(self, note: MoveNote) -> MoveTimes:
        """Of a move that ended as planned: the next pod of its workload is the replacement."""
        old = self.lives[note.uid]
        new = min(
            (each for each in self.lives.values() if each.owner == note.owner),
            key=lambda each: (each.seen_s < note.begun_s, each.seen_s),
        )
        return MoveTimes(new.ready_s - old.ends_s, max(new.ready_s, old.gone_s) - note.begun_s)


@contextmanager
def paper_nodes(played: Kwok, prefix: str) -> Iterator[dict[str, str]]:
    """Table 4's nodes, with what their other pods leave; yields name -> tier."""
    tiers, made = {}, []
    for each in empty_cluster().nodes:
        name = f"{prefix}-{each.name.lower()}"
        tiers[name] = each.tier
        labels = {"run": prefix, "leadline.dev/tier": each.tier}
        cores, memory = f"{each.allocatable[CPU]}m", f"{each.allocatable[MEMORY]}"
        made.append(node(name, cores, memory, labels=labels))
    played.add_nodes(made)
    try:
        yield tiers
    finally:
        played.remove_nodes(list(tiers))


def service_of_one(
    prefix: str,
    service: str,
    image: str,
    scale: float,
    target: float | None = None,
    *,
    worst_first: bool = False,
) -> Object:
    """A service as a Deployment of one replica. target: its QoS target. worst_first: a scale-down
    removes the replica in the worst place."""
    cores, mib = SERVICES[service]
    labels = {"run": prefix, "service": service}
    annotations = {} if target is None else {"leadline.dev/qos-edge-ratio": f"{target:g}"}
    annotations["leadline.dev/deletion-order"] = str(worst_first).lower()
    container = {
        "name": "main",
        "image": image,
        "resources": {
            "requests": {
                "cpu": f"{cores * scale * 1000:.0f}m",
                "memory": f"{mib * 2**20 * scale:.0f}",
            }
        },
    }
    spec = {
        "schedulerName": prefix,
        "nodeSelector": {"run": prefix},
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    name = f"{prefix}-{service.lower()}"
    return deployment(name, spec, labels=labels, annotations=annotations)


def autoscaler(prefix: str, service: str) -> Object:
    """A HorizontalPodAutoscaler of a service, which nobody acts on. With one, a Deployment's
    replicas are not Leadline's to raise, so its pods are moved by eviction."""
    name = f"{prefix}-{service.lower()}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 20},
    }


def logged_cycles(count: int) -> list[dict[str, int]]:
    """The pods of each service at the ends of the first logged run's cycles of 90 s."""
    rows = logs()["kubedsm"][WORKLOAD][0].pods[5::6][:count]
    return [dict(zip(SERVICES, map(int, row), strict=True)) for row in rows]


async def play(
    plane: ControlPlane,
    nodes: AbstractContextManager[dict[str, str]],
    prefix: str,
    cycles: Sequence[dict[str, int]],
    *,
    moves: bool,
    worst_first: bool = False,
    image: str = "x",
    scale: float = 1.0,
    autoscaled: bool = False,
    targets: dict[str, float] | None = None,
    **options: Any,
) -> Account:
    """One run over these cycles, with or without migration, and with or without an order in which
    replicas are removed. options: further ones of the strategy.

    nodes: with the label run=`prefix`, name -> tier. autoscaled: by eviction, as the paper does;
    else the replacement comes first. image, scale: of the pods, whose sizes are the paper's times
    the scale.
    """
    api, account = Api(plane.kubeconfig), Account()
    with nodes as tiers:
        how = Rule(KubeDsm(suggest=1 if moves else 0, **options), FILTERS, Random(7))
        rescheduling = ReschedulingSettings(
            mode="automatic" if moves else "off",
            cooldown_s=0.0,
            timeout_s=30.0,
            budgets=HourlyBudgets(500, 500, 500),
        )
        registry, Counting.evictions = Registry(prefix), 0
        async with Counting.connect(plane.kubeconfig) as cluster:
            settings = Settings(
                warm_up_s=0.0,
                scheduler_name=prefix,
                batch_window_s=0.5,
                suggest_interval_s=1.0 if moves else 0.0,
                rescheduling=rescheduling,
            )
            controller = Controller(settings, cluster, how)
            controller.listeners.append(registry.observe)
            async with running(*controller.placing()):
                try:
                    made = [
                        service_of_one(
                            *(prefix, service, image, scale, (targets or {}).get(service)),
                            worst_first=worst_first,
                        )
                        for service in SERVICES
                    ]
                    await asyncio.to_thread(
                        side_by_side, lambda each: api.create(DEPLOYMENTS, each), made
                    )
                    if autoscaled:
                        scalers = [autoscaler(prefix, service) for service in SERVICES]
                        await asyncio.to_thread(
                            side_by_side, lambda each: api.create(AUTOSCALERS, each), scalers
                        )
                    before = dict.fromkeys(SERVICES, 1)
                    for wanted in cycles:
                        account.scaled_down += sum(
                            max(before[service] - wanted[service], 0) for service in SERVICES
                        )
                        before = wanted
                        account.cycles.append(await cycle(controller, api, prefix, wanted, tiers))
                finally:
                    found = await asyncio.to_thread(pods_of, api, prefix)
                    account.alive = len(found)
                    unix_s = controller.rescheduler.now_unix_s() or 0.0
                    notes = controller.rescheduler.journal.of_the_hour(unix_s)
                    mine = [note for note in notes if note.pod.startswith(f"default/{prefix}-")]
                    account.endings = [note.outcome for note in mine]
                    endings = (ending.partition(":")[0] for ending in account.endings)
                    account.moves = dict(Counter(endings))
                    ended = [note for note in mine if note.outcome == "moved"]
                    account.times = [registry.times(note) for note in ended]
                    account.to_cloud = sum(tiers[note.target] == "cloud" for note in ended)
                    account.created, account.deleted = len(registry.lives), registry.ended()
                    account.evictions = Counting.evictions
                    await asyncio.to_thread(remove, api, prefix)
    return account


async def cycle(
    controller: Controller, api: Api, prefix: str, wanted: dict[str, int], tiers: dict[str, str]
) -> Cycle:
    """Scale the services, wait until nothing moves any more, and count."""
    for service, count in wanted.items():
        path = f"{DEPLOYMENTS}/{prefix}-{service.lower()}"
        await asyncio.to_thread(api.patch, path, {"spec": {"replicas": count}})
    start_s = changed_s = time.monotonic()
    last: dict[str, str] = {}
    while True:
        await asyncio.sleep(POLL_S)
        pods = await asyncio.to_thread(pods_of, api, prefix)
        where = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in pods}
        counts = Counter(pod["metadata"]["labels"]["service"] for pod in pods)
        now_s = time.monotonic()
        rescheduler = controller.rescheduler
        is_busy = rescheduler is not None and rescheduler.is_busy
        if where != last or is_busy or counts != Counter(wanted) or not all(map(ready, pods)):
            last, changed_s = where, now_s
        if now_s - changed_s > SETTLED_S:
            break
        if now_s - start_s > LONGEST_S:
            unready = [pod for pod in pods if not ready(pod)]
            why = [(pod["metadata"]["name"], pod.get("status")) for pod in unready]
            raise AssertionError(
                f"{wanted} is not reached: {counts}, moving: {is_busy}, not ready: {why}"
            )
    on_edge = Counter(
        pod["metadata"]["labels"]["service"]
        for pod in pods
        if tiers[pod["spec"]["nodeName"]] == "edge"
    )
    shares = [on_edge[service] / count for service, count in wanted.items() if count]
    edge = {service: on_edge[service] for service in wanted}
    return Cycle(wanted, edge, float(np.mean(shares)), changed_s - start_s)


def pods_of(api: Api, prefix: str) -> list[Any]:
    """The run's pods that are not being deleted."""
    found = api.get(f"{PODS}?labelSelector=run%3D{prefix}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def ready(pod: Any) -> bool:
    """Whether the pod runs and is ready."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def remove(api: Api, prefix: str) -> None:
    """Delete the run's Deployments and pods, and the rescheduler's notes."""
    names = [f"{prefix}-{service.lower()}" for service in SERVICES]
    made = [f"{kind}/{name}" for kind in (AUTOSCALERS, DEPLOYMENTS) for name in names]
    for path in (NOTES, *made):
        with suppress(ApiError):
            api.delete(path)
    deadline = time.monotonic() + 30
    replica_sets = f"/apis/apps/v1/namespaces/default/replicasets?labelSelector=run%3D{prefix}"
    while time.monotonic() < deadline:
        for each in api.get(replica_sets)["items"]:
            with suppress(ApiError):
                name = each["metadata"]["name"]
                api.delete(f"/apis/apps/v1/namespaces/default/replicasets/{name}")
        found = api.get(f"{PODS}?labelSelector=run%3D{prefix}")["items"]
        for pod in found:
            with suppress(ApiError):
                api.delete(f"{PODS}/{pod['metadata']['name']}")
        if not found:
            return
        time.sleep(POLL_S)


Ground = tuple[
    ControlPlane, Callable[[str], AbstractContextManager[dict[str, str]]], dict[str, Any]
]


@contextmanager
def on_kwok() -> Iterator[Ground]:
    """A control plane whose nodes KWOK plays."""
    with (
        tempfile.TemporaryDirectory(prefix="leadline-kubedsm-") as folder,
        control_plane(Path(folder)) as plane,
        kube_controller_manager(plane, CONTROLLERS),
        kwok(plane) as played,
    ):
        yield plane, lambda name: paper_nodes(played, name), {}


@contextmanager
def on_kubelets() -> Iterator[Ground]:
    """The lab's boards with kubelets, a tenth of the paper's sizes each."""
    from leadline_lab.spec import BoardSpec

    from tests.lab.lab_images import SLEEP, push_image, random_layer
    from tests.lab.running import Size, running_lab

    tiers = {each.name.lower(): each for each in empty_cluster().nodes}
    sizes = {
        name: Size(
            cpu=each.allocatable[CPU] / 1000 * SMALL,
            memory_mb=round(each.allocatable[MEMORY] * SMALL / 1e6) + 2,
        )
        for name, each in tiers.items()
    }
    boards = [BoardSpec(name, rate_mbps=100) for name in tiers]
    with running_lab(boards, CONTROLLERS, sizes) as lab:
        image = push_image(lab.lab, "service", [random_layer(IMAGE_MB, seed=1)], SLEEP)

        @contextmanager
        def labelled(prefix: str) -> Iterator[dict[str, str]]:
            for name, each in tiers.items():
                labels = {"run": prefix, "leadline.dev/tier": each.tier}
                lab.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
            yield {name: each.tier for name, each in tiers.items()}

        yield lab.plane, labelled, {"image": image, "scale": SMALL}
        pulls = ", ".join(f"{pull_s:.1f}" for pull_s in lab.pulls_s())
        print(f"seconds of the pulls of {IMAGE_MB} MB: {pulls}", flush=True)


def show(name: str, account: Account) -> None:
    """Print one run."""
    ratios = " ".join(f"{100 * cycle.ratio:.0f}" for cycle in account.cycles)
    print(f"{name}: edge ratio {100 * account.edge_ratio:.1f} %: {ratios}")
    print(
        f"  pods created {account.created}, alive {account.alive}, deleted {account.deleted}: "
        f"scaled down {account.scaled_down}, moves {account.moves}, unexplained "
        f"{account.unexplained}; evictions {account.evictions}; to the cloud {account.to_cloud}"
    )
    for name, times in (
        ("a pod away", [each.away_s for each in account.times]),
        ("a move", [each.whole_s for each in account.times]),
    ):
        if times:
            low, middle, high = np.percentile(times, [10, 50, 90])
            print(f"  {name}: median {middle:.1f} s, 10 to 90 %: {low:.1f} to {high:.1f} s")
    print(end="", flush=True)
    for ending in account.endings:
        if not ending.startswith("moved"):
            print(f"  {ending}")


def main() -> None:
    """Both ways, as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=12)
    parser.add_argument("--kubelets", action="store_true", help="pods that run; needs root")
    parser.add_argument("--out", type=Path, help="also write the runs there, as JSON")
    arguments = parser.parse_args()
    counts, found = logged_cycles(arguments.cycles), {}
    ground = on_kubelets() if arguments.kubelets else on_kwok()
    with ground as (plane, nodes, rest):
        for name, moves, autoscaled, worst_first in (
            ("eviction", True, True, False),
            ("replacement-first", True, False, False),
            ("no-migration", False, False, False),
            ("worst-first", False, False, True),
        ):
            how = {"moves": moves, "autoscaled": autoscaled, "worst_first": worst_first, **rest}
            account = asyncio.run(play(plane, nodes(name), name, counts, **how))
            found[name] = {**asdict(account), "edge_ratio": account.edge_ratio}
            show(name, account)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

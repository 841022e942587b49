"""Random states of a controller: clusters as the predicates' generator makes them, with boards that
report, links, pulls, assumed pods, kept room and runs, through the same calls as on a real one."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.service_profiles import (
    BoardProfile,
    ServiceProfile,
    ServiceProfiles,
)
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import Layer, Pod
from leadline_controller.framework.options import build
from leadline_controller.framework.ports import ImagePull, PodChanged, Relisted
from leadline_controller.framework.services import workload_name
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.history.log import DecisionLog
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.preferences import rule as preference_rule
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube import generator
from tests.kube.compare import KINDS

BOOT_ID = bytes(16)
STRATEGY_NAMES = sorted(STRATEGIES)
# Services and workloads of the generator, and what is none.
PEERS = ("web", "set", "db.other", "10.0.0.8", "nobody")
IMAGES = ("web:1", "reg.example/db:2", "cache")
LAYERS = [Layer(f"sha256:{number:02}", 3.7 * number + 1.1) for number in range(9)]
TTL = TimesToLive(report_s=60.0, rtt_s=300.0, bandwidth_s=3600.0)


def cases(seed: int) -> dict[str, Any]:
    """The cluster of this seed, of any of the generator's themes."""
    random = Random(seed)
    kind = random.choice(("plain", "plain", "preferring", "preempting"))
    if kind == "preferring":
        return generator.made_preferring(seed, random.choice([*generator.PREFERENCES]))
    if kind == "preempting":
        return generator.made_preempting(seed, random.choice([*generator.PREEMPTION]))
    return generator.made(seed, random.choice([*generator.THEMES]))


@dataclass
class Hand:
    """A clock that is set by hand. See framework.ports.Clock."""

    time_s: float = 0.0

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, duration_s: float) -> None:
        raise NotImplementedError


@dataclass
class LiveState:
    """A controller's state at a random moment. wanted: the pods to decide on, pending."""

    seed: int
    strategy: str
    case: dict[str, Any] = field(default_factory=dict)
    preferences: str | float = "off"
    letter: bool = False

    def __post_init__(self) -> None:
        random = self.random = Random(f"live {self.seed}")
        self.case = copy.deepcopy(self.case or cases(self.seed))
        for number in range(random.choice((0, 4, 8))):
            more = copy.deepcopy(random.choice(self.case["nodes"]))
            more["metadata"]["name"] = f"x{number}"
            more["metadata"].get("labels", {}).pop("kubernetes.io/hostname", None)
            self.case["nodes"].append(more)
        self.clock = Hand()
        self.telemetry = TelemetryState(TTL)
        self.assumes_load = random.random() < 0.8
        self.state = ClusterState(
            assumes_load=self.assumes_load, unix_offset_s=lambda: 1_700_000_000.0
        )
        self.state.images._now_s = self.clock.now_s
        self.names = sorted(each["metadata"]["name"] for each in self.case["nodes"])
        self._sequence = dict.fromkeys(self.names, 0)
        self._list()
        self._measure()
        self._pull()
        self.preferences = random.choice(("off", "on", 0.5))
        self.letter = random.random() < 0.2
        self.step = DecisionStep(self.state, self.telemetry, DecisionLog(), self.rule(), self.clock)
        self._place()
        self._keep_room()
        self.wanted = [pod for pod, node in self.state.pods() if node is None and pod.is_pending]

    def rule(self) -> Rule:
        """The rule, with its seed at the beginning."""
        return Rule(
            build(STRATEGIES[self.strategy], {}),
            FILTERS,
            Random(self.seed),
            preference_rule(self.preferences),
            letter=self.letter,
            seed=self.seed,
        )

    def _list(self) -> None:
        random = self.random
        for node in self.case["nodes"]:
            self._label(node)
        pods = [self._dressed(each) for each in self.case.get("pods") or ()]
        for number in range(random.choice((0, 1, 3))):
            more = copy.deepcopy(self.case["pod"])
            more["metadata"] |= {"name": f"more-{number}", "uid": f"uid-more-{number}"}
            pods.append(self._dressed(more))
        pods.append(self._dressed(self.case["pod"]))
        objects = [
            READERS[kind](manifest, kind)
            for name, kind in KINDS.items()
            for manifest in self.case.get(name) or ()
        ]
        nodes = tuple(read_node(each) for each in self.case["nodes"])
        read = tuple(self._started(read_pod(each)) for each in pods)
        self.state.apply(Relisted(nodes, read, tuple(objects)))
        if random.random() < 0.5:
            labels = read_pod(self.case["pod"]).labels
            boards = {
                name: BoardProfile(
                    random.choice(("pi4", "pi5", "")), random.uniform(1, 99), 1, 1, 9
                )
                for name in self.names[:2]
            }
            app = {"app": labels.get("app", "web")}
            self.state.use_profiles(ServiceProfiles([ServiceProfile("default", app, boards)]))

    def _label(self, node: dict[str, Any]) -> None:
        random = self.random
        if random.random() < 0.3:
            address = {"type": "InternalIP", "address": random.choice(("10.0.0.7", "10.0.0.8"))}
            node.setdefault("status", {})["addresses"] = [address]
        labels = node["metadata"].setdefault("labels", {})
        labels.setdefault("kubernetes.io/hostname", node["metadata"]["name"])
        labels["kubernetes.io/arch"] = random.choice(("arm64", "amd64"))
        if random.random() < 0.7:
            labels["leadline.dev/tier"] = random.choice(("edge", "edge", "cloud"))
        if random.random() < 0.4:
            labels["leadline.dev/class"] = random.choice(("pi4", "pi5"))
        if random.random() < 0.2:
            labels["leadline.dev/bandwidth-mbps"] = random.choice(("100", "33.3"))
        if random.random() < 0.2:
            labels["leadline.dev/preferred-node"] = "true"
        if random.random() < 0.3:
            labels["node-role.kubernetes.io/control-plane"] = "true"
        for condition in node.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready" and random.random() < 0.05:
                condition["status"] = "False"

    def _started(self, pod: Pod) -> Pod:
        """Of those on nodes it is often known how long they took to start."""
        if pod.node_name is None or self.random.random() < 0.4:
            return pod
        runs_s = 1_700_000_000.0 - self.random.randrange(100)
        return replace(pod, runs_s=runs_s, starting_s=float(self.random.randrange(30)), ready=True)

    def _dressed(self, pod: dict[str, Any]) -> dict[str, Any]:
        """With annotations, images and an owner."""
        random, metadata = self.random, pod["metadata"]
        given = {
            "user-node": random.choice([*self.names, "nowhere"]),
            "data-mb": str(random.uniform(0, 50)),
            "bandwidth-mbps": str(round(random.uniform(0, 9), 3)),
            "deadline-s": "20.5",
            "response-time-ms": "80",
            "qos-edge-ratio": "0.5",
            "peers": f"node/{self.names[-1]}=5@3rps<60ms, {random.choice(PEERS)}=2,"
            " 198.51.100.7=1.5",
            "profile-ms": json.dumps({self.names[0]: 12.5, "pi4": 30}),
        }
        annotations = metadata.setdefault("annotations", {})
        for name, text in given.items():
            if random.random() < 0.35:
                annotations[f"leadline.dev/{name}"] = text
        for container in pod["spec"]["containers"]:
            container["image"] = random.choice(IMAGES)
        if random.random() < 0.4 and not metadata.get("ownerReferences"):
            owner = random.choice(("a", "b"))
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"set-{owner}",
                    "uid": f"uid-set-{owner}",
                    "controller": True,
                }
            ]
        pod["spec"].setdefault("schedulerName", "leadline")
        return pod

    def _stamp(self, node: str) -> Stamp:
        self._sequence[node] += 1
        now_s = self.clock.now_s()
        return Stamp(BOOT_ID, 1, self._sequence[node], round(now_s * 1000), now_s)

    def _measure(self) -> None:
        random = self.random
        heard = [name for name in self.names if random.random() < 0.9]
        self.clock.time_s = 1000.0
        for name in heard:
            self.telemetry.birth(Agent(name, interval_s=10), self._stamp(name))
        lost = {
            frozenset(random.choices(self.names, k=2)) for _ in range(random.choice((0, 0, 1, 3)))
        }
        for _ in range(4):
            self.clock.time_s += random.uniform(5, 10)
            for name in heard:
                self._report(name, 0.85)
            for name in heard:
                self._ping(name, heard, lost)
        for a in heard:
            self._test(a, random.choice(heard))
        if random.random() < 0.6:
            self.telemetry.estimate_rtts(self.clock.now_s())
        self.clock.time_s += random.uniform(0, 70) if random.random() < 0.3 else 1.0
        for name in heard:
            self._report(name, 0.7)
        self.state.look(self.telemetry, self.clock.now_s())

    def _ping(self, a: str, heard: Sequence[str], lost: Set[frozenset[str]]) -> None:
        """A round of pings to most others; some pairs are never measured, some lose all packets."""
        rounds = {
            b: PingRound(None, 1, 0)
            if frozenset((a, b)) in lost
            else PingRound(1.0 + distance(a, b) * self.random.uniform(0.9, 1.1))
            for b in heard
            if b != a and distance(a, b) % 3
        }
        if rounds:
            self.telemetry.rtts(a, self._stamp(a), rounds)

    def _test(self, a: str, b: str) -> None:
        """A test of bandwidth between two boards."""
        random = self.random
        if a != b and random.random() < 0.6:
            seconds, hindered = random.choice((0.05, 3.0)), random.random() < 0.3
            mbps = random.uniform(5, 900)
            self.telemetry.bandwidth(
                BandwidthTest(a, b, mbps, seconds, self.clock.now_s(), is_hindered=hindered)
            )

    def _report(self, name: str, chance: float) -> None:
        random = self.random
        if random.random() > chance:
            return
        values = {
            "cpu_percent": random.choice((10.0, random.uniform(0, 100))),
            "memory_percent": random.uniform(5, 95),
            "packets_sent_per_s": random.uniform(0, 5000),
            "packets_received_per_s": random.uniform(0, 5000),
            "disk_bytes_per_s": random.uniform(0, 1e7),
            "link_mbps": 1000.0,
            "used_mbps": random.uniform(0, 50),
            "frequency_mhz": random.choice((600.0, 1500.0)),
        }
        known = {key: value for key, value in values.items() if random.random() < 0.95}
        reading = BoardReading(known, flags={"throttled": random.random() < 0.2})
        self.telemetry.report(name, self._stamp(name), reading, 0.0)

    def _pull(self) -> None:
        random, images = self.random, self.state.images
        if random.random() < 0.3:
            return
        for number, image in enumerate(("docker.io/library/web:1", "reg.example/db:2")):
            own = (
                {arch: tuple(random.sample(LAYERS, 3)) for arch in ("arm64", "amd64")}
                if random.random() < 0.6
                else {"": tuple(random.sample(LAYERS, 4))}
            )
            images.learn(image, f"{image.rpartition(':')[0]}@sha256:{number:064x}", own)
        for pod, node in list(self.state.pods()):
            if node is None or node not in self.names or random.random() < 0.4:
                continue
            image = f"docker.io/library/{pod.images[0]}" if pod.images else "x"
            images.observe(ImagePull(node, pod.uid, image))
            self.clock.time_s += random.uniform(0.1, 5)
            if random.random() < 0.6:
                images.observe(ImagePull(node, pod.uid, image, random.uniform(0.5, 9), 25.0))

    def _place(self) -> None:
        """Some pods are placed and assumed, as a run before."""
        random = self.random
        pending = [pod for pod, node in self.state.pods() if node is None and pod.is_pending]
        if random.random() < 0.5 and pending:
            self.state.recent.use_usage({workload_of(pending[0]): (0.3, 2.5e8)})
            self.state.use_traffic(self._traffic(pending))
        for pod in pending[:-1]:
            if random.random() < 0.4:
                view = self.step.view_in_run(pod)
                decision = self.step.decide(view, pod)
                if decision.node is not None:
                    charge = self.step.charge(view, pod, decision.node)
                    self.state.assume(pod, decision.node, decision.volumes(), charge)

    def _traffic(self, pods: list[Pod]) -> Traffic:
        """They all talk to the first of them, which talks to a node and to an address."""
        first, node = pods[0], self.names[0]
        to_first = PeerTraffic(workload_of(first), workload_name(first), 2.5, 1.0, 30.25)
        outside = (
            PeerTraffic(node, f"node/{node}", 0.5, 0.0, 0.0),
            PeerTraffic(node, "198.51.100.7", 0.25, 1.0, 2.0),
        )
        peers = {workload_of(pod): (to_first,) for pod in pods} | {workload_of(first): outside}
        return Traffic(peers, {"198.51.100.7": node}, {node: 3.5})

    def _keep_room(self) -> None:
        random = self.random
        pending = [pod for pod, node in self.state.pods() if node is None and pod.is_pending]
        for pod in pending:
            if random.random() < 0.15:
                self.state.nominate(pod.uid, random.choice(self.names))
            if random.random() < 0.15:
                kept = Reservation(pod, random.choice(self.names), None, "room was made")
                self.state.reserve(kept)
        for pod, node in list(self.state.pods()):
            if node is not None and not pod.finished and random.random() < 0.15:
                target = random.choice(self.names)
                if target != node:
                    self.state.reserve(Reservation(pod, target, node, "it is better there"))

    def show_pod(self, pod: Pod) -> None:
        """The watch shows a pod."""
        self.state.apply(PodChanged(pod))


def distance(a: str, b: str) -> int:
    """The same in both directions, whatever the hash seed, ms."""
    return sum(map(ord, a)) * sum(map(ord, b)) % 83

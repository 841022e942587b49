"""Boards that run what is placed on them and report means each ten seconds, for the state of a
controller. One clock for all, seconds; the wall clock is `WALL_S` ahead of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, inf

import numpy as np
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.assumed_load import PodUse
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.ports import PodChanged, PodDeleted, Relisted
from leadline_controller.framework.view import ClusterView
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.link_bandwidth import LinkBandwidth
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

WALL_S = 1_700_000_000.0
INTERVAL_S = 10.0
CORES, MEMORY_BYTES = 4.0, 4.0 * 1024**3
IDLE = {
    "cpu_percent": (2.0, 0.5),
    "memory_percent": (20.0, 0.3),
    "packets_sent_per_s": (20.0, 3.0),
    "packets_received_per_s": (20.0, 3.0),
    "disk_bytes_per_s": (5000.0, 1500.0),
}
REAL = PodUse(0.05, 50.0 * 1024**2, 5.0, 5.0, 500.0)


@dataclass
class _Running:
    use: PodUse
    start_s: float
    end_s: float = inf


class Controller:
    """What one controller knows: the API objects and reports that it was shown."""

    def __init__(self, *, assumes_load: bool = True) -> None:
        self.boards: LoadedBoards | None = None  # whose clock it has
        self.state = ClusterState(
            assumes_load=assumes_load, unix_offset_s=lambda: WALL_S, now_s=self.now_s
        )
        self.telemetry = TelemetryState(TimesToLive())

    def now_s(self) -> float:
        return 0.0 if self.boards is None else self.boards.now_s

    def view(self, now_s: float) -> ClusterView:
        return self.state.view(self.telemetry, now_s)


class LoadedBoards:
    """`count` equal boards whose idle values are drawn, seen by `controllers`. starts_s: how long
    after its binding a pod runs. noise: factor of how much their values vary. mbps: of their links,
    by default drawn near 93. rtt_ms: between each and the next two, None if not measured."""

    def __init__(
        self,
        count: int,
        seed: int,
        controllers: Sequence[Controller],
        *,
        starts_s: float = 2.0,
        noise: float = 1.0,
        mbps: Sequence[float] = (),
        rtt_ms: float | None = None,
    ) -> None:
        self.controllers = controllers
        self.now_s = 0.0
        self.names = [f"n{number:03}" for number in range(count)]
        self.pods: dict[str, tuple[Pod, str]] = {}
        self._random = np.random.default_rng(seed)
        self._noise = noise
        self._starts_s = starts_s
        self._running: dict[str, dict[str, _Running]] = {name: {} for name in self.names}
        self.phase_s = dict(
            zip(self.names, self._random.uniform(0, INTERVAL_S, count).tolist(), strict=True)
        )
        self.ahead_s = dict.fromkeys(self.names, 0.0)  # of each board's wall clock
        self.silent: set[str] = set()  # boards that do not report
        self._sent = 0
        self._mbps = mbps or self._random.normal(93, 1, count).tolist()
        self._rtt_ms = rtt_ms
        for each in controllers:
            self._introduce(each)
        self.run(2 * INTERVAL_S)

    def run(self, seconds: float) -> None:
        """Let time pass; boards report, containers start, and controllers look once a second."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            step_s = min(0.5, end_s - self.now_s)
            before_s, self.now_s = self.now_s, self.now_s + step_s
            for name in self.names:
                due = floor((self.now_s - self.phase_s[name]) / INTERVAL_S)
                at_s = due * INTERVAL_S + self.phase_s[name]
                if before_s < at_s <= self.now_s and name not in self.silent:
                    self._report(name, at_s)
            for pod, node in list(self.pods.values()):
                running = self._running[node][pod.uid]
                if pod.runs_s is None and running.start_s <= self.now_s:
                    unix_s = WALL_S + running.start_s + self.ahead_s[node]
                    shown = replace(pod, runs_s=float(floor(unix_s)))
                    self._show(shown, node)
            for each in self.controllers:
                each.state.look(each.telemetry, self.now_s)

    def place(self, pod: Pod, rule: Rule, use: PodUse = REAL, within_s: float = 0.02) -> str:
        """Decide on a pod as the first controller, which binds it; returns its node."""
        leader = self.controllers[0]
        for each in self.controllers:
            each.state.apply(PodChanged(pod))
        decision = decide(leader.view(self.now_s), pod, rule)
        assert decision.node is not None, decision.why
        leader.state.assume(pod, decision.node)
        self.bind(pod, decision.node, use)
        self.run(within_s)
        return decision.node

    def bind(self, pod: Pod, node: str, use: PodUse = REAL) -> None:
        """Whoever has bound the pod: its containers start soon."""
        self._running[node][pod.uid] = _Running(use, self.now_s + self._starts_s)
        bound_s = float(floor(WALL_S + self.now_s))
        self._show(replace(pod, node_name=node, bound_s=bound_s), node)

    def delete(self, uid: str) -> None:
        """The pod ends, and its object goes."""
        pod, node = self.pods.pop(uid)
        self._running[node][uid].end_s = self.now_s
        for each in self.controllers:
            each.state.apply(PodDeleted(pod))

    def join(self, controller: Controller) -> None:
        """A controller that has just started lists what the API server has, and gets the reports
        from now on."""
        self._introduce(controller)
        self.controllers = (*self.controllers, controller)

    def counts(self) -> list[int]:
        """Pods on each board."""
        on = [node for _, node in self.pods.values()]
        return [on.count(name) for name in self.names]

    def _introduce(self, controller: Controller) -> None:
        """What a controller lists at its start, the births of the boards' agents, and what was
        measured of the boards' links."""
        controller.boards = self
        amounts = {CPU: round(CORES * 1000), MEMORY: round(MEMORY_BYTES), PODS: 110}
        nodes = tuple(Node(name, amounts) for name in self.names)
        telemetry = controller.telemetry
        controller.state.apply(Relisted(nodes, tuple(pod for pod, _ in self.pods.values()), ()))
        telemetry.set_members(set(self.names), self.now_s)
        for name, mbps in zip(self.names, self._mbps, strict=True):
            telemetry.birth(Agent(name, interval_s=10), self._stamp(0.0))
            slot = telemetry._boards.by_name[name].slot
            telemetry._columns.set_bandwidth(slot, LinkBandwidth(mbps, 0.0))
        if self._rtt_ms is not None:
            self._ping(telemetry, self._rtt_ms)

    def _show(self, pod: Pod, node: str) -> None:
        self.pods[pod.uid] = pod, node
        for each in self.controllers:
            each.state.apply(PodChanged(pod))

    def _stamp(self, at_s: float) -> Stamp:
        self._sent += 1
        return Stamp(bytes(16), 1, self._sent, self._sent, at_s)

    def _ping(self, telemetry: TelemetryState, rtt_ms: float) -> None:
        for at, name in enumerate(self.names):
            peers = [self.names[(at + step) % len(self.names)] for step in (1, 2)]
            drawn_ms = self._random.normal(rtt_ms, 0.1 * rtt_ms, 2).tolist()
            rounds = {p: PingRound(ms, 2, 0) for p, ms in zip(peers, drawn_ms, strict=True)}
            telemetry.rtts(name, self._stamp(0.0), rounds)

    def _report(self, name: str, at_s: float) -> None:
        begin_s = at_s - INTERVAL_S
        used = np.zeros(len(IDLE))
        for each in self._running[name].values():
            ran = max(0.0, min(each.end_s, at_s) - max(each.start_s, begin_s)) / INTERVAL_S
            is_there = each.start_s <= at_s < each.end_s
            cpu = 100 * each.use.cpu_cores / CORES
            memory = 100 * each.use.memory_bytes / MEMORY_BYTES
            used += np.array([ran * cpu, is_there * memory, *(ran * np.nan_to_num(each.use[2:]))])
        values = {
            metric: max(0.0, mean + more + self._noise * deviation * self._random.standard_normal())
            for (metric, (mean, deviation)), more in zip(IDLE.items(), used, strict=True)
        }
        stamp = self._stamp(at_s)
        for controller in self.controllers:
            controller.telemetry.report(name, stamp, BoardReading(values), self.ahead_s[name])


def pods(count: int, app: str = "web") -> list[Pod]:
    """Pods of one workload without requests."""
    return [
        Pod("default", f"{app}-{number}", f"{app}-{number}", {PODS: 1}, labels={"app": app})
        for number in range(count)
    ]

"""Hours of a simulated cluster with load, recorded from the real parts of its controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from leadline_controller.framework.model import CPU, MEMORY, Pod, PodAnnotations
from leadline_controller.history.recorded import Entry
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.day_boards import Board, Plan
from tests.endurance import simulated
from tests.endurance.boards import EnduringBoards
from tests.endurance.loop import SimulatedLoop
from tests.endurance.process import Process
from tests.endurance.simulated import Endurance, LogCount, Run
from tests.support.taps import tap

REPORT_EVERY_S, ESTIMATE_EVERY_S = 10.0, 900.0
_USED = 0.6  # of what pods request


@dataclass(frozen=True, slots=True)
class LoadedRun(Run):
    """Boards report as often as real ones, and show what runs on them."""

    strategy: str = "dacs"

    def plan(self) -> Plan:
        slow = Run.plan(self)
        ttl = replace(slow.ttl, report_s=60.0)
        return replace(slow, report_every_s=REPORT_EVERY_S, ttl=ttl)


class _LoadedBoards(EnduringBoards):
    """Boards whose reports have the CPU, memory and packets of their pods. used: of a board."""

    used: Any = None

    def report(self, board: Board) -> None:
        if board.is_running:
            cpu, memory, pods = self.used(board.name)
            chance = self._chance
            interface = pb.NetworkInterface(
                name="eth0",
                link_mbps=board.interface_mbps,
                packets_sent_per_s=20 + 5 * pods + chance.uniform(-3, 3),
                packets_received_per_s=20 + 5 * pods + chance.uniform(-3, 3),
            )
            report = pb.Report(
                cpu=pb.Cpu(busy_percent=min(3 + 100 * cpu + chance.uniform(-1, 1), 100.0)),
                memory=pb.Memory(
                    total_bytes=2**30, available_bytes=int(2**30 * max(0.8 - memory, 0.01))
                ),
                network=[interface],
            )
            self._publish(board, topics.Kind.REPORT, report)
        self.after(self.plan.report_every_s, partial(self.report, board))


class _RecordedHours(Endurance):
    """Its pods belong to services, have users and data, and their containers start."""

    def __init__(self, run: LoadedRun, folder: Path, loop: SimulatedLoop, log: LogCount) -> None:
        super().__init__(run, folder, loop, log)
        assert isinstance(self.boards, _LoadedBoards)
        self.boards.used = self._used
        self._settings = replace(self._settings, strategy=run.strategy)
        server, put_pod = self.server, self.server.put_pod
        names = [board.name for board in self.boards.boards]

        def dressed(pod: Pod) -> Pod:
            if pod.node_name is None and not pod.annotations.user_node:
                at = int(pod.name[1:])
                user, data_mb = names[at % 3 * 5 % len(names)], float(at % 4)
                notes = PodAnnotations(user_node=user, data_mb=data_mb, response_time_ms=200.0)
                labels = {**pod.labels, "app": f"service-{at % 7}"}
                pod = replace(pod, annotations=notes, labels=labels)
            if pod.ready and pod.runs_s is None:
                unix_s = float(int(self._unix_s()))
                pod = replace(pod, runs_s=unix_s, started_s=unix_s)
            return put_pod(pod)

        server.put_pod = dressed  # type: ignore[method-assign]

    def _used(self, name: str) -> tuple[float, float, int]:
        room: Mapping[str, int] = self.server._nodes[name].allocatable
        pods = [p for p in self.server._pods.values() if p.node_name == name and p.ready]
        cpu, memory = (
            _USED * sum(pod.requests[key] for pod in pods) / room[key] for key in (CPU, MEMORY)
        )
        return cpu, memory, len(pods)


@contextmanager
def _tapped(recorded: list[list[Entry]]) -> Iterator[None]:
    begun = Process.__init__

    def begin(self: Process, *args: Any) -> None:
        begun(self, *args)
        recorded.append(tap(self.controller, self._unix_s()))

    with (
        patch.object(Process, "__init__", begin),
        patch.object(simulated, "EnduringBoards", _LoadedBoards),
        patch.object(simulated, "Endurance", _RecordedHours),
    ):
        yield


def record(run: LoadedRun, folder: Path) -> list[Entry]:
    """Let the hours pass, and return what the controller learnt and decided."""
    recorded: list[list[Entry]] = []
    with _tapped(recorded):
        found = simulated.simulate(run, folder)
    assert not found.book.violations, found.book.lines
    (entries,) = recorded
    return entries

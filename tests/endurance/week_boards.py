"""The boards of a simulated week: four sites, links that get slower and recover, and load that
changes over the day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from math import cos, hypot, pi
from random import Random

from leadline_controller.framework.model import CPU, MEMORY, PODS, Node
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.probing.budgets import Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.telemetry.state import TimesToLive
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.day_boards import Board, Plan
from tests.endurance.boards import EnduringBoards
from tests.endurance.bookkeeper import Bookkeeper
from tests.endurance.churn import HOSTNAME
from tests.endurance.loop import SimulatedLoop
from tests.endurance.members import Members

HOUR_S, DAY_S = 3600.0, 86_400.0
# Where sites are, as ms of round trip, and which share of the boards is there.
_SITES = (((0.0, 0.0), 0.4), ((6.0, 0.0), 0.3), ((0.0, 15.0), 0.2), ((40.0, 10.0), 0.1))
CORES, _GIB = 4, 2**30
# Times of one piece of work on the classes of boards, beside those of the first.
CLASSES = {"new": 1.0, "old": 1.8}
# Of a report's share of busy cores, and of what else a board has in use.
_NOISE, _BASE_BUSY, _BASE_MEMORY = 0.03, 0.05, 0.2


def plan(boards: int, hours: float, seed: int) -> Plan:
    """Of the boards. Reports, checks and pings are rarer than by default, because they take most of
    the time; values live as much longer."""
    return Plan(
        boards=boards,
        hours=hours,
        seed=seed,
        report_every_s=120.0,
        limits=ProbeLimits(interval_s=600.0, ping_interval_s=300, ping_peers=8, ping_ttl_s=1200),
        ttl=TimesToLive(report_s=360.0, rtt_s=2400.0),
    )


def day_share(at_s: float, busiest_h: float) -> float:
    """How much of its most a load has at this time of the day, 0.1 to 1."""
    return 0.55 + 0.45 * cos(2 * pi * (at_s - busiest_h * HOUR_S) / DAY_S)


class WeekBoards(EnduringBoards):
    """busy: the share of a board's cores that pods use, and memory: that of its memory, by name."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, book: Bookkeeper) -> None:
        self.slower_ms: defaultdict[str, float] = defaultdict(float)
        self.extra_busy: defaultdict[str, float] = defaultdict(float)
        self.busy: Callable[[str], float] = lambda _: 0.0
        self.memory: Callable[[str], float] = lambda _: 0.0
        super().__init__(plan, loop, book)

    def _network(self) -> tuple[list[Board], tuple[Uplink, ...]]:
        boards, _ = super()._network()
        places = [place for place, share in _SITES for _ in range(round(share * len(boards)))]
        for board, place in zip(boards, places, strict=True):
            board.place, board.behind = place, frozenset()
            board.mbps = board.full_mbps = self.random.choice((90.0, 90.0, 40.0, 900.0))
            board.interface_mbps = 1000
        return boards, ()

    def true_rtt_ms(self, a: str, b: str) -> float:
        """What a packet needs there and back now."""
        if a == b:
            return 0.0
        one, other = self.by_name[a], self.by_name[b]
        between = hypot(one.place[0] - other.place[0], one.place[1] - other.place[1])
        # In the evening the ways between sites are busy.
        evening = 1.0 + 0.3 * max(0.0, day_share(self._loop.now_s, 20.0) - 0.7)
        return 0.4 + between * evening + self.slower_ms[a] + self.slower_ms[b]

    def _rtt_ms(self, a: Board, b: Board) -> float:
        return self.true_rtt_ms(a.name, b.name)

    def true_busy(self, name: str) -> float:
        """The share of the board's cores that are in use now, 0 to 1."""
        return min(_BASE_BUSY + self.extra_busy[name] + self.busy(name), 1.0)

    def report(self, board: Board) -> None:
        """With CPU and memory, and again after the interval."""
        if board.is_running:
            name, noise = board.name, self.random.gauss(0.0, _NOISE)
            busy = min(max(self.true_busy(name) + noise, 0.0), 1.0)
            used = min(_BASE_MEMORY + self.memory(name) + self.random.gauss(0.0, 0.01), 0.99)
            message = pb.Report(
                cpu=pb.Cpu(busy_percent=100.0 * busy),
                memory=pb.Memory(total_bytes=_GIB, available_bytes=round(_GIB * (1.0 - used))),
                network=[pb.NetworkInterface(name="eth0", link_mbps=board.interface_mbps)],
            )
            self._publish(board, topics.Kind.REPORT, message)
        self.after(self.plan.report_every_s, partial(self.report, board))


class WeekMembers(Members):
    """Boards of four cores, with what happens to links and boards in a week."""

    def node_of(self, board: Board) -> Node:
        """Every third board is of the old class."""
        return Node(
            board.name,
            allocatable={CPU: 1000 * CORES, MEMORY: _GIB, PODS: 30},
            labels={HOSTNAME: board.name, CLASS_LABEL: _class_of(board.name)},
            addresses=(board.address,),
        )

    def slower(self, name: str) -> float:
        """How many times as long work takes on this board."""
        return CLASSES[_class_of(name)]


def _class_of(name: str) -> str:
    return "old" if int(name[1:]) % 3 == 2 else "new"


class Weather:
    """What makes links slower and boards busier for a while, each with its rate: how often in a day
    of one board."""

    def __init__(self, boards: WeekBoards, random: Random) -> None:
        self._boards, self._random = boards, random
        self.rates: dict[str, tuple[float, Callable[[Board], None]]] = {
            "links that became slower": (0.5, self._slow),
            "boards with other work": (3.0, self._work),
        }

    def _slow(self, board: Board) -> None:
        """For 20 minutes to 4 hours."""
        more_ms = self._random.uniform(5.0, 80.0)
        self._for(self._random.uniform(1200.0, 4 * HOUR_S), self._boards.slower_ms, board, more_ms)

    def _work(self, board: Board) -> None:
        """Updates and backups, for 2 to 20 minutes; some for an hour."""
        long_s = self._random.choice((120.0, 300.0, 600.0, 1200.0, HOUR_S))
        self._for(long_s, self._boards.extra_busy, board, self._random.uniform(0.2, 0.9))

    def _for(self, long_s: float, of: defaultdict[str, float], board: Board, more: float) -> None:
        of[board.name] += more

        def over() -> None:
            of[board.name] = max(of[board.name] - more, 0.0)

        self._boards.after(long_s, over)

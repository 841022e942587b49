"""A day in the life of a cluster, simulated: the real controller's probing, and what goes wrong.

Real: ProbeScheduler with its planner and grants, TelemetryIngestor and TelemetryState. Simulated:
the boards and their network, see day_boards.py; restarts of controllers, deaths of agents, boards
that leave, clocks that are set and links that become slow. An auditor sees the transfers only.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from leadline_controller.framework.model import Node
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState
from leadline_wire import topics

from tests.controller.probing.day_boards import CLUSTER, Board, Boards, Plan

_AUDIT_EVERY_S = 60.0
# So long may a board that came, or one under a new leader, wait for its first test.
_GRACE_S = 300.0
_TICK_S, _BUSY_LEASES = 0.5, 100
_NOTICED_SHARE = 0.25
# The reasons why nothing fresh may be known of a board's bandwidth.
KNOWN, NEW_BOARD, NEW_LEADER = "known", "came < 5 min ago", "new leader < 5 min ago"
METERED, OVERDUE = "alone behind a metered uplink", "no reason"


class _Controller:
    """One controller process."""

    def __init__(self, day: "Day") -> None:
        self.telemetry = TelemetryState(day.plan.ttl)
        self.scheduler = ProbeScheduler(
            self.telemetry,
            day.send,
            ProbeSettings(day.plan.limits, day.plan.budget, day.uplinks),
            lambda: day.nodes,
        )
        self.ingestor = TelemetryIngestor(CLUSTER, self.telemetry, self.scheduler)


class Day(Boards):
    """One run, with its controllers and faults."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.noticed_s: list[float] = []
        self.nodes: dict[str, Node] = {}
        self._members: frozenset[str] = frozenset()
        self._throttled: dict[str, float] = {}
        self._controllers = [_Controller(self)]
        self._leader: _Controller | None = self._controllers[0]
        self._led_since_s = 0.0

    def ingestors(self) -> list[TelemetryIngestor]:
        return [each.ingestor for each in self._controllers]

    def run(self) -> None:
        """Let the day pass."""
        plan, random = self.plan, self.random
        for board in self.boards:
            self._join(board)
            self.at(random.uniform(0, plan.report_every_s), partial(self.report, board))
        for rate, event in (
            (plan.deaths * plan.boards, self._kill_one),
            (plan.departures * plan.boards, self._remove_one),
            (plan.clock_steps * plan.boards, self._set_one_clock),
            (plan.throttlings, self._throttle_one),
        ):
            if rate:
                self.at(random.expovariate(rate / 3600), partial(self._again, rate, event))
        self.at(0.0, self._tick)
        self.at(plan.estimate_every_s, self._estimate)
        self.at(_AUDIT_EVERY_S, self._check_ages)
        self.at(plan.leader_every_s, self._change_leader)
        self.run_events(plan.hours * 3600)

    def _again(self, rate: float, event: Callable[[], None]) -> None:
        event()
        self.after(self.random.expovariate(rate / 3600), partial(self._again, rate, event))

    # Controllers.

    def _tick(self) -> None:
        before = self.counts["leases"]
        for controller in self._controllers:
            fetched = controller.telemetry.set_members(self._members, self.now_s)
            for node in fetched:
                self._deliver_retained(controller, node)
            if controller is self._leader:
                controller.scheduler.tick(self.now_s)
            else:
                controller.scheduler.tick_as_standby(self.now_s)
        self._watch_throttled()
        # While there is more to do than one tick does, ticks are as close as the controller's.
        is_busy = self.counts["leases"] - before >= _BUSY_LEASES
        self.after(min(_TICK_S, self.plan.tick_s) if is_busy else self.plan.tick_s, self._tick)

    def _estimate(self) -> None:
        for controller in self._controllers:
            controller.telemetry.estimate_rtts(self.now_s)
        self.after(self.plan.estimate_every_s, self._estimate)

    def _deliver_retained(self, controller: _Controller, node: str) -> None:
        for kind in (topics.Kind.STATUS, topics.Kind.BIRTH):
            topic = topics.topic(CLUSTER, node, kind)
            if topic in self.retained:
                controller.ingestor.ingest(
                    topic, self.retained[topic], topics.SCHEMA, -inf, retained=True
                )

    def _new_controller(self) -> _Controller:
        controller = _Controller(self)
        self._controllers.append(controller)
        for board in self.boards:
            self._deliver_retained(controller, board.name)
        return controller

    def _change_leader(self) -> None:
        """In turn: a restart; a standby that takes over; a leader that is replaced and later leads
        again."""
        plan, random, old = self.plan, self.random, self._leader
        kind = self.counts["changes of leader"] % 3
        self.counts["changes of leader"] += 1
        self._leader = None
        if kind == 0:
            self._controllers.clear()
            self.after(random.choice((0.0, 3.0, 20.0)), lambda: self._lead(self._new_controller()))
        else:
            standby = self._new_controller()
            self.after(random.choice((0.0, 0.5, 15.0)), partial(self._lead, standby))
            if kind == 1 and old in self._controllers:
                self._controllers.remove(old)
            elif old is not None:
                self.after(120.0, partial(self._lead_again, old, standby))
        self.after(plan.leader_every_s * random.uniform(0.8, 1.2), self._change_leader)

    def _lead(self, controller: _Controller) -> None:
        if self._leader is None and controller in self._controllers:
            controller.telemetry.set_members(self._members, self.now_s)
            controller.scheduler.on_started_leading(self.now_s)
            self._leader, self._led_since_s = controller, self.now_s
            controller.scheduler.tick(self.now_s)

    def _lead_again(self, old: _Controller, standby: _Controller) -> None:
        if self._leader is standby and old in self._controllers:
            self._leader = None
            self._lead(old)
            self._controllers.remove(standby)

    # Faults.

    def _kill_one(self) -> None:
        """An agent dies, half of the time while it has a lease, and comes back after a while."""
        running = [board for board in self.random.sample(self.boards, min(200, self.plan.boards))
                   if board.is_running]  # fmt: skip
        leased = [board for board in running if board.bandwidth.lease]
        if not running:
            return
        board = self.random.choice(leased if leased and self.random.random() < 0.5 else running)
        self.counts["agents died"] += 1
        self.counts["agents died with a lease"] += board.bandwidth.lease is not None
        self.stop_agent(board)
        delay_s = self.random.expovariate(1 / 60)
        rebooted = self.random.random() < 0.5
        self.after(delay_s, partial(self._restart, board, rebooted))

    def _restart(self, board: Board, rebooted: bool) -> None:
        if board.is_member and not board.is_running:
            self.start_agent(board, rebooted=rebooted)

    def _join(self, board: Board) -> None:
        board.is_member = True
        self.nodes[board.name] = Node(board.name, allocatable={}, addresses=(board.address,))
        self._members = frozenset(self.nodes)
        if not board.is_running:
            with self.agents_clock():
                self.start_agent(board, rebooted=board.boot > 0)

    def _remove_one(self) -> None:
        """A board is taken away. It comes back within an hour."""
        board = self.random.choice(self.boards)
        if not board.is_member:
            return
        self.counts["boards left"] += 1
        if board.is_running:
            self.stop_agent(board)
        board.is_member = False
        del self.nodes[board.name]
        self._members = frozenset(self.nodes)
        board.boot += 1
        self.after(self.random.uniform(60, 3600), partial(self._join, board))

    def _set_one_clock(self) -> None:
        """NTP sets a wall clock by minutes."""
        board = self.random.choice(self.boards)
        board.wall_s, board.clock_set_s = self.random.uniform(-600, 600), self.now_s
        self.counts["wall clocks set"] += 1

    def _throttle_one(self) -> None:
        board = self.random.choice(self.boards)
        if board.is_throttled:
            return
        board.is_throttled = True
        board.mbps = max(2.0, board.full_mbps * self.random.choice((0.05, 0.1, 0.3)))
        self.counts["links throttled"] += 1
        if board.is_running and not self._is_metered(board):
            self._throttled[board.name] = self.now_s
        self.after(self.random.uniform(300, 1800), partial(self._release, board))

    def _release(self, board: Board) -> None:
        board.mbps, board.is_throttled = board.full_mbps, False
        if self._throttled.pop(board.name, None) is not None:
            self.noticed_s.append(inf)

    def _watch_throttled(self) -> None:
        """Note how long it took until a throttled link was believed to be slow."""
        if self._leader is None or not self._throttled:
            return
        for link in self._leader.telemetry.node_links(list(self._throttled), self.now_s):
            board = self.by_name[link.name]
            known = link.bandwidth
            if not board.is_running:
                del self._throttled[link.name]
            elif known and known.mbps <= (1 + _NOTICED_SHARE) * board.mbps:
                self.noticed_s.append(self.now_s - self._throttled.pop(link.name))

    # The audit of ages.

    def _check_ages(self) -> None:
        """Whether the leader knows each board's bandwidth, and for how long."""
        self.after(_AUDIT_EVERY_S, self._check_ages)
        running = [board for board in self.boards if board.is_member and board.is_running]
        if self._leader is None:
            self.audit.minutes[NEW_LEADER] += len(running)
            return
        ttl_s = self._leader.telemetry.ttl.bandwidth_s
        links = self._leader.telemetry.node_links([each.name for each in running], self.now_s)
        for board, link in zip(running, links, strict=True):
            known = link.bandwidth
            if known is not None and self.now_s - known.at_s <= ttl_s:
                self.audit.minutes[KNOWN] += 1
                self.audit.ages_s.append(self.now_s - known.at_s)
                continue
            reason = (
                NEW_LEADER
                if self.now_s - self._led_since_s < _GRACE_S
                else NEW_BOARD
                if self.now_s - board.since_s < _GRACE_S
                else METERED
                if self._is_metered(board)
                else OVERDUE
            )
            self.audit.minutes[reason] += 1
            if reason is OVERDUE:
                self.audit.overdue.append(f"{self.now_s:.0f} s: {board.name} {board.mbps} Mbit/s")

    def _is_metered(self, board: Board) -> bool:
        """Whether each test of the board needs an uplink with a byte limit of its own."""
        for name in board.behind:
            uplink = self.uplinks_of[name]
            if uplink.bytes_per_day is not None and not any(
                self.by_name[other].is_running for other in uplink.nodes - {board.name}
            ):
                return True
        return False

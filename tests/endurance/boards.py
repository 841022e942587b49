"""The boards of a simulated endurance run, and the broker between them and controllers.

Boards, their agents and their network are those of the simulated day (tests/controller/probing);
here a broker goes away, and forgets what it retained or not. Agents buffer meanwhile.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from math import inf
from random import Random

from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerStatus
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.day_audit import DAY_S, HOUR_S, SAVED_LINK_S, Auditor
from tests.controller.probing.day_boards import CLUSTER, Board, Boards, Plan
from tests.endurance.bookkeeper import Allowance, Bookkeeper, LinkLedger
from tests.endurance.loop import SimulatedLoop

_BUFFERED = 32
_RECONNECT_S = 15.0


class SmallAuditor(Auditor):
    """The auditor of transfers, with sums that are checked at once in place of all transfers."""

    def __init__(self, auditor: Auditor, book: Bookkeeper) -> None:
        super().__init__(auditor.allowances)
        self._book = book
        self._promised = {
            name: Allowance(
                each.share * HOUR_S + SAVED_LINK_S,
                each.share * DAY_S + SAVED_LINK_S,
                each.bytes_per_day,
            )
            for name, each in auditor.allowances.items()
        }
        self._ledgers: defaultdict[str, LinkLedger] = defaultdict(LinkLedger)

    def end(self, takers: dict[str, float], transfer: str, moved: float, now_s: float) -> None:
        for taker, mbps in takers.items():
            if self._active.get(taker) == transfer:
                del self._active[taker]
            ledger = self._ledgers[taker]
            ledger.add(now_s, moved * 8e-6 / mbps, moved)
            if excess := ledger.excess(self._promised[taker]):
                self._book.violated("a budget of bandwidth exceeded", now_s, f"{taker}: {excess}")

    def report(self, now_s: float) -> None:
        """Tell the bookkeeper what was found since the last time."""
        for what, found in (
            ("bandwidth tests overlap", self.overlaps),
            ("leases of two leaders on a board at once", self.conflicts),
            ("a probe lease ran twice", self.replays),
        ):
            for line in found:
                self._book.violated(what, now_s, line)
            found.clear()
        self.early.clear()  # refused by the board, so nothing overlaps


class Session:
    """A controller's session with the broker, in place of telemetry.session.BrokerSession."""

    def __init__(
        self, boards: EnduringBoards, ingestor: TelemetryIngestor, now_s: Callable[[], float]
    ) -> None:
        self._boards, self._ingestor, self._now_s = boards, ingestor, now_s
        self._is_running = self.connected = False
        self._since_s = now_s()

    def start(self) -> None:
        self._is_running = True
        self._boards.sessions.append(self)
        self.reconnect()

    def stop(self) -> None:
        self._is_running = self.connected = False
        if self in self._boards.sessions:
            self._boards.sessions.remove(self)

    def reconnect(self) -> None:
        """Connect if the broker is there; all that it retains comes first."""
        if self._is_running and self._boards.is_broker_up and not self.connected:
            self.connected, self._since_s = True, self._now_s()
            for topic, payload in list(self._boards.retained.items()):
                self._ingestor.ingest(topic, payload, topics.SCHEMA, -inf, retained=True)

    def disconnect(self) -> None:
        self.connected, self._since_s = False, self._now_s()

    def receive(self, topic: str, payload: bytes, held_s: int) -> None:
        if self.connected:
            at_s = self._now_s() - held_s
            self._ingestor.ingest(topic, payload, topics.SCHEMA, at_s, retained=False)

    def send(self, lease: pb.Lease) -> None:
        if self.connected:
            self._boards.send(lease)

    def retain(self, topic: str, payload: bytes, expiry_s: int | None = None, qos: int = 0) -> None:
        pass

    def request_retained(self, nodes: Sequence[str]) -> None:
        if not self.connected:
            return
        for node in nodes:
            for kind in (topics.Kind.STATUS, topics.Kind.BIRTH):
                topic = topics.topic(CLUSTER, node, kind)
                if (payload := self._boards.retained.get(topic)) is not None:
                    self._ingestor.ingest(topic, payload, topics.SCHEMA, -inf, retained=True)

    def is_running(self) -> bool:
        return self._is_running

    def is_connected(self) -> bool:
        return self.connected

    def is_prompt(self) -> bool:
        return self.connected

    def check(self) -> None:
        pass

    def status(self) -> BrokerStatus:
        heard_s = self._now_s() if self.connected else None
        return BrokerStatus("simulated", self.connected, self._since_s, heard_s)


class EnduringBoards(Boards):
    """The boards, on the loop's clock, with a broker that has outages."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, book: Bookkeeper) -> None:
        self._loop = loop
        # Not that of the controller that sent a lease, which would keep it from being freed.
        self._context = copy_context()
        super().__init__(plan)
        self.small_audit = SmallAuditor(self.audit, book)
        self.audit = self.small_audit
        self.sessions: list[Session] = []
        self.is_broker_up = True
        self._buffers: defaultdict[str, deque[Callable[[], None]]] = defaultdict(
            lambda: deque(maxlen=_BUFFERED)
        )
        self._chance = Random(plan.seed + 1)

    def ingestors(self) -> list[TelemetryIngestor]:
        return []  # messages go to the sessions

    def at(self, when_s: float, event: Callable[[], None]) -> None:
        self._loop.call_at(when_s, self._happen, event, context=self._context)

    def _happen(self, event: Callable[[], None]) -> None:
        self.now_s = self._loop.now_s
        event()

    def send(self, lease: pb.Lease) -> None:
        self.now_s = self._loop.now_s
        super().send(lease)

    def _receive(self, topic: str, payload: bytes, kind: topics.Kind, held_s: int) -> None:
        if not self.is_broker_up:
            if topics.DELIVERY[kind].retain:
                return  # the agent says it again when it is connected
            # Stamped when it is sent, so that its age is right.
            sent_s, node = self.now_s, topics.parse(topic).node
            self._buffers[node].append(partial(self._resend, topic, payload, kind, sent_s))
            return
        if topics.DELIVERY[kind].retain:
            self.retained[topic] = payload
        for session in self.sessions:
            session.receive(topic, payload, held_s)

    def _resend(self, topic: str, payload: bytes, kind: topics.Kind, sent_s: float) -> None:
        board = self.by_name[topics.parse(topic).node]
        if board.is_running:
            boot_ms = round((self.now_s + board.clock_s) * 1000)
            self._receive(topic, codec.stamp_sent(kind, payload, boot_ms), kind, 0)

    def stop_broker(self, *, forgets: bool) -> None:
        """It is away. forgets: what it retained is lost, too."""
        self.is_broker_up = False
        if forgets:
            self.retained.clear()
        for session in self.sessions:
            session.disconnect()

    def start_broker(self) -> None:
        """It is back; controllers and agents connect within seconds."""
        self.is_broker_up = True
        for session in self.sessions:
            self.at(self._loop.now_s + self._chance.uniform(0.5, 15.0), session.reconnect)
        for board in self.boards:
            delay_s = self._chance.uniform(0.5, _RECONNECT_S)
            self.at(self._loop.now_s + delay_s, partial(self._reconnected, board, board.session))

    def _reconnected(self, board: Board, session: int) -> None:
        if not board.is_running or board.session != session or not self.is_broker_up:
            return
        self._clock_of = board
        for resend in self._buffers.pop(board.name, ()):
            resend()
        self._status(board, online=True)
        birth = pb.Birth(address=board.address, probes=["icmp", "iperf3"])
        self._publish(board, topics.Kind.BIRTH, birth)

    def stop_agent(self, board: Board) -> None:
        self._buffers.pop(board.name, None)
        super().stop_agent(board)

    def flap(self, board: Board, times: int = 9, every_s: float = 20.0) -> None:
        """The board's link goes another way, and back, again and again."""
        near, far = board.place, (board.place[0] + 60.0, board.place[1])
        for turn in range(times):
            place = far if turn % 2 == 0 else near
            self.after(turn * every_s, partial(setattr, board, "place", place))
        self.after(times * every_s, partial(setattr, board, "place", near))

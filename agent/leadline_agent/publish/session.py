"""This agent's session with the broker: what is sent, in which order, and when to come back.

Every method is called from one thread, the loop's; so there are no locks. Messages leave in
the order in which they were measured, whatever the broker does, because receivers read a
gap or a step back in the numbers as a loss.
"""

import itertools
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from leadline_wire import codec, topics

from leadline_agent.publish.buffer import Buffer, BufferedMessage
from leadline_agent.publish.certificate import Certificate
from leadline_agent.publish.connection import (
    Acknowledged,
    Connected,
    Disconnected,
    Endpoint,
    Event,
    MessageReceived,
    MqttConnection,
    PahoConnection,
)
from leadline_agent.publish.encode import Encoder, LeaseError, lease
from leadline_agent.publish.identity import SessionLock, boot_id
from leadline_agent.sample import BandwidthResult, Board, Lease, Report, RttRound, boot_ms
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
MAX_IN_FLIGHT = 10  # messages on the way at a time
DRAIN_PER_S = 50.0  # after an outage a whole fleet comes back at once
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 2.0, 60.0
STABLE_S = 30.0  # a connection that lasted so long was a good one
# Across sessions too: after a reload, events of the old session's connection may still come.
_ATTEMPTS = itertools.count(1)
MAX_UNACKNOWLEDGED_S = 15.0  # so late an answer means that the broker may be gone already


def back_off_s(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row: full jitter below a doubling bound."""
    return draw() * min(MAX_BACK_OFF_S, FIRST_BACK_OFF_S * float(2 ** min(failures, 10)))


def explain_failure(
    event: Disconnected | Acknowledged, certificate: Certificate | None, node: str
) -> str:
    """Why the broker refused, with what this node can see in its own certificate."""
    why, is_refusal = (
        (event.reason, event.is_refusal)
        if isinstance(event, Disconnected)
        else (event.refusal, True)
    )
    if not (is_refusal and certificate):
        return why
    return f"{why} ({certificate.fault(node, datetime.now(UTC)) or certificate.identity})"


@dataclass(frozen=True, slots=True)
class _InFlight:
    number: int
    at_s: float
    was_only_one: bool


class Session:
    """Opened once per start of the agent; raises StateError when the state cannot be kept."""

    def __init__(
        self,
        endpoint: Endpoint,
        cluster: str,
        board: Board,
        node: str,
        state_dir: Path,
        buffer_max_bytes: int,
        post: Callable[[Event], None],
        connect: Callable[..., MqttConnection] = PahoConnection,
    ) -> None:
        self._endpoint = endpoint
        self._node = node
        self._board = board
        self._post = post
        self._new_link = connect
        self._lock = SessionLock(state_dir)
        self._boot_id = boot_id()
        self._encoder = Encoder(cluster, node, self._boot_id, self._lock.session)
        self._client_id = f"leadline-{cluster}-{node}"
        self._buffer = Buffer(state_dir / "buffer", buffer_max_bytes)
        self._connection: MqttConnection | None = None
        self._attempt = 0
        self._failures = 0
        self._is_connected = False
        self._connected_s = 0.0
        self._next_attempt_s = 0.0
        self._sent_number = 0
        self._birth_number = 0
        self._in_flight: dict[int, _InFlight] = {}
        self._tokens = float(MAX_IN_FLIGHT)
        self._tokens_s = 0.0
        self._rtts_ms: deque[float] = deque(maxlen=32)
        self.address = board.address

    def publish(self, sample: Report | RttRound | BandwidthResult) -> None:
        """Take a measurement over; it is sent as soon as there is a broker."""
        self._append(*self._encoder.sample(sample))

    def tick(self, now_s: float) -> None:
        """Do what is due: connect, or send what waits."""
        if self._connection is None and now_s >= self._next_attempt_s:
            self._connect()
        if self._is_connected:
            self._send(now_s)
            oldest = next(iter(self._in_flight.values()), None)
            if oldest and now_s - oldest.at_s > MAX_UNACKNOWLEDGED_S:
                self._buffer.spill()

    def due_s(self) -> float:
        """When `tick` has something to do next, if no event comes before."""
        if self._connection is None:
            return self._next_attempt_s
        if self._is_connected and self._has_room() and self._next():
            return self._tokens_s + max(0.0, 1 - self._tokens) / DRAIN_PER_S
        return float("inf")

    def flush(self) -> None:
        """Make the buffer on disk, if there is one, survive a power cut."""
        self._buffer.flush()

    def handle(self, event: Event) -> Lease | None:
        """Take an event of the connection in; returns the work if it was a lease."""
        match event:
            case MessageReceived():
                return self._work(event)
            case _ if event.attempt != self._attempt or self._connection is None:
                pass  # of a connection that is given up already
            case Connected():
                self._on_connected(event)
            case Disconnected():
                self._on_lost(event)
            case Acknowledged():
                self._on_confirmed(event)
        return None

    def broker_rtts_ms(self) -> list[float]:
        """Round trips to the broker since the last call, milliseconds. For any thread."""
        taken = []
        while self._rtts_ms:
            taken.append(self._rtts_ms.popleft())
        return taken

    def close(self, wait_for_event: Callable[[float], Event | None], timeout_s: float) -> None:
        """Say that this node is going offline, keep what is not confirmed, and disconnect."""
        try:
            if self._connection and self._is_connected:
                last = self._connection.publish(*self._encoder.status(online=False))
                self._await(last, wait_for_event, time.monotonic() + timeout_s)
            if self._connection:
                self._connection.close()
        finally:
            self._buffer.close()
            self._lock.close()

    def _await(
        self, message_id: int, wait_for_event: Callable[[float], Event | None], until_s: float
    ) -> None:
        while self._is_connected and (left_s := until_s - time.monotonic()) > 0:
            event = wait_for_event(left_s)
            if event and not isinstance(event, MessageReceived):
                self.handle(event)
            if isinstance(event, Acknowledged) and event.message_id == message_id:
                return

    def _append(self, topic: str, payload: bytes) -> int:
        number = self._buffer.append(topic, self._boot_id, payload)
        if self._is_connected:
            self._send(time.monotonic())
        else:
            self._buffer.spill()
        return number

    def _connect(self) -> None:
        self._attempt = next(_ATTEMPTS)
        self._connection = self._new_link(
            self._attempt,
            self._endpoint,
            self._client_id,
            self._encoder.status(online=False),
            self._encoder.topic(topics.Kind.LEASE),
            self._post,
        )

    def _on_connected(self, event: Connected) -> None:
        LOG.info("broker %s: connected, %d messages wait", self._endpoint, len(self._buffer))
        self._is_connected, self._connected_s = True, time.monotonic()
        self.address = self._board.address or event.address
        self._sent_number = 0
        if self._connection:
            self._connection.publish(*self._encoder.status(online=True))
        if self._birth_number < self._buffer.first:
            birth = self._encoder.birth(self._board, self.address, self._buffer.dropped, boot_ms())
            self._birth_number = self._append(*birth)
        self._send(self._connected_s)

    def _on_lost(self, event: Disconnected) -> None:
        lasted_s = time.monotonic() - self._connected_s if self._is_connected else 0.0
        self._failures = 0 if lasted_s > STABLE_S else self._failures + 1
        self._next_attempt_s = time.monotonic() + back_off_s(self._failures)
        self._connection, self._is_connected = None, False
        self._in_flight.clear()
        self._buffer.spill()
        LOG.warning(
            "broker %s: %s; keeping up to %d bytes of messages and trying again",
            *(self._endpoint, self._explain(event), self._buffer.max_bytes),
        )

    def _on_confirmed(self, event: Acknowledged) -> None:
        if event.refusal:
            LOG.warning("broker %s: refused a message: %s", self._endpoint, self._explain(event))
        sent = self._in_flight.pop(event.message_id, None)
        if sent is None:
            return
        self._buffer.acknowledge(sent.number)
        if sent.was_only_one:
            self._rtts_ms.append((event.at_s - sent.at_s) * 1000)
        self._send(time.monotonic())

    def _explain(self, event: Disconnected | Acknowledged) -> str:
        return explain_failure(event, self._endpoint.certificate, self._node)

    def _has_room(self) -> bool:
        return len(self._in_flight) < MAX_IN_FLIGHT

    def _next(self) -> BufferedMessage | None:
        return self._buffer.after(self._sent_number)

    def _send(self, now_s: float) -> None:
        self._tokens = min(MAX_IN_FLIGHT, self._tokens + (now_s - self._tokens_s) * DRAIN_PER_S)
        self._tokens_s = now_s
        while self._has_room() and self._tokens >= 1 and (entry := self._next()):
            self._tokens -= 1
            self._send_one(entry)

    def _send_one(self, entry: BufferedMessage) -> None:
        if self._connection is None:
            return
        payload = entry.payload
        if entry.boot_id == self._boot_id:
            payload = codec.stamp_sent(topics.parse(entry.topic).kind, payload, boot_ms())
        sent = _InFlight(entry.number, time.monotonic(), was_only_one=not self._in_flight)
        self._in_flight[self._connection.publish(entry.topic, payload)] = sent
        self._sent_number = entry.number

    def _work(self, event: MessageReceived) -> Lease | None:
        try:
            return lease(event.topic, event.payload, event.schema, event.at_s)
        except (LeaseError, topics.TopicError) as error:
            LOG.warning("lease: not followed: %s", one_line(str(error)))
            return None

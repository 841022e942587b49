"""The MQTT session over many connections: order, flow control, acknowledgement, reconnecting.

The loop's thread calls every method, so there are no locks. Messages are always sent in the order
in which they were measured, because a receiver counts a gap in the sequence numbers as loss. The
session's number grows with each start; its file is also the lock of the state folder.
"""

import errno
import fcntl
import itertools
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from uuid import UUID

from leadline_wire import codec, topics
from leadline_wire.broker_limits import MQTT_DEFAULTS, QUOTA_EXCEEDED
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms, unix_ms
from leadline_agent.config import ConfigError, Settings
from leadline_agent.lease import Lease, Result, decode_lease
from leadline_agent.publish.buffer import Buffer, BufferedMessage
from leadline_agent.publish.certificate import fault, identity
from leadline_agent.publish.connection import (
    Acknowledged,
    Connected,
    Disconnected,
    Endpoint,
    Event,
    MessageReceived,
    PahoConnection,
    TooLargeError,
)
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
MAX_IN_FLIGHT = 10  # messages sent and not yet acknowledged; a broker may allow fewer
DRAIN_PER_S = 50.0  # after an outage all boards reconnect at once
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 2.0, 60.0
STABLE_S = 30.0  # a connection that lasted longer resets the back-off
# Shared by all sessions: after a reload, events of the old session may still arrive.
_ATTEMPTS = itertools.count(1)
FORGET_TIMEOUT_S = 15.0
REPEAT_S = 60.0  # between two births, for a broker that retains none
MAX_SESSION = 1 << 53
# Read-only, full or broken; EUCLEAN and EBADMSG are how ext4 and F2FS say the last. The others are
# those of boards whose files are on a server, which may not lock them.
CARD_FAULTS = frozenset(
    (
        *(errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EUCLEAN, errno.EBADMSG),
        *(errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.ESTALE),
    )
)
MAX_UNACKNOWLEDGED_S = 15.0  # after this the broker may be gone, so messages go to disk


class StateError(Exception):
    """The state folder is unusable; str() says why and what to do."""


def boot_id() -> bytes:
    """The 16 random bytes that the kernel drew at boot."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return UUID(text.strip()).bytes


class SessionLock:
    """Locks the state folder; `session` is the number of this session.

    A card that is read-only, full or broken must not keep a board from being measured, nor a share
    without locks. Then nothing is locked, and the session is the time since boot, which grows with
    each start as well.
    """

    def __init__(self, state_dir: Path) -> None:
        """Lock the folder and begin a session. Raises StateError."""
        self._fd: int | None = None
        try:
            self._lock(state_dir)
        except OSError as error:
            if error.errno not in CARD_FAULTS:
                raise StateError(
                    f"state_dir {state_dir}: {error.strerror}; the agent must be able to write "
                    "there"
                ) from None
            self.close()
            self.session = boot_ms()
            LOG.warning(
                "state_dir %s: %s; the agent runs without it: what the broker has not taken is "
                "lost when the agent or the board restarts",
                *(state_dir, error.strerror),
            )

    def _lock(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        path = state_dir / "session"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.session = next_session(os.pread(self._fd, 32, 0))
            # One write within one sector; the number of digits never falls.
            os.pwrite(self._fd, b"%d\n" % self.session, 0)
            os.fsync(self._fd)
        except BlockingIOError:
            self.close()
            raise StateError(f"state_dir {state_dir}: another agent is using it") from None

    def close(self) -> None:
        """Unlock the folder."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def next_session(text: bytes) -> int:
    """The session after the one in the file; seconds of the wall clock if the file is damaged.

    An empty file is a board's first start. The wall clock is larger than any number of starts.
    """
    if not text:
        return 1
    try:
        session = int(text) + 1
    except ValueError:
        session = 0
    return session if 0 < session < MAX_SESSION else int(time.time())


class Encoder:
    """Encodes the messages of one session, with sequence numbers from 1."""

    def __init__(self, cluster: str, node: str, boot_id: bytes, session: int) -> None:
        self._cluster, self._node = cluster, node
        self._boot_id, self._session = boot_id, session
        self._sequence = 0

    def topic(self, kind: topics.Kind) -> str:
        """This node's topic of one kind."""
        return topics.topic(self._cluster, self._node, kind)

    def sample(
        self, message: pb.Report | pb.TrafficReport | Result | pb.Birth
    ) -> tuple[str, bytes]:
        """(topic, payload) of a report, a probe's result or the birth, with the next number."""
        self._sequence += 1
        message.origin.CopyFrom(self._origin())
        message.origin.sequence = self._sequence
        return self.topic(codec.kind_of(message)), codec.encode(message)

    def status(self, *, online: bool) -> tuple[str, bytes]:
        """(topic, payload) of the session's status, which has no sequence number."""
        message = pb.Status(origin=self._origin(), online=online)
        return self.topic(topics.Kind.STATUS), codec.encode(message)

    def _origin(self) -> pb.Origin:
        return pb.Origin(node=self._node, boot_id=self._boot_id, session=self._session)


def back_off_s(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after consecutive failures: exponential back-off with full jitter."""
    return draw() * min(MAX_BACK_OFF_S, FIRST_BACK_OFF_S * float(2 ** min(failures, 10)))


def explain_failure(event: Disconnected | Acknowledged, endpoint: Endpoint, node: str) -> str:
    """The broker's reason; for a refusal also what is wrong with this node's certificate."""
    why = event.reason if isinstance(event, Disconnected) else event.refusal
    is_refusal = isinstance(event, Acknowledged) or event.is_refusal
    certificate = endpoint.certificate
    if not (is_refusal and certificate):
        return why
    return f"{why} ({fault(certificate, node, datetime.now(UTC)) or identity(certificate)})"


@dataclass(frozen=True, slots=True)
class _InFlight:
    number: int  # in the buffer; 0 is the status, which is not there and comes first
    at_s: float
    size_bytes: int
    is_round_trip: bool  # its acknowledgement tells the round trip to the broker


class Session:
    """Opened once per start of the agent. Raises StateError when the state folder is unusable."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings,
        board: pb.Birth,
        post: Callable[[Event], None],
        connect: Callable[..., PahoConnection] = PahoConnection,
    ) -> None:
        """`board`: the birth; if its address is empty, it is the one towards the broker."""
        self._endpoint = endpoint
        self._broker, self._node = settings.broker, settings.node
        self._board = board
        self._post = post
        self._open_connection = connect
        self._lock = SessionLock(settings.state_dir)
        self._boot_id = boot_id()
        self._encoder = Encoder(settings.cluster, settings.node, self._boot_id, self._lock.session)
        self._client_id = f"leadline-{settings.cluster}-{settings.node}"
        self._buffer = Buffer(settings.state_dir / "buffer", settings.buffer_max_bytes)
        self._connection: PahoConnection | None = None
        self._attempt = 0
        self._failures = 0
        self._is_connected = False
        self._connected_s = 0.0
        self._next_attempt_s = 0.0
        self._sent_number = 0
        self._birth_number = 0
        self._repeat_s = float("inf")
        self._limits = self._learned = MQTT_DEFAULTS
        self._in_flight: dict[int, _InFlight] = {}
        self._tokens = float(MAX_IN_FLIGHT)
        self._tokens_s = 0.0
        self._rtts_ms: deque[float] = deque(maxlen=32)
        self.address = board.address

    @property
    def is_connected(self) -> bool:
        """Whether the broker takes messages."""
        return self._is_connected

    @property
    def dropped_messages(self) -> int:
        """How many messages the full buffer threw away since the first session."""
        return self._buffer.dropped

    def publish(self, sample: pb.Report | pb.TrafficReport | Result) -> None:
        """Queue a measurement; it is sent as soon as there is a connection."""
        self._append(*self._encoder.sample(sample))

    def tick(self, now_s: float) -> None:
        """Do what is due: connect, or send queued messages."""
        if self._connection is None and now_s >= self._next_attempt_s:
            self._attempt = next(_ATTEMPTS)
            self._read_certificate_again()
            self._connection = self._open_connection(
                self._attempt,
                self._endpoint,
                self._client_id,
                self._encoder.status(online=False),
                self._encoder.topic(topics.Kind.LEASE),
                self._post,
                self._limits.within(self._learned),
            )
        if self._is_connected:
            if now_s >= self._repeat_s:
                self._announce(now_s)
            self._send(now_s)
            oldest = next(iter(self._in_flight.values()), None)
            if oldest and now_s - oldest.at_s > MAX_UNACKNOWLEDGED_S:
                self._buffer.spill()

    def _read_certificate_again(self) -> None:
        """A certificate may have been renewed since the last connection, a key with it."""
        if self._endpoint.certificate is None:
            return
        try:
            self._endpoint = Endpoint.of(self._broker)
        except ConfigError as error:
            LOG.warning("%s; the certificate stays as it was", error)

    def due_s(self) -> float:
        """When to call `tick` again unless an event arrives first (monotonic clock)."""
        if self._connection is None:
            return self._next_attempt_s
        if self._is_connected and self._next_to_send():
            token_s = self._tokens_s + max(0.0, 1 - self._tokens) / DRAIN_PER_S
            return min(token_s, self._repeat_s)
        return self._repeat_s

    def flush(self) -> None:
        """Synchronise the buffer's file, so that it survives a power cut."""
        self._buffer.flush()

    def handle(self, event: Event) -> Lease | None:
        """Handle an event of the connection. Returns the lease if it was one."""
        match event:
            case MessageReceived():
                try:
                    return decode_lease(event.topic, event.payload, event.schema, event.at_s)
                except (codec.MessageError, topics.TopicError) as error:
                    LOG.warning("lease: refused: %s", one_line(str(error)))
            case _ if event.attempt != self._attempt or self._connection is None:
                pass  # an event of an earlier connection
            case Connected():
                self._on_connected(event)
            case Disconnected():
                self._on_disconnected(event)
            case Acknowledged():
                self._on_acknowledged(event)
        return None

    def broker_rtts_ms(self) -> list[float]:
        """Round trips to the broker since the last call, milliseconds. Any thread may call this."""
        taken = []
        while self._rtts_ms:
            taken.append(self._rtts_ms.popleft())
        return taken

    def close(self, wait_for_event: Callable[[float], Event | None], timeout_s: float) -> None:
        """Disconnect, and keep the messages that are not acknowledged. The broker publishes the
        will: "offline"."""
        try:
            until_s, sent = time.monotonic() + timeout_s, set(self._in_flight)
            while sent & self._in_flight.keys() and (left_s := until_s - time.monotonic()) > 0:
                event = wait_for_event(left_s)
                if event and not isinstance(event, MessageReceived):
                    self.handle(event)
            if self._connection:
                self._connection.close()
        finally:
            self._buffer.close()
            self._lock.close()

    def _append(self, topic: str, payload: bytes) -> int:
        number = self._buffer.append(topic, self._boot_id, payload)
        if self._is_connected:
            self._send(time.monotonic())
        else:
            self._buffer.spill()
        return number

    def _on_connected(self, event: Connected) -> None:
        LOG.info("broker %s: connected, %d messages queued", self._endpoint, len(self._buffer))
        self._is_connected, self._connected_s = True, time.monotonic()
        self.address = self._board.address or event.address
        self._sent_number = 0
        self._limits = event.limits.within(self._learned)
        if self._connection:
            self._connection.limits = self._limits
        for shortcoming in self._limits.shortcomings():
            LOG.warning("broker %s: %s", self._endpoint, shortcoming)
        self._publish(0, *self._encoder.status(online=True))
        self._announce(self._connected_s)
        self._send(self._connected_s)

    def _announce(self, now_s: float) -> None:
        """Publish the birth, again and again if the broker does not retain it."""
        self._repeat_s = float("inf") if self._limits.retains else now_s + REPEAT_S
        if self._birth_number < self._buffer.first:
            birth = pb.Birth(
                timing=pb.Timing(measured_boot_ms=boot_ms()),
                address=self.address,
                dropped_messages=self._buffer.dropped,
            )
            birth.MergeFrom(self._board)
            self._birth_number = self._append(*self._encoder.sample(birth))

    def _on_disconnected(self, event: Disconnected) -> None:
        lasted_s = time.monotonic() - self._connected_s if self._is_connected else 0.0
        is_stable = lasted_s > STABLE_S
        self._failures = 0 if is_stable else self._failures + 1
        self._next_attempt_s = time.monotonic() + back_off_s(self._failures)
        largest_bytes = max((sent.size_bytes for sent in self._in_flight.values()), default=0)
        self._learned = (MQTT_DEFAULTS if is_stable else self._learned).after(
            event.code, len(self._in_flight), largest_bytes
        )
        self._connection, self._is_connected = None, False
        self._repeat_s = float("inf")
        self._in_flight.clear()
        self._buffer.spill()
        why = explain_failure(event, self._endpoint, self._node)
        LOG.warning(
            "broker %s: %s; keeping up to %d bytes of messages and trying again",
            *(self._endpoint, why, self._buffer.max_bytes),
        )

    def _on_acknowledged(self, event: Acknowledged) -> None:
        if event.code == QUOTA_EXCEEDED and self._connection:
            # It may take the message later, and the order must stay.
            self._connection.close(with_will=False)
            self._on_disconnected(Disconnected(event.attempt, f"takes no more: {event.refusal}"))
            return
        if event.refusal:
            why = explain_failure(event, self._endpoint, self._node)
            LOG.warning("broker %s: refused a message: %s", self._endpoint, why)
        sent = self._in_flight.pop(event.message_id, None)
        if sent is None:
            return
        self._confirm()
        if sent.is_round_trip:
            self._rtts_ms.append((event.at_s - sent.at_s) * 1000)
        self._send(time.monotonic())

    def _confirm(self) -> None:
        """Remove the messages before the oldest one that is still under way."""
        numbers = (sent.number for sent in self._in_flight.values() if sent.number)
        self._buffer.acknowledge(next(numbers, self._sent_number + 1) - 1)

    def _next_to_send(self) -> BufferedMessage | None:
        if len(self._in_flight) >= min(MAX_IN_FLIGHT, self._limits.receive_maximum):
            return None
        return self._buffer.after(self._sent_number)

    def _send(self, now_s: float) -> None:
        self._tokens = min(MAX_IN_FLIGHT, self._tokens + (now_s - self._tokens_s) * DRAIN_PER_S)
        self._tokens_s = now_s
        while self._connection and self._tokens >= 1 and (message := self._next_to_send()):
            self._tokens -= 1
            payload = message.payload
            if message.boot_id == self._boot_id:
                kind = topics.parse(message.topic).kind
                payload = codec.stamp_sent(kind, payload, boot_ms(), unix_ms())
            self._sent_number = message.number
            if not self._publish(message.number, message.topic, payload):
                self._buffer.dropped += 1
                self._confirm()

    def _publish(self, number: int, topic: str, payload: bytes) -> bool:
        """Whether it was sent: the broker takes packets of this size."""
        if self._connection is None:
            return False
        try:
            message_id = self._connection.publish(topic, payload)
        except TooLargeError as error:
            LOG.warning("broker %s: dropped %s: %s", self._endpoint, topic, error)
            return False
        is_round_trip = not self._in_flight and self._limits.max_qos > 0
        self._in_flight[message_id] = _InFlight(
            number, time.monotonic(), len(payload), is_round_trip
        )
        return True


class ForgetError(Exception):
    """The broker could not be reached or would not forget; str() says why."""


def forget(settings: Settings) -> None:
    """Clear this node's retained messages (birth, status) at the broker.

    Only this node's own certificate may write them, so the board does it before it loses the
    certificate. The agent must not run, because it would publish them again. Raises
    ForgetError, ConfigError.
    """
    retained = [kind for kind, how in topics.DELIVERY.items() if how.retain]
    inbox: SimpleQueue[Event] = SimpleQueue()
    endpoint, cluster, node = Endpoint.of(settings.broker), settings.cluster, settings.node
    client_id = f"leadline-{cluster}-{node}-forget"
    connection = PahoConnection(0, endpoint, client_id, None, None, inbox.put)
    until_s = time.monotonic() + FORGET_TIMEOUT_S
    try:
        while True:
            event = inbox.get(timeout=max(0.0, until_s - time.monotonic()))
            match event:
                case Connected() | Acknowledged(refusal=""):
                    if isinstance(event, Connected):
                        connection.limits = event.limits
                    if not (retained and connection.limits.retains):
                        return
                    # One at a time, which any broker allows.
                    connection.publish(topics.topic(cluster, node, retained.pop()), b"")
                case Disconnected() | Acknowledged():
                    why = explain_failure(event, endpoint, node)
                    raise ForgetError(f"broker {endpoint}: {why}")
    except Empty:
        raise ForgetError(f"broker {endpoint}: no answer in time; try again") from None
    finally:
        connection.close()

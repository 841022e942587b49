"""Decodes MQTT messages and stores them in the state, or counts why not. No I/O."""

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Protocol

from leadline_wire import topics
from leadline_wire.codec import MessageError, decode
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import decode as decode_report
from leadline_controller.telemetry.collectors import printable
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import BROKER, TelemetryState
from leadline_controller.telemetry.traffic import BoardTraffic

log = logging.getLogger(__name__)

# Why a result does not count.
NOT_LEASED = "not_leased"
OVER_LEASE = "over_lease"
TOO_OFTEN = "too_often"
TOO_OLD = "too_old"
# Five of each of 5,000 nodes. Clients of the broker may invent more.
_TOPICS_KEPT = 25_000
_SHORT = 120
_LONGER = 1.25  # than noise explains
_MAX_PINGS = 20  # in a round, to one peer
_LOST_S = 1.0  # for which an agent waits for each reply
_MAX_EXCUSED = 10_000


class ProbeLeases(Protocol):
    """The probe scheduler as the ingestor needs it, on the MQTT thread."""

    def on_birth(self, node: str) -> None:
        """An agent published its birth."""
        ...

    def bandwidth_refusal(self, node: str, report: pb.BandwidthReport) -> str | None:
        """Why one end's report of a bandwidth test is refused, as a kind; None if it is valid."""
        ...

    def on_bandwidth(
        self, node: str, report: pb.BandwidthReport, at_s: float
    ) -> BandwidthTest | None:
        """One end sent its valid report. The result once both have, and agree."""
        ...

    def rtt_refusal(self, node: str, measured_s: float) -> str | None:
        """Why a round of pings is refused, as a kind; None if it is valid."""
        ...

    def ping_peers(self, node: str) -> Container[str]:
        """The peers to which the node may report round trips."""
        ...

    def is_under_test(self, nodes: Sequence[str], at_s: float) -> bool:
        """Whether one of the nodes had a bandwidth test during a round of pings that ended then."""
        ...


class TelemetryIngestor:
    """Stores messages in one TelemetryState. Network measurements need a lease. unix_offset_s: from
    the controller's monotonic clock to its wall clock."""

    def __init__(
        self,
        cluster: str,
        state: TelemetryState,
        leases: ProbeLeases,
        unix_offset_s: Callable[[], float] = lambda: time.time() - time.monotonic(),
    ) -> None:
        self._cluster = cluster
        self._unix_offset_s = unix_offset_s
        self._state = state
        self._leases = leases
        # Clients of the broker may invent topics, so the cache is bounded.
        self._parsed: Callable[[str], topics.Topic] = lru_cache(_TOPICS_KEPT)(self._parse)
        self._excused: set[tuple[str, str]] = set()  # the last round's losses, by a test
        self._handlers: Mapping[topics.Kind, Callable[[topics.Topic, Any, Stamp], None]] = {
            topics.Kind.BIRTH: self._birth,
            topics.Kind.REPORT: self._report,
            topics.Kind.RTT: self._rtt,
            topics.Kind.BANDWIDTH: self._bandwidth,
            topics.Kind.TRAFFIC: self._traffic,
        }

    def ingest(
        self, topic: str, payload: bytes, schema: str | None, sent_s: float, *, retained: bool
    ) -> None:
        """Store one message. sent_s: when it left the board, on the controller's monotonic clock
        (its arrival minus the time at the broker; minus infinity when unknown). Never raises."""
        try:
            parsed = self._parsed(topic)
            if not payload and topics.DELIVERY[parsed.kind].retain:
                return  # an empty payload clears a retained message
            message: Any = decode(parsed, payload, schema)
            if parsed.kind is topics.Kind.STATUS:
                origin, online = message.origin, message.online
                self._state.status(parsed.node, origin.boot_id, origin.session, online=online)
                self._state.accepted_kinds[parsed.kind.value] += 1
            else:
                stamp = _stamp(message, sent_s, retained=retained)
                before = self._state.accepted
                self._handlers[parsed.kind](parsed, message, stamp)
                # Only this thread ingests.
                self._state.accepted_kinds[parsed.kind.value] += self._state.accepted - before
        except MessageError as error:
            self._refuse(error.fault.value, topic, str(error))
        except topics.TopicError as error:
            self._refuse("topic", topic, str(error))
        except Exception as error:  # noqa: BLE001  # our own bug must not end the MQTT thread
            self._refuse("unexpected", topic, repr(error))

    def _parse(self, text: str) -> topics.Topic:
        topic = topics.parse(text)
        if topic.kind is topics.Kind.LEASE or topic.cluster != self._cluster:
            raise topics.TopicError(f"topic {text[:_SHORT]!r}: not for this controller")
        return topic

    def _refuse(self, kind: str, topic: str, reason: str) -> None:
        self._state.count_refusal(kind)
        log.warning("refused a message on %.120r: %.200s", topic, reason)

    def _birth(self, topic: topics.Topic, message: pb.Birth, stamp: Stamp) -> None:
        agent = Agent(
            node=topic.node,
            version=printable(message.agent_version),
            hardware_model=printable(message.hardware_model),
            address=printable(message.address),
            probes=tuple(printable(probe) for probe in message.probes[:16]),
            dropped_messages=message.dropped_messages,
            architecture=printable(message.architecture),
            kernel=printable(message.kernel),
            cores=message.cores,
            memory_bytes=message.memory_bytes,
            interval_s=message.interval_s,
        )
        if self._state.birth(agent, stamp):
            self._leases.on_birth(topic.node)

    def _report(self, topic: topics.Topic, message: pb.Report, stamp: Stamp) -> None:
        timing, ahead_s = message.timing, None
        if timing.HasField("sent_unix_ms") and stamp.is_dated:
            sent_s = stamp.measured_s + (timing.sent_boot_ms - timing.measured_boot_ms) / 1000
            ahead_s = timing.sent_unix_ms / 1000 - (sent_s + self._unix_offset_s())
        self._state.report(topic.node, stamp, decode_report(message), ahead_s)

    def _rtt(self, topic: topics.Topic, message: pb.RttReport, stamp: Stamp) -> None:
        node = topic.node
        refusal = self._leases.rtt_refusal(node, stamp.measured_s)
        if refusal is not None:
            self._refuse_numbered(topic, stamp, refusal)
            return
        leased = self._leases.ping_peers(node)
        peers = [peer for peer in message.peers if peer.peer in leased or peer.peer == BROKER]
        rounds = {
            each.peer: _round_of(each)
            for each in peers
            if (each.sent or each.HasField("rtt_ms"))
            and not self._met_a_test(node, each, stamp.measured_s)
        }
        if self._state.rtts(node, stamp, rounds) and len(peers) < len(message.peers):
            self._refuse(NOT_LEASED, str(topic), "some of its peers are not those of its lease")

    def _met_a_test(self, node: str, peer: pb.Rtt, measured_s: float) -> bool:
        """Whether a bandwidth test of either end explains that the round trip is longer than it is
        believed to be, or that packets were lost. It does not explain the losses of two rounds in a
        row, because a peer that stops replying is tested in vain."""
        pair = node, peer.peer
        was_excused = pair in self._excused
        self._excused.discard(pair)
        round_ = _round_of(peer)
        lost = round_.sent - round_.received
        if not self._leases.is_under_test(pair, measured_s - _LOST_S * lost):
            return False
        believed_ms = self._state.rtt_ms(node, peer.peer, measured_s)
        if believed_ms is None or believed_ms == inf:
            return False
        if round_.rtt_ms is not None and round_.rtt_ms > _LONGER * believed_ms:
            return True
        if was_excused or not lost or len(self._excused) >= _MAX_EXCUSED:
            return False
        self._excused.add(pair)
        return True

    def _bandwidth(self, topic: topics.Topic, message: pb.BandwidthReport, stamp: Stamp) -> None:
        node = topic.node
        refusal = self._leases.bandwidth_refusal(node, message)
        if refusal is not None:
            self._refuse_numbered(topic, stamp, refusal)
            return
        if self._state.bandwidth_report(node, stamp):
            if message.outcome != pb.BandwidthReport.DONE:
                log.info(
                    "bandwidth test %.40r of %s with %.80r: %s: %.120r",
                    *(message.lease_id, node, message.peer, _OUTCOMES.get(message.outcome, "?")),
                    message.detail,
                )
            test = self._leases.on_bandwidth(node, message, stamp.measured_s)
            if test is not None:
                self._state.bandwidth(test)

    def _traffic(self, topic: topics.Topic, message: pb.TrafficReport, stamp: Stamp) -> None:
        node, counted_s = topic.node, stamp.measured_s
        if stamp.retained or not stamp.is_dated:
            self._refuse_numbered(topic, stamp, TOO_OLD)
        elif self._state.traffic.comes_too_soon(node, counted_s):
            self._refuse_numbered(topic, stamp, TOO_OFTEN)
        else:
            self._state.traffic_report(stamp, BoardTraffic.of(node, counted_s, message))

    def _refuse_numbered(self, topic: topics.Topic, stamp: Stamp, kind: str) -> None:
        """Refuse a result without a lease; record its number, so that it is not lost."""
        if self._state.count_refused_sequence(topic.node, stamp):
            self._refuse(kind, str(topic), _REFUSALS[kind])


_REFUSALS = {
    NOT_LEASED: "no lease of this controller allows it; another one leads, or led before",
    OVER_LEASE: "it is more than its lease allows",
    TOO_OFTEN: "it comes more often than it may",
    TOO_OLD: "nobody knows when it was counted",
}
_OUTCOMES = {number: name.lower() for name, number in pb.BandwidthReport.Outcome.items()}


def _round_of(peer: pb.Rtt) -> PingRound:
    if not peer.HasField("rtt_ms"):
        return PingRound(None, min(peer.sent, _MAX_PINGS), 0)
    sent = min(max(peer.sent, 1), _MAX_PINGS)
    return PingRound(peer.rtt_ms, sent, min(max(peer.received, 1), sent))


def _stamp(
    message: pb.Birth | pb.Report | pb.RttReport | pb.BandwidthReport | pb.TrafficReport,
    sent_s: float,
    *,
    retained: bool,
) -> Stamp:
    origin, timing = message.origin, message.timing
    measured_s = -inf
    if timing.HasField("sent_boot_ms"):
        if isinstance(message, pb.Birth):
            sent_s = 0.0  # the age of a birth does not matter
        measured_s = sent_s - (timing.sent_boot_ms - timing.measured_boot_ms) / 1000
    return Stamp(
        origin.boot_id,
        origin.session,
        origin.sequence,
        timing.measured_boot_ms,
        measured_s,
        retained,
    )

"""Encodes what was measured as messages of the wire, and decodes leases."""

import re

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.lease import BandwidthLease, Lease, Peer, PingLease, Result, Role

LeaseError = codec.MessageError
_LEASE_ID = re.compile(r"[!-~]{1,128}")
_ROLES = {pb.BandwidthLease.SERVER: Role.SERVER, pb.BandwidthLease.CLIENT: Role.CLIENT}


class Encoder:
    """Encodes the messages of one session, with sequence numbers from 1."""

    def __init__(self, cluster: str, node: str, boot_id: bytes, session: int) -> None:
        self._cluster, self._node = cluster, node
        self._boot_id, self._session = boot_id, session
        self._sequence = 0

    def topic(self, kind: topics.Kind) -> str:
        """This node's topic of one kind."""
        return topics.topic(self._cluster, self._node, kind)

    def sample(self, message: pb.Report | Result | pb.Birth) -> tuple[str, bytes]:
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


def decode_lease(topic: str, payload: bytes, schema: str | None, received_s: float) -> Lease:
    """The lease in a message of the lease topic. Raises LeaseError, TopicError.

    Syntax is checked here, this board's limits in the probes. The time to live counts from
    `received_s` on the monotonic clock, so no wall clock has to be right.
    """
    message = codec.decode(topics.parse(topic), payload, schema)
    if isinstance(message, pb.Lease) and message.WhichOneof("work") == "ping":
        ping = message.ping
        peers = tuple(_peer(peer) for peer in ping.peers)
        return PingLease(peers, ping.interval_s, ping.count, received_s + ping.ttl_s)
    if not (isinstance(message, pb.Lease) and message.bandwidth.role in _ROLES):
        raise LeaseError(codec.Fault.BROKEN, "the lease names no work that this agent knows")
    bandwidth = message.bandwidth
    if not _LEASE_ID.fullmatch(bandwidth.lease_id):
        raise LeaseError(
            codec.Fault.OUT_OF_RANGE, "lease_id: expected 1 to 128 printable ASCII characters"
        )
    return BandwidthLease(
        lease_id=bandwidth.lease_id,
        role=_ROLES[bandwidth.role],
        peer=_peer(bandwidth.peer),
        port=bandwidth.port,
        duration_ms=bandwidth.duration_ms,
        max_bytes=bandwidth.max_bytes,
        expires_s=received_s + bandwidth.ttl_ms / 1000,
    )


def _peer(message: pb.Peer) -> Peer:
    return Peer(topics.check_level(message.node, "peer"), message.address)

"""Encoding of reports and results, decoding of leases, and the size of a report."""

import pytest
from leadline_agent.lease import BandwidthLease, Peer, PingLease, decode_lease
from leadline_agent.publish.session import Encoder
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

BOOT = bytes(range(16))
BOOT_MS = 5 * 365 * 86_400_000
LEASES = "leadline/v1/home/pi-1/lease"


def decoded(topic: str, payload: bytes) -> codec.TelemetryMessage:
    return codec.decode(topics.parse(topic), payload, topics.SCHEMA)


def encoder(node: str = "pi-1", session: int = 3) -> Encoder:
    return Encoder("home", node, BOOT, session)


def worst_report() -> pb.Report:
    """A big board under load: long names, big counters, four busy interfaces."""
    names = ("cpu", "memory", "disk", "network", "temperature")
    interfaces = [
        pb.NetworkInterface(
            name=f"enp{i}s0f0np0d12345"[:15],
            packets_sent_per_s=1.4e7,
            packets_received_per_s=1.4e7,
            bytes_sent_per_s=1.2e10,
            bytes_received_per_s=1.2e10,
        )
        for i in range(4)
    ]
    return pb.Report(
        timing=pb.Timing(measured_boot_ms=BOOT_MS),
        collectors=[pb.CollectorRun(name=names[0], outcome="FAILED", why="/proc/stat is strange")],
        cpu=pb.Cpu(
            busy_percent=99.9,
            load_1m=123.4,
            frequency_mhz=5800.0,
            throttled=True,
            under_voltage=True,
        ),
        memory=pb.Memory(total_bytes=1 << 40, available_bytes=(1 << 40) - 1),
        disk=pb.Disk(read_bytes_per_s=7e9, written_bytes_per_s=7e9),
        network=interfaces,
        temperature=pb.Temperature(cpu_celsius=99.9),
    )


def test_a_report_takes_at_most_400_bytes() -> None:
    writer = encoder(node="n" * 20, session=100_000)
    writer._sequence = 10_000_000
    topic, payload = writer.sample(worst_report())
    sent = codec.stamp_sent(topics.Kind.REPORT, payload, BOOT_MS)
    assert len(sent) <= 400
    message = codec.decode(topics.parse(topic), sent, topics.SCHEMA)
    assert isinstance(message, pb.Report)
    assert len(message.network) == 4


def test_an_unknown_value_is_unset_and_a_zero_is_set() -> None:
    report = pb.Report(
        cpu=pb.Cpu(busy_percent=0.0, load_1m=None, throttled=False),
        network=[pb.NetworkInterface(name="eth0", packets_sent_per_s=0.0)],
        collectors=[pb.CollectorRun(name="disk", outcome="ABSENT", duration_us=3)],
    )
    message = decoded(*encoder().sample(report))
    assert isinstance(message, pb.Report)
    assert message.cpu.HasField("busy_percent")
    assert message.cpu.HasField("throttled")
    assert not message.cpu.HasField("load_1m")
    assert not message.HasField("memory")
    assert not message.HasField("disk")
    assert message.network[0].HasField("packets_sent_per_s")
    assert not message.network[0].HasField("bytes_sent_per_s")
    assert message.collectors[0].outcome == pb.CollectorRun.ABSENT


def test_a_bandwidth_result_keeps_its_detail() -> None:
    result = pb.BandwidthReport(
        lease_id="L1", peer="pi-2", outcome=pb.BandwidthReport.REFUSED, detail="busy"
    )
    message = decoded(*encoder().sample(result))
    assert isinstance(message, pb.BandwidthReport)
    assert (message.outcome, message.detail) == (pb.BandwidthReport.REFUSED, "busy")
    assert not message.HasField("bandwidth_mbps")


def test_messages_are_numbered_from_one_and_a_status_is_not() -> None:
    writer = encoder()
    peers = [pb.Rtt(peer="pi-2", method=pb.Rtt.ICMP, sent=5, received=4, rtt_ms=1.5)]
    round_ = pb.RttReport(timing=pb.Timing(measured_boot_ms=5), peers=peers)
    first, second = (decoded(*writer.sample(round_)) for _ in range(2))
    assert isinstance(first, pb.RttReport)
    assert isinstance(second, pb.RttReport)
    assert (first.origin.sequence, second.origin.sequence) == (1, 2)
    assert (second.origin.session, second.origin.boot_id) == (3, BOOT)
    (peer,) = second.peers
    assert (peer.peer, peer.sent, peer.received, peer.rtt_ms) == ("pi-2", 5, 4, 1.5)
    status = decoded(*writer.status(online=False))
    assert isinstance(status, pb.Status)
    assert (status.online, status.origin.sequence) == (False, 0)


def test_the_time_of_a_ping_lease_counts_from_its_receipt() -> None:
    peers = [pb.Peer(node="pi-2", address="10.0.0.2")]
    message = pb.Lease(
        node="pi-1", ping=pb.PingLease(peers=peers, interval_s=10, count=5, ttl_s=60)
    )
    work = decode_lease(LEASES, message.SerializeToString(), topics.SCHEMA, received_s=100.0)
    assert work == PingLease((Peer("pi-2", "10.0.0.2"),), 10, 5, expires_s=160.0)


def test_a_bandwidth_lease_is_decoded() -> None:
    bandwidth = pb.BandwidthLease(
        lease_id="L1",
        role=pb.BandwidthLease.CLIENT,
        peer=pb.Peer(node="pi-2", address="10.0.0.2"),
        port=5201,
        duration_ms=2000,
        max_bytes=1 << 20,
        ttl_ms=1500,
    )
    payload = pb.Lease(node="pi-1", bandwidth=bandwidth).SerializeToString()
    assert decode_lease(LEASES, payload, topics.SCHEMA, received_s=10.0) == BandwidthLease(
        "L1",
        pb.BandwidthLease.CLIENT,
        Peer("pi-2", "10.0.0.2"),
        5201,
        2000,
        1 << 20,
        expires_s=11.5,
    )


def client(lease_id: str) -> pb.Lease:
    peer = pb.Peer(node="pi-2", address="10.0.0.2")
    role = pb.BandwidthLease.CLIENT
    return pb.Lease(
        node="pi-1", bandwidth=pb.BandwidthLease(lease_id=lease_id, role=role, peer=peer)
    )


def pings(peer: str) -> pb.Lease:
    peers = [pb.Peer(node=peer, address="10.0.0.2")]
    return pb.Lease(node="pi-1", ping=pb.PingLease(peers=peers, count=1, ttl_s=1))


INVALID: list[tuple[str, bytes, str]] = [
    ("broken", b"\xff\xff\xff", "broken"),
    ("empty", b"", "it is empty"),
    *(
        (name, lease.SerializeToString(), why)
        for name, lease, why in (
            ("no work", pb.Lease(node="pi-1"), "names no work"),
            ("of another node", pb.Lease(node="pi-2", ping=pb.PingLease()), "says it is of 'pi-2'"),
            ("no role", pb.Lease(node="pi-1", bandwidth=pb.BandwidthLease()), "names no work that"),
            *((f"id {each!r}"[:9], client(each), "lease_id") for each in ("", "a\nb", "a b", "ü")),
            ("id \\0", client("\x00"), "lease_id"),
            ("long id", client("x" * 129), "lease_id"),
            *((f"peer {each!r}"[:9], pings(each), "peer") for each in ("", "a\nb", "a/b", "#")),
            ("long peer", pings("x" * 5000), "peer"),
        )
    ),
]


@pytest.mark.parametrize(
    ("payload", "why"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID]
)
def test_an_invalid_lease_is_refused(payload: bytes, why: str) -> None:
    with pytest.raises((topics.TopicError, codec.MessageError), match=why):
        decode_lease(LEASES, payload, topics.SCHEMA, received_s=0.0)

"""One message of each kind, as a board sends it."""

from leadline_wire.codec import TelemetryMessage
from leadline_wire.topics import Kind
from leadline_wire.v1 import telemetry_pb2 as pb

ORIGIN = pb.Origin(node="pi-1", boot_id=b"0123456789abcdef", session=3, sequence=7)


TIMING = pb.Timing(measured_boot_ms=1000, sent_boot_ms=1005)


MESSAGES: dict[Kind, TelemetryMessage] = {
    Kind.BIRTH: pb.Birth(origin=ORIGIN, timing=TIMING, cores=4, memory_bytes=2**32),
    Kind.REPORT: pb.Report(
        origin=ORIGIN,
        timing=TIMING,
        cpu=pb.Cpu(busy_percent=12.5, load_1m=0.5, frequency_mhz=1500),
        memory=pb.Memory(total_bytes=1000, available_bytes=400),
        disk=pb.Disk(read_bytes_per_s=10, written_bytes_per_s=20),
        network=[pb.NetworkInterface(name="eth0", packets_sent_per_s=5, link_mbps=1000)],
        temperature=pb.Temperature(cpu_celsius=-5),
    ),
    Kind.RTT: pb.RttReport(
        origin=ORIGIN, timing=TIMING, peers=[pb.Rtt(peer="pi-2", rtt_ms=1.5, sent=3, received=3)]
    ),
    Kind.BANDWIDTH: pb.BandwidthReport(
        origin=ORIGIN,
        timing=TIMING,
        lease_id="x-1",
        peer="pi-2",
        bandwidth_mbps=94.0,
        measured_us=11_000,
        hindrances=[pb.BandwidthReport.CPU_BOUND],
    ),
    Kind.TRAFFIC: pb.TrafficReport(
        origin=ORIGIN,
        timing=TIMING,
        duration_ms=60_000,
        flows=[
            pb.Flow(
                source=bytes((10, 42, 1, 5)),
                destination=bytes((10, 42, 2, 7)),
                port=5432,
                bytes_sent=20_000,
                bytes_received=900_000,
                packets_sent=300,
                packets_received=700,
                connections=3,
                translated=True,
            )
        ],
        omitted_bytes=1_200,
    ),
    Kind.STATUS: pb.Status(
        origin=pb.Origin(node="pi-1", boot_id=b"0123456789abcdef", session=3), online=True
    ),
    Kind.LEASE: pb.Lease(node="pi-1", ping=pb.PingLease(interval_s=10, count=3, ttl_s=60)),
}

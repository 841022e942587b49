"""One end of a bandwidth test in a process of its own, so that it can stand in another namespace:
`python -m tests.agent.probes.board_process ROLE PEER PORT OWN_ADDRESS MAX_BYTES DURATION_MS`.

It prints its report as JSON.
"""

import sys
import time
from functools import partial

from google.protobuf.json_format import MessageToJson
from leadline_agent.collectors import SYS_ROOT
from leadline_agent.collectors.cpu import watch_hindrances
from leadline_agent.config import Probe
from leadline_agent.lease import BandwidthLease, Peer, Result
from leadline_agent.probes import ProbeContext
from leadline_agent.probes.iperf3 import Iperf3
from leadline_wire.v1 import telemetry_pb2 as pb

ROLES = {"SERVER": pb.BandwidthLease.SERVER, "CLIENT": pb.BandwidthLease.CLIENT}


def main(role: str, peer: str, port: str, own_address: str, most: str, duration_ms: str) -> None:
    """Run the end to its report."""
    reports: list[Result] = []
    context = ProbeContext(
        limits=Probe("", 8, 100_000_000, 5000),
        own_address=lambda: own_address,
        broker_rtts_ms=list,
        report=reports.append,
        watch_hindrances=partial(watch_hindrances, SYS_ROOT),
    )
    probe = Iperf3(context)
    lease = BandwidthLease(
        lease_id="L1",
        role=ROLES[role],
        peer=Peer("peer", peer),
        port=int(port),
        duration_ms=int(duration_ms),
        max_bytes=int(most),
        expires_s=time.monotonic() + 20,
    )
    probe.start_lease(lease)
    while not reports:
        time.sleep(0.01)
    probe.stop()
    sys.stdout.write(MessageToJson(reports[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])

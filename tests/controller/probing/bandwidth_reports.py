"""A granted bandwidth test, and good reports of both its ends."""

from typing import Any

from leadline_controller.probing.budgets import PlannedTest
from leadline_controller.probing.grants import BandwidthGrants
from leadline_wire.v1 import telemetry_pb2 as pb

DONE = pb.BandwidthReport.DONE


MAX_BYTES, MOST_MBPS = 1_000_000, 100.0


ENDS_S = 13.0


PLANNED = PlannedTest("a", "b", MAX_BYTES, (), {"a": 0.08, "b": 0.08})


def received(**changed: Any) -> pb.BandwidthReport:
    """A good report of the server b, with some fields changed: 0.5 MB in 50 ms."""
    good = {
        "lease_id": "x-1",
        "peer": "a",
        "outcome": DONE,
        "bandwidth_mbps": 80.0,
        "transferred_bytes": MAX_BYTES,
        "measured_us": 50_000,
        "duration_ms": 110,
    }
    return pb.BandwidthReport(**{**good, **changed})


def sent(**changed: Any) -> pb.BandwidthReport:
    """A good report of the client a, with some fields changed."""
    good = {
        "lease_id": "x-1",
        "peer": "b",
        "outcome": DONE,
        "transferred_bytes": MAX_BYTES,
        "duration_ms": 120,
    }
    return pb.BandwidthReport(**{**good, **changed})


def granted() -> BandwidthGrants:
    grants = BandwidthGrants()
    grants.add(PLANNED, "x-1", MOST_MBPS, now_s=0.0, ends_s=ENDS_S)
    return grants

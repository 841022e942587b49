"""Lends a board a bandwidth test as the controller does: `python -m tests.attack.lender JSON`.

It stands in the board's network, with the controller's certificate, and gives the board the
server's end of a test with a peer at `peer_address`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.wire_client import connected
from tests.support.certificates import Certificate
from tests.support.mosquitto import Broker


def lease(asked: dict[str, str | int]) -> pb.Lease:
    """The serving end of a test."""
    return pb.Lease(
        node=str(asked["node"]),
        bandwidth=pb.BandwidthLease(
            lease_id=str(asked["id"]),
            role=pb.BandwidthLease.SERVER,
            peer=pb.Peer(node="peer", address=str(asked["peer_address"])),
            port=int(asked["port"]),
            duration_ms=int(asked["duration_ms"]),
            max_bytes=int(asked["max_bytes"]),
            ttl_ms=int(asked["ttl_ms"]),
        ),
    )


def main(asked: dict[str, str | int]) -> None:
    """Send the lease, and return when the broker has it."""
    keys = Path(str(asked["keys"]))
    tls = Certificate(keys / "ca.pem", keys / "cert.pem", keys / "key.pem")
    with connected(Broker(str(asked["broker"]), 8883, 0), tls=tls) as client:
        topic = topics.topic("default", str(asked["node"]), topics.Kind.LEASE)
        client.publish(topic, codec.encode(lease(asked)), topics.Kind.LEASE)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

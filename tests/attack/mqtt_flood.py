"""Publishers for attacks: mutated messages as fast as a broker takes them."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Mapping
from itertools import islice
from multiprocessing import get_context
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.wire_client import properties_of
from tests.support.mosquitto import Broker
from tests.support.mqtt_packets import connect, length, packet, text

CONTEXT = get_context("spawn")
MALLORY = "mallory"  # the attackers' own board, a node of the cluster
_EXTREMES = (0.0, -1.0, 1e9, 1e30, float("inf"), float("nan"), 1e-40)
# What a broker lets pass in a topic.
_CHARACTERS = [
    chr(code) for code in (*range(0x20, 0x7F), *range(0xA0, 0x2FF)) if chr(code) not in "/+#"
]
_AT_ONCE = 50
_PHANTOMS = 50_000
Publication = tuple[str, bytes, bytes]  # topic, packed properties, payload


def mutated(cluster: str, seed: int, count: int) -> Iterator[Publication]:
    """So many hostile publications, the same for one seed.

    Bits are flipped, bytes cut off and put in, numbers set to extremes; names, topics, schemas
    and properties are invented. Some stay whole, so that it is tried whether they are believed.
    """
    random_ = random.Random(seed)
    honest: bytes = properties_of(topics.DELIVERY[topics.Kind.REPORT]).pack()
    for number in range(1, count + 1):
        node = random_.choice((MALLORY, f"phantom-{random_.randrange(_PHANTOMS)}"))
        kind, message = _message(random_, node, number)
        topic, payload, properties = _topic(cluster, node, kind), codec.encode(message), honest
        match random_.randrange(8):
            case 0 | 1 | 2:
                payload = _with_flipped_bits(random_, payload)
            case 3:
                payload = payload[: random_.randrange(len(payload) + 1)]
            case 4:
                at = random_.randrange(len(payload) + 1)
                payload = payload[:at] + random_.randbytes(random_.randrange(60)) + payload[at:]
            case 5:
                topic = _topic(cluster, "".join(random_.choices(_CHARACTERS, k=40)), kind)
            case 6:
                # Now and then a property of 40 kB that nobody has sent before.
                long = random_.randbytes(20).hex() * (1000 if random_.random() < 0.01 else 1)
                properties = _user_property(random_.choice(("schema", "x")), long)
            case _:
                pass
        yield topic, properties, payload


def _message(random_: random.Random, node: str, number: int) -> tuple[str, codec.TelemetryMessage]:
    origin = pb.Origin(node=node, boot_id=bytes(16), session=1, sequence=number)
    timing = pb.Timing(measured_boot_ms=number, sent_boot_ms=number)
    sent: dict[str, Any] = {"origin": origin, "timing": timing}
    value = random_.choice(_EXTREMES)
    messages: tuple[codec.TelemetryMessage, ...] = (
        pb.Birth(**sent, address="203.0.113.9", probes=["icmp", "iperf3"]),
        pb.Status(origin=origin, online=True),
        pb.Report(**sent, cpu=pb.Cpu(busy_percent=value, load_1m=value)),
        pb.RttReport(**sent, peers=[pb.Rtt(peer="pi-1", rtt_ms=value, sent=3, received=3)]),
        pb.BandwidthReport(
            **sent,
            peer="pi-1",
            lease_id="x-1",
            outcome=pb.BandwidthReport.DONE,
            bandwidth_mbps=value,
        ),
    )
    chosen = random_.choice(messages)
    return str(codec.kind_of(chosen)), chosen


def _topic(cluster: str, node: str, kind: str) -> str:
    return f"{topics.ROOT}/{cluster}/{node}/{kind}"


def _with_flipped_bits(random_: random.Random, payload: bytes) -> bytes:
    damaged = bytearray(payload)
    for _ in range(random_.randrange(1, 6)):
        damaged[random_.randrange(len(damaged))] ^= 1 << random_.randrange(8)
    return bytes(damaged)


def births(cluster: str, nodes: Mapping[str, str]) -> Iterator[Publication]:
    """The status and birth of each of these nodes (name -> address), with every probe."""
    for name, address in nodes.items():
        board = BoardMessages(name, cluster)
        for message in (board.status(online=True), board.birth(address=address)):
            kind = codec.kind_of(message)
            properties: bytes = properties_of(topics.DELIVERY[kind]).pack()
            yield board.topic(kind), properties, codec.encode(message)


# On the wire.


def pour(broker: Broker, publications: Iterator[Publication], name: str) -> None:
    """Publish all of them over one connection, as fast as the broker reads, and wait for it."""
    with socket.create_connection((broker.host, broker.port), timeout=120) as connection:
        connection.sendall(connect(name))
        while chunk := b"".join(
            packet(0x30, text(topic) + properties + payload)
            for topic, properties, payload in islice(publications, _AT_ONCE)
        ):
            connection.sendall(chunk)
        connection.sendall(packet(0xC0, b""))  # is answered when all before it was read
        tail = b""
        while not tail.endswith(b"\xd0\x00"):
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker hung up on the flood")
            tail = (tail + data)[-2:]


def pour_mutated(broker: Broker, cluster: str, seed: int, count: int) -> None:
    """One attacker's share, in a process of its own."""
    os.nice(5)  # what is measured runs on the same few cores
    pour(broker, mutated(cluster, seed, count), f"attacker-{seed}")


def _user_property(name: str, value: str) -> bytes:
    packed = b"\x26" + text(name) + text(value)
    return length(len(packed)) + packed

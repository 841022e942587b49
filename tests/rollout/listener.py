"""A subscriber at the testbed's broker with a controller's rights: it receives from every node.

The broker accepts one client of a name, so the listener has its own certificate, with the name that
controllers had before each had its own.

It runs as a process in the testbed's network (`python -m tests.rollout.listener`), as the tests
are outside of it, and prints a line for each message: time, topic, sequence.
"""

from __future__ import annotations

import json
import os
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.rollout.certificates import sign_client
from tests.rollout.nspawn_testbed import REPOSITORY, NspawnTestbed

PORT = 8883
KEYS = "/etc/leadline/pki/controller"
READY, READY_S = b"ready", 20.0
NUMBERED: Mapping[
    str, type[pb.Birth | pb.Report | pb.RttReport | pb.BandwidthReport | pb.TrafficReport]
] = {
    topics.Kind.BIRTH: pb.Birth,
    topics.Kind.REPORT: pb.Report,
    topics.Kind.RTT: pb.RttReport,
    topics.Kind.BANDWIDTH: pb.BandwidthReport,
    topics.Kind.TRAFFIC: pb.TrafficReport,
}


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received message. at_s: when it arrived, by the monotonic clock.

    `session` counts the starts of an agent, `sequence` its messages; both are 0 in a message
    without numbers. An `is_empty` message removes a retained one.
    """

    at_s: float
    node: str
    kind: str
    session: int
    sequence: int
    is_retained: bool
    is_empty: bool


class Listener:
    """A running listener."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._waiting = b""
        self._received: list[ReceivedMessage] = []
        self._is_subscribed = False

    def wait_until_subscribed(self) -> None:
        """Wait for the broker's acknowledgement; retained messages may arrive before it."""
        deadline_s = time.monotonic() + READY_S
        while not self._is_subscribed:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"the listener was not subscribed within {READY_S:g} s"
            self._read(left_s)

    def received(self, node: str | None = None, kind: str | None = None) -> list[ReceivedMessage]:
        """The messages so far, of one node or all, of one kind or all."""
        self._read(0.0)
        return [
            each
            for each in self._received
            if node in (None, each.node) and kind in (None, each.kind)
        ]

    def wait_for(self, node: str, kind: str, count: int, within_s: float) -> list[ReceivedMessage]:
        """Wait until `count` messages of a kind have arrived from a node."""
        deadline_s = time.monotonic() + within_s
        while len(found := self.received(node, kind)) < count:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{node}: {len(found)} of {count} {kind}s within {within_s:g} s"
            self._read(left_s)
        return found

    def _read(self, within_s: float) -> None:
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], within_s)[0]:
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            assert read, f"the listener ended with {self._process.wait(5)}"
            *lines, self._waiting = (self._waiting + read).split(b"\n")
            self._is_subscribed = self._is_subscribed or READY in lines
            self._received += [
                ReceivedMessage(*json.loads(line)) for line in lines if line != READY
            ]
            within_s = 0.0


@contextmanager
def listener(testbed: NspawnTestbed, cluster: str = "default") -> Iterator[Listener]:
    """A subscribed listener for the duration of a block."""
    keys = testbed.folder / "listener"
    keys.mkdir(mode=0o700, exist_ok=True)
    (keys / "ca.pem").write_text(testbed.server.run(f"cat {KEYS}/ca.pem").stdout)
    sign_client(testbed, "leadline-controller", keys / "cert.pem", keys / "key.pem")
    program = [sys.executable, "-m", "tests.rollout.listener"]
    command = testbed.namespaces.command(*program, testbed.server.address, keys, cluster)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        messages = Listener(process)
        messages.wait_until_subscribed()
        yield messages
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _print(message: MQTTMessage) -> None:
    topic = topics.parse(message.topic)
    session = sequence = 0
    if topic.kind in NUMBERED and message.payload:
        origin = NUMBERED[topic.kind].FromString(bytes(message.payload)).origin
        session, sequence = origin.session, origin.sequence
    fields = (
        *(time.monotonic(), topic.node, str(topic.kind), session, sequence),
        *(bool(message.retain), not message.payload),
    )
    print(json.dumps(fields), flush=True)


def main(host: str, keys: Path, cluster: str) -> None:
    """Print messages until this process is killed."""
    client = Client(CallbackAPIVersion.VERSION2, client_id="listener", protocol=MQTTv5)
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    client.tls_set_context(context)

    def connected(*_: object) -> None:
        client.subscribe(f"{topics.ROOT}/{cluster}/+/#", qos=1)

    client.on_connect = connected
    client.on_subscribe = lambda *_: print(READY.decode(), flush=True)
    client.on_message = lambda _client, _data, message: _print(message)
    client.connect(host, PORT)
    client.loop_forever()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])

"""Real agents as processes, and a listener that receives all their messages."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.certificates import Certificate
from tests.support.ports import wait_until


@dataclass
class AgentProcess:
    """A running `leadline-agent run`."""

    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        """What it has said on standard error."""
        return self.log_file.read_text()

    def signal(self, number: Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, number: Signals = SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(90)


def agent_config(
    folder: Path,
    port: int,
    node: str = "pi-1",
    host: str = "localhost",
    tls: Certificate | None = None,
    interval_s: int = 1,
    more: Sequence[str] = (),
) -> Path:
    """Write an agent's settings below `folder`, its state beside them; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f'node = "{node}"',
        f'state_dir = "{folder}/state"',
        f"interval_s = {interval_s}",
        f'[broker]\nhost = "{host}"\nport = {port}',
    ]
    if tls:
        lines.append(tls.toml("broker.tls"))
    path = folder / "agent.toml"
    path.write_text("\n".join([*lines, *more, ""]))
    return path


@contextmanager
def running_agent(
    config: Path, environ: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[AgentProcess]:
    """Run an agent until the block ends; `prefix` is a command that runs it, such as setpriv."""
    log_file = config.parent / "agent.log"
    command = [*prefix, sys.executable, "-m", "leadline_agent", "run", "--config", str(config)]
    with log_file.open("ab") as log:
        process = subprocess.Popen(command, stderr=log, env={**os.environ, **(environ or {})})
    try:
        yield AgentProcess(process, log_file)
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Heard:
    """One message: its topic, whether it was retained, and what it says."""

    topic: topics.Topic
    message: Any
    retained: bool
    properties: Any


@dataclass
class Listener:
    """Everything that agents have published, in the order in which it came."""

    client: paho.Client
    heard: list[Heard] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)

    def of(self, kind: topics.Kind) -> list[Any]:
        """The messages of one kind."""
        return [heard.message for heard in self.heard if heard.topic.kind == kind]

    def wait_for(self, kind: topics.Kind, count: int = 1, timeout_s: float = 90.0) -> list[Any]:
        """Wait until there are `count` messages of one kind."""
        wait_until(lambda: len(self.of(kind)) >= count, f"{count} x {kind}", timeout_s)
        return self.of(kind)

    def lease(self, lease: pb.Lease, cluster: str = "default") -> None:
        """Give a node a lease, as the controller does."""
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call] # paho's
        properties.UserProperty = (topics.SCHEMA_PROPERTY, topics.SCHEMA)
        topic = topics.topic(cluster, lease.node, topics.Kind.LEASE)
        self.client.publish(topic, codec.encode(lease), 1, False, properties).wait_for_publish(90)


@contextmanager
def listening(
    port: int, host: str = "localhost", tls: Certificate | None = None, cluster: str = "default"
) -> Iterator[Listener]:
    """Listen to all agents of a cluster until the block ends; reconnects."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    listener = Listener(client)
    ready: list[bool] = []

    def on_connect(*_: Any) -> None:
        kinds = [kind for kind in topics.Kind if kind != topics.Kind.LEASE]
        client.subscribe([(topics.subscription(cluster, kind), 1) for kind in kinds])

    def on_message(_client: paho.Client, _data: Any, raw: paho.MQTTMessage) -> None:
        topic = topics.parse(raw.topic)
        schema = dict(getattr(raw.properties, "UserProperty", [])).get(topics.SCHEMA_PROPERTY)
        try:
            message = codec.decode(topic, bytes(raw.payload), schema)
        except codec.MessageError as error:
            listener.faults.append(error)
            return
        listener.heard.append(Heard(topic, message, raw.retain, raw.properties))

    client.on_connect = on_connect
    client.on_message = on_message
    client.on_subscribe = lambda *_: ready.append(True)
    client.reconnect_delay_set(1, 1)
    if tls:
        client.tls_set(str(tls.ca_file), str(tls.cert_file), str(tls.key_file))
    client.connect(host, port)
    client.loop_start()
    try:
        wait_until(lambda: ready, "the listener has subscribed")
        yield listener
    finally:
        client.disconnect()
        client.loop_stop()

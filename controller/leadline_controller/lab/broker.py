"""The embedded MQTT broker (rumqttd, from the wheel ``iotcore``), so that nobody installs one.

Two ways in: :func:`embedded_broker` for an unprivileged run on this machine, and
``python -m leadline_controller.lab.broker CONFIG`` as a process of the lab's server.
``iotcore`` is the optional extra ``demo``; it is imported only when a broker is really wanted.
"""

import argparse
import json
import logging
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline_controller.lab.errors import LabError
from leadline_controller.lab.lab import Lab
from leadline_controller.lab.processes import wait_listening
from leadline_controller.lab.spec import SERVER

ATTEMPTS_AT_A_FREE_PORT = 5
MAX_PAYLOAD_BYTES = 65_536

# Retained messages beyond max_outgoing_packet_count are lost to a new subscriber: it must exceed
# the number of nodes. At QoS 1 rumqttd has a bound of its own, 100; at QoS 0 it has none.
_CONFIG = """\
id = 0

[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 10000
max_segment_size = 104857600
max_segment_count = 10

[v5.1]
name = "leadline"
listen = {listen}
next_connection_delay_ms = 1

[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = {max_payload_bytes}
max_inflight_count = 100
dynamic_filters = true
"""


def broker_config(host: str, port: int) -> str:
    """Rumqttd's configuration (TOML): one plain MQTT v5 listener on an IPv4 address and port."""
    listen = json.dumps(f"{host}:{port}")
    return _CONFIG.format(listen=listen, max_payload_bytes=MAX_PAYLOAD_BYTES)


@contextmanager
def embedded_broker(host: str = "127.0.0.1", port: int = 0) -> Iterator[tuple[str, int]]:
    """Run a broker in a child process for as long as the context lasts; needs no privileges.

    Port 0 takes a free one. Yields ``(host, port)`` once connections are accepted. The child ends
    with the context, and by itself when this process dies. Raises :class:`LabError` when the
    extra ``demo`` is missing or the broker does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="leadline-broker-") as folder:
        broker, taken = _start(Path(folder) / "rumqttd.toml", host, port)
        try:
            yield host, taken
        finally:
            broker.stop()


def start_broker(lab: Lab, port: int = 1883) -> tuple[str, int]:
    """Run a broker on the lab's server as the process ``broker``; returns its ``(host, port)``.

    Comes back once it listens; raises :class:`LabError` when it does not within 15 s.
    """
    host = lab.address()
    config = lab.directory / "broker.toml"
    config.write_text(broker_config(host, port), encoding="utf-8")
    argv = [sys.executable, "-m", "leadline_controller.lab.broker", str(config)]
    wait_listening(lab.start(SERVER, "broker", argv), port, limit_s=15.0)
    return host, port


def _start(config: Path, host: str, port: int) -> tuple[Any, int]:
    """Start a broker; where the port was ours to choose, another process may snatch it: retry."""
    attempts = 1 if port else ATTEMPTS_AT_A_FREE_PORT
    reason: Exception | None = None
    for _ in range(attempts):
        wanted = port or _free_port(host)
        config.write_text(broker_config(host, wanted), encoding="utf-8")
        try:
            return _broker(config).start(), wanted
        except (OSError, RuntimeError) as error:
            reason = error
    raise LabError(f"the embedded broker did not start on {host}:{port or 'a free port'}: {reason}")


def _broker(config: Path) -> Any:  # iotcore ships no annotations for the pieces used here
    try:
        from iotcore import Broker
    except ImportError:
        raise LabError(
            "the embedded broker is not installed: pip install 'leadline-controller[demo]'"
        ) from None
    return Broker(config_path=str(config))


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; rumqttd has no shutdown of its own, so the signal ends the process."""
    parser = argparse.ArgumentParser(prog="leadline_controller.lab.broker")
    parser.add_argument("config", type=Path)
    arguments = parser.parse_args(argv)
    # rumqttd wraps every message in a span of level ERROR; its log would be the whole traffic.
    logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
    _broker(arguments.config).run_forever()


if __name__ == "__main__":
    main()

"""The embedded MQTT broker (rumqttd, from the wheel ``iotcore``), which needs no installation.

:func:`embedded_broker` runs it without privileges on this machine, and
``python -m leadline_controller.lab.broker CONFIG`` runs it as a process of the lab's server.
``iotcore`` belongs to the optional extra ``demo`` and is imported when a broker starts.
"""

import json
import logging
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline_controller.lab.errors import LabError
from leadline_controller.lab.lab import Lab
from leadline_controller.lab.processes import wait_listening
from leadline_controller.lab.spec import SERVER

_FREE_PORT_ATTEMPTS = 5
_MAX_PAYLOAD_BYTES = 65_536

# A new subscriber loses retained messages beyond max_outgoing_packet_count, so it must exceed the
# number of nodes. At QoS 1 rumqttd has another limit of 100; at QoS 0 it has none.
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


def _config(host: str, port: int) -> str:
    """Rumqttd's configuration (TOML): one plain MQTT v5 listener on an IPv4 address and port."""
    listen = json.dumps(f"{host}:{port}")
    return _CONFIG.format(listen=listen, max_payload_bytes=_MAX_PAYLOAD_BYTES)


@contextmanager
def embedded_broker(port: int = 0) -> Iterator[tuple[str, int]]:
    """Run a broker in a child process on 127.0.0.1 while the context lasts, without privileges.

    Port 0 chooses a free port. Yields ``(host, port)`` once the broker accepts connections. The
    child ends with the context, or when this process dies. Raises :class:`LabError` if the extra
    ``demo`` is missing or the broker does not start.
    """
    host = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="leadline-broker-") as folder:
        config = Path(folder) / "rumqttd.toml"
        # Another process may take a free port before the broker does.
        for attempt in range(_FREE_PORT_ATTEMPTS):
            chosen = port or _free_port(host)
            config.write_text(_config(host, chosen), encoding="utf-8")
            try:
                broker = _broker(config).start()
                break
            except (OSError, RuntimeError) as error:
                if port or attempt == _FREE_PORT_ATTEMPTS - 1:
                    where = f"{host}:{port or 'a free port'}"
                    raise LabError(
                        f"the embedded broker did not start on {where}: {error}"
                    ) from None
        try:
            yield host, chosen
        finally:
            broker.stop()


def start_broker(lab: Lab, port: int = 1883) -> tuple[str, int]:
    """Run a broker on the lab's server as the process ``broker``, and return ``(host, port)``.

    Returns once it listens. Raises :class:`LabError` if it does not within 15 s.
    """
    host = lab.address()
    config = lab.directory / "broker.toml"
    config.write_text(_config(host, port), encoding="utf-8")
    argv = [sys.executable, "-m", "leadline_controller.lab.broker", str(config)]
    wait_listening(lab.start(SERVER, "broker", argv), port, limit_s=15.0)
    return host, port


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


if __name__ == "__main__":
    # rumqttd wraps every message in a span of level ERROR, so its log would be the whole traffic.
    logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
    # It serves until SIGTERM. rumqttd has no shutdown, so the signal ends the process.
    _broker(Path(sys.argv[1])).run_forever()

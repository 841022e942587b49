"""The lab's MQTT broker (rumqttd, from the wheel ``iotcore``), which needs no installation.

``python -m leadline_lab.broker CONFIG`` runs it as a process of the lab's server.
"""

import json
import logging
import sys
from pathlib import Path

from leadline_lab.lab import Lab
from leadline_lab.processes import wait_listening
from leadline_lab.spec import SERVER

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


def broker_command(folder: Path, host: str, port: int) -> list[str]:
    """Write the configuration of a broker with one plain MQTT v5 listener on an IPv4 address and
    port into a folder. Returns the command line, which serves until SIGTERM."""
    config, listen = folder / "broker.toml", json.dumps(f"{host}:{port}")
    text = _CONFIG.format(listen=listen, max_payload_bytes=_MAX_PAYLOAD_BYTES)
    config.write_text(text, encoding="utf-8")
    return [sys.executable, "-m", __name__, str(config)]


def start_broker(lab: Lab, port: int = 1883) -> tuple[str, int]:
    """Run a broker on the lab's server as the process ``broker``, and return ``(host, port)``.

    Returns once it listens. Raises :class:`LabError` if it does not within 15 s.
    """
    host = lab.address()
    argv = broker_command(lab.directory, host, port)
    wait_listening(lab.start(SERVER, "broker", argv), port, limit_s=15.0)
    return host, port


if __name__ == "__main__":
    from iotcore import Broker

    # rumqttd wraps every message in a span of level ERROR, so its log would be the whole traffic.
    logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
    # It serves until SIGTERM. rumqttd has no shutdown, so the signal ends the process.
    Broker(config_path=sys.argv[1]).run_forever()

"""A real mosquitto on a free loopback port, for one test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import Certificate
from tests.support.ports import free_port, listens, wait_until
from tests.support.processes import end


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker listens, and its process id."""

    host: str
    port: int
    pid: int


@contextmanager
def mosquitto(
    config_lines: Sequence[str] = (),
    tls: Certificate | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    whole: Callable[[int], Sequence[str]] | None = None,
) -> Iterator[Broker]:
    """Run mosquitto until the block ends.

    With `tls` (the server's certificate) clients must bring a certificate of the same
    authority, and its common name is their user name. A broker that is started again on
    its old `port` has forgotten everything: there is no persistence. `whole` makes the lines of
    the configuration for a port, in place of all that is set here.
    """
    port = port or free_port(host)
    with tempfile.TemporaryDirectory(prefix="leadline-mosquitto-") as name:
        folder = Path(name)
        log = folder / "log"
        config = folder / "mosquitto.conf"
        lines = _config(host, port, tls) if whole is None else whole(port)
        config.write_text("\n".join([*lines, *config_lines, ""]))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [_program(), "-c", str(config)], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            wait_until(lambda: _is_up(process, log, host, port), "mosquitto listens")
            yield Broker(host, port, process.pid)
        finally:
            end(process, 10)


def _program() -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    program = shutil.which("mosquitto", path=path)
    if program is None:
        raise FileNotFoundError("mosquitto is missing: apt-get install mosquitto")
    return program


def _config(host: str, port: int, tls: Certificate | None) -> list[str]:
    # Started by root it would become a user who cannot read the test's files.
    lines = ["user root"] if os.geteuid() == 0 else []
    lines += [
        f"listener {port} {host}",
        "persistence false",
        "log_dest stderr",
        "max_queued_messages 100000",
    ]
    if tls is None:
        return [*lines, "allow_anonymous true"]
    return [
        *lines,
        f"cafile {tls.ca_file}",
        f"certfile {tls.cert_file}",
        f"keyfile {tls.key_file}",
        "require_certificate true",
        "use_identity_as_username true",
    ]


def _is_up(process: subprocess.Popen[bytes], log: Path, host: str, port: int) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"mosquitto ended with {process.returncode}: {log.read_text()}")
    return listens(host, port)

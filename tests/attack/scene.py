"""A rolled out server and a board for attacks, and what must hold after each of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attack.units import TRACEBACK, Limits, Mark, Unit
from tests.rollout import board_images, bundles, nspawn_testbed
from tests.rollout.k3s import k3s_server
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import ADDRESSES, SERVER, NspawnTestbed
from tests.support.certificates import Authority
from tests.support.check import Check

INTRUDER = Path(__file__).with_name("intruder.py")
BOARD = "pi-1"
KINDS = {SERVER: board_images.DEBIAN_12, BOARD: board_images.DEBIAN_12}
CONTROLLER, AGENT = "leadline-controller", "leadline-agent"
GRPC_PORT, EXTENDER_PORT = 25505, 25506
CREDENTIALS = f"/run/credentials/{CONTROLLER}.service"
KEYS = "/root/keys"
SETTINGS = "/etc/leadline/controller.toml"
MIB = 1 << 20
READY_S = 90.0
MAX_LINES = 100


@dataclass(frozen=True, slots=True)
class Scene:
    """A rolled out yard whose controller answers other machines, with TLS. `keys` are a
    client's, on this machine; each machine has them in KEYS."""

    testbed: NspawnTestbed
    keys: Mapping[str, str]

    @property
    def controller(self) -> Unit:
        """The controller's unit."""
        return Unit(self.testbed.server, CONTROLLER)

    @property
    def agent(self) -> Unit:
        """The agent's unit on the board."""
        return Unit(self.testbed.boards[BOARD], AGENT)

    def at(self, port: int, **asked: object) -> dict[str, object]:
        """What an intruder needs to reach the controller."""
        return {"host": self.testbed.server.address, "port": port, **there(), **asked}

    def leadline(self, *words: str) -> str:
        """A command line for the server that asks the controller."""
        options = f"--address {self.testbed.server.address}:{GRPC_PORT} " + " ".join(
            f"--{name} {path}" for name, path in there().items()
        )
        return f"leadline {' '.join(words)} {options}"


def there() -> dict[str, str]:
    """A client's certificate on the machines."""
    return {name: f"{KEYS}/{name}.pem" for name in ("ca", "cert", "key")}


@contextmanager
def booted(folder: Path) -> Iterator[Scene]:
    """Boot a server and a board, roll the suite out, and let the controller answer others."""
    nodes = {name: (ADDRESSES[name], kind.architecture) for name, kind in KINDS.items()}
    bundles.build(folder / "bundle")
    with nspawn_testbed.booted(folder, {SERVER: k3s_server(nodes)}, KINDS) as running:
        running.ansible("site")
        authority = Authority(folder / "others")
        client, own = authority.client("client"), authority.server(running.server.address)
        for machine in running.machines.values():
            place(machine, KEYS, client.ca_file, client.cert_file, client.key_file)
        place(
            running.server,
            "/etc/leadline/pki/extender",
            *(own.ca_file, own.cert_file, own.key_file),
        )
        settings = "".join(
            f'\n[{name}]\naddress = "{running.server.address}:{port}"\n[{name}.tls]\n'
            + "".join(
                f'{each}_file = "{CREDENTIALS}/extender_{each}.pem"\n'
                for each in ("ca", "cert", "key")
            )
            for name, port in (("grpc", GRPC_PORT), ("extender", EXTENDER_PORT))
        )
        # The server has no agent whose reports could be waited for.
        running.server.run(f"sed -i '/^cluster/a warm_up_s = 0' {SETTINGS}")
        running.server.run(f"cat >> {SETTINGS} <<'END'\n{settings}END")
        keys = {"ca": client.ca_file, "cert": client.cert_file, "key": client.key_file}
        yield Scene(running, {name: str(path) for name, path in keys.items()})


def place(machine: Machine, folder: str, ca: Path, cert: Path, key: Path) -> None:
    """Put a certificate on a machine, for root alone."""
    machine.run(f"mkdir -p -m 0700 {folder}")
    for name, file in (("ca", ca), ("cert", cert), ("key", key)):
        machine.run(f"umask 077; cat > {folder}/{name}.pem <<'END'\n{file.read_text()}END")


def intrude(machine: Machine, asked: Mapping[str, object]) -> dict[str, Any]:
    """Have an intruder attack from a machine, to the end; returns what it found."""
    command = f"python3 - {shlex.quote(json.dumps(asked))} <<'END'\n{INTRUDER.read_text()}\nEND"
    output = machine.run(command, timeout_s=300).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def unharmed(attack: str, unit: Unit, before: Mark) -> Iterator[Check]:
    """The unit was never restarted, and its journal holds no traceback and few lines."""
    invocation, restarts = unit.show("InvocationID"), int(unit.show("NRestarts"))
    same = invocation == before.invocation and restarts == before.restarts
    yield Check(
        attack,
        "the unit is active and was not restarted",
        f"{unit.show('ActiveState')}, {restarts - before.restarts} restarts",
        unit.is_active() and same,
    )
    lines = unit.lines_since(before)
    tracebacks = sum(TRACEBACK in line for line in lines)
    yield Check(
        attack,
        f"no traceback and at most {MAX_LINES} lines in the journal",
        f"{tracebacks} tracebacks, {len(lines)} lines",
        not tracebacks and len(lines) <= MAX_LINES,
    )


def within(attack: str, limits: Limits) -> Check:
    """The unit's memory stayed below MemoryMax."""
    usage = limits.usage()
    return Check(
        attack,
        f"less than MemoryMax, {limits.memory_bytes / MIB:.0f} MiB, and nothing killed for it",
        f"{usage.peak_bytes / MIB:.0f} MiB at most, {usage.killed} processes killed",
        usage.peak_bytes < limits.memory_bytes and not usage.killed,
    )


@contextmanager
def restarted(unit: Unit, ready: str = "true") -> Iterator[Limits]:
    """The unit restarted and held to its limits; `ready` succeeds when it serves."""
    limits = Limits(unit)
    unit.machine.run(f"systemctl stop {unit.name}", timeout_s=120)
    with limits.enforced():
        unit.machine.run(f"systemctl reset-failed {unit.name}; systemctl start {unit.name}")
        unit.machine.wait_for(ready, READY_S)
        yield limits

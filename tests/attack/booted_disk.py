"""A controller under systemd that finds its decisions.db rotten: it starts, answers, and stops."""

from __future__ import annotations

import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tests.attack.scene import CONTROLLER, MIB, Scene
from tests.attack.units import TRACEBACK, Limits, Unit
from tests.kube.objects import pod
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.placing import place_pod
from tests.support.check import Check

FOLDER = f"/var/lib/private/{CONTROLLER}"
DATABASE = f"{FOLDER}/decisions.db"
START_S = 60.0
POLL_S = 0.5
POD = "remembered"
BOMB_BYTES = 2 << 30
Damage = Callable[[Path], None]


def flipped(bit: int, byte: int | bytes) -> Damage:
    """One bit of the file is another: of the byte there, or of the first of these."""

    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[byte if isinstance(byte, int) else data.index(byte)] ^= 1 << bit
        file.write_bytes(data)

    return damage


def text_for_number(file: Path) -> None:
    """Words where numbers belong."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE decisions SET up_s = 'soon', record = 17")
        connection.commit()


def bomb(file: Path) -> None:
    """An explanation of two megabytes that becomes two gigabytes."""
    packer = zlib.compressobj(9)
    block = bytes(MIB)
    packed = b"".join(packer.compress(block) for _ in range(BOMB_BYTES // MIB)) + packer.flush()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE decisions SET explanation = ?", (packed,))
        connection.commit()


# A few of the first page are enough here: the part `decisions` flips every one.
DAMAGES: dict[str, Damage] = {
    "bit 7 of the page count flipped": flipped(7, 28),
    "bit 7 of the version flipped": flipped(7, 60),
    "bit 3 of the first page's kind flipped": flipped(3, 100),
    "bit 7 of a letter in the schema flipped": flipped(7, b"decisions ("),
    "text where numbers belong": text_for_number,
    f"explanations that unpack to {BOMB_BYTES / MIB:.0f} MiB": bomb,
}


def rotten(scene: Scene) -> Iterator[Check]:
    """Each damage in turn, done while the unit is stopped, to a file with decisions in it."""
    server = scene.testbed.server
    ask = scene.leadline
    server.run(f"systemctl restart {CONTROLLER}", timeout_s=120)
    place_pod(server, pod(POD, "10m"))
    server.wait_for(ask("explain", POD), START_S)
    with tempfile.TemporaryDirectory(prefix="leadline-attack-") as folder:
        good = saved(scene.testbed, Path(folder))
        for name, damage in DAMAGES.items():
            yield from started_with(scene, good, f"decisions.db with {name}", damage)
        put(scene.testbed, good)
    server.run(f"systemctl start {CONTROLLER}", timeout_s=150)


def started_with(scene: Scene, good: Path, attack: str, damage: Damage) -> Iterator[Check]:
    """Start on a damaged copy of the file, ask about what is in it, and stop."""
    unit = scene.controller
    bad = good.with_name("bad.db")
    bad.write_bytes(good.read_bytes())
    damage(bad)
    put(scene.testbed, bad)
    limits = Limits(unit)
    before = unit.mark()
    with limits.enforced():
        unit.machine.run(f"systemctl start --no-block {CONTROLLER}")
        ready = is_ready(unit, START_S)
        unit.machine.run(scene.leadline("explain", POD), check=False)
        listed = unit.machine.run(scene.leadline("placements"), check=False).returncode == 0
        restarts, usage = int(unit.show("NRestarts")), limits.usage()
        begin_s = time.monotonic()
        stopped = stop(unit)
        took_s = time.monotonic() - begin_s
    lines = unit.lines_since(before)
    tracebacks = sum(TRACEBACK in line for line in lines)
    peak_bytes, most_bytes = usage.peak_bytes, limits.memory_bytes
    yield Check(
        attack,
        "starts, answers, is not restarted, stays below MemoryMax, no traceback",
        f"{'starts' if ready else f'not ready in {START_S:.0f} s'}, "
        f"{'answers' if listed else 'no answer'}, {restarts} restarts, "
        f"{peak_bytes / MIB:.0f} of {most_bytes / MIB:.0f} MiB, {tracebacks} tracebacks",
        ready and listed and not restarts and peak_bytes < most_bytes and not tracebacks,
    )
    yield Check(
        attack,
        "stops on SIGTERM within TimeoutStopSec",
        f"{stopped} after {took_s:.0f} s",
        stopped == "success",
    )


def is_ready(unit: Unit, within_s: float) -> bool:
    """Whether the unit becomes active in time."""
    deadline_s = time.monotonic() + within_s
    while not (ready := unit.is_active()) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    return ready


def stop(unit: Unit) -> str:
    """Stop the unit; how it ended, as systemd has it: success, or timeout if it was killed."""
    unit.machine.run(f"systemctl stop {unit.name}", timeout_s=120)
    result = unit.show("Result")
    unit.machine.run(f"systemctl reset-failed {unit.name}", check=False)
    return result


def saved(testbed: NspawnTestbed, folder: Path) -> Path:
    """Stop the controller, and copy its database to a folder of this machine."""
    stop(Unit(testbed.server, CONTROLLER))
    file = folder / "good.db"
    testbed.namespaces.must("cp", f"{testbed.server.root}{DATABASE}", file)
    return file


def put(testbed: NspawnTestbed, file: Path) -> None:
    """Make it the stopped controller's database, of the same owner, and take others away."""
    testbed.server.run(f"rm -f {DATABASE}?*; touch {DATABASE}")
    testbed.server.run(f"chown --reference {FOLDER} {DATABASE}")
    testbed.namespaces.must("cp", file, f"{testbed.server.root}{DATABASE}")

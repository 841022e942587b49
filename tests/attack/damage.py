"""Damaged files of decisions, and the outcome of a start with each of them.

Each start is that of the history as the controller uses it, in a process that is watched: it
restores what was decided, notes a new decision, answers for it and stops.
"""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.schema import VERSION
from leadline_controller.history.store import HistorySettings, Store

from tests.controller.history.decision_builder import Machine

PAGE = 4096
ROWS = 60
PATIENCE_S = 90.0
USED, ASIDE, SOLE_LEADER = "used", "put aside", "left alone"
HUNG, FORGETS = "hung", "forgets"
Make = Callable[[Path], None]


class Case(NamedTuple):
    """name: what was done to the file. make: does it, given the file's path. expected: any of
    these outcomes is right."""

    name: str
    make: Make
    expected: frozenset[str] = frozenset((USED, ASIDE))


@cache
def sound_file() -> bytes:
    """A file as the controller leaves it."""
    machine = Machine()
    with tempfile.TemporaryDirectory(prefix="leadline-sound-") as folder:
        path = Path(folder) / "d.db"
        store = Store(HistorySettings(path, 1), machine.now)
        store.write([machine.record(f"p{number}", why="x" * 300) for number in range(ROWS)])
        store.close()
        return path.read_bytes()


def used_bits(whole: bytes) -> list[tuple[int, int]]:
    """Byte and bit of all that means something on the first page: the file's header, the
    page's, the pointers to its cells and the cells."""
    cells, content = (int.from_bytes(whole[at : at + 2]) for at in (103, 105))
    places = (*range(108 + 2 * cells), *range(content, PAGE))
    return [(place, bit) for place in places for bit in range(8)]


def flips(whole: bytes, every: int) -> Iterator[Case]:
    """Each `every`th of these bits turned."""
    for place, bit in used_bits(whole)[::every]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        right = {USED, ASIDE}
        if 60 <= place < 64:
            right.add(SOLE_LEADER)  # a version may become a newer Leadline's
        yield Case(f"bit {place}.{bit}", partial(written, bytes(flipped)), frozenset(right))


def page_flips(whole: bytes, count: int) -> Iterator[Case]:
    """Single bits of the other pages, evenly spread."""
    for number in range(count):
        at = PAGE * 8 + (len(whole) - PAGE) * 8 * number // count + number % 8
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        yield Case(f"bit {at // 8}.{at % 8}", partial(written, bytes(flipped)))


def statements() -> Iterator[Case]:
    """What a person or a program could have written into the tables."""
    for name, sql in {
        "text for a time": "UPDATE decisions SET up_s = 'soon'",
        "text for a count": "UPDATE decisions SET record = json_set(record, '$[7]', 'often')",
        "a count beyond 64 bits": "UPDATE decisions SET record = json_set(record, '$[7]', 1e300)",
        "a count beyond 32 bits": "UPDATE decisions SET record = json_set(record, '$[7]', 9e9)",
        "endless times": "UPDATE decisions SET up_s = 9e999, first_up_s = -9e999",
        "a clock out of all reason": "UPDATE boots SET started_unix_s = 1e300",
        "a blob for a pod": "UPDATE decisions SET pod = x'ff00ff'",
        "a number for a pod": "UPDATE decisions SET pod = 17",
        "text that is none": "UPDATE decisions SET pod = CAST(x'fffe80' AS TEXT)",
        "text of 20 MB": "UPDATE decisions SET record ="
        " json_set(record, '$[2]', hex(zeroblob(10000000))) WHERE id = 5",
        "a number for a record": "UPDATE decisions SET record = 17",
        "text for an explanation": "UPDATE decisions SET explanation = 'none'",
        "deep JSON": "UPDATE decisions SET record = replace(hex(zeroblob(30000)), '0', '[')",
        "JSON that is no array": "UPDATE decisions SET record = '{}'",
        "half characters": """UPDATE decisions SET record = replace(record, 'xxx', '\\ud800')""",
        "a boot that is missing": "DELETE FROM boots",
        "no numbers left": "UPDATE decisions SET id = 9223372036854775807 WHERE id = 60",
        "another table": "DROP TABLE boots",
        "a column less": "ALTER TABLE decisions RENAME COLUMN record TO because",
        "a trigger": "CREATE TRIGGER t AFTER INSERT ON decisions BEGIN DELETE FROM decisions; END",
        "no version": "PRAGMA user_version = 0",
        "a version below all": "PRAGMA user_version = -2147483648",
    }.items():
        yield Case(name, partial(executed, sql))


def files(whole: bytes) -> Iterator[Case]:
    """Files that are cut off, missing, of another kind or of another program."""
    for length in (1, 50, 100, 4095, 4096, 8192, len(whole) - 1):
        yield Case(f"cut off at {length}", partial(written, whole[:length]))
    yield Case("empty", partial(written, b""))
    yield Case("rubbish", partial(written, b"rubbish" * 999))
    yield Case("zeros", partial(written, bytes(len(whole))))
    yield Case("an endless tree", partial(endless_tree, whole))
    for name in ("-wal", "-shm", "-journal"):
        for junk in (b"\xaa" * 9999, b"", whole):
            yield Case(f"{len(junk)} bytes as {name}", partial(beside, whole, name, junk))
    right = frozenset((SOLE_LEADER,))
    yield Case("a folder in its place", Path.mkdir, right)
    yield Case("a pipe in its place", os.mkfifo, right)
    yield Case("another program's", partial(executed, "CREATE TABLE theirs (x)", fresh=True), right)
    yield Case("another's mark", partial(executed, "PRAGMA application_id = 7", fresh=True), right)
    yield Case(
        "a newer Leadline's",
        partial(executed, f"PRAGMA user_version = {VERSION + 1}"),
        right,
    )


def written(data: bytes, path: Path) -> None:
    """The file has these bytes."""
    path.write_bytes(data)


def beside(data: bytes, ending: str, junk: bytes, path: Path) -> None:
    """A sound file with junk in the place of one of SQLite's own."""
    path.write_bytes(data)
    path.with_name(path.name + ending).write_bytes(junk)


def executed(sql: str, path: Path, *, fresh: bool = False) -> None:
    """A sound file, or none, after this statement."""
    if not fresh:
        path.write_bytes(sound_file())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)


def endless_tree(whole: bytes, path: Path) -> None:
    """The decisions' tree made of pages each of which points 400 times to the next."""
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'decisions'"
        ).fetchone()
    pages, first = bytearray(whole), len(whole) // PAGE + 1
    leaf = first + 15
    for number in range(first, leaf):
        pages += _interior(number + 1)
    pages += whole[PAGE * 2 : PAGE * 3]
    pages[PAGE * (root - 1) : PAGE * root] = _interior(first)
    pages[28:32] = (len(pages) // PAGE).to_bytes(4)
    path.write_bytes(pages)


def _interior(child: int) -> bytes:
    cells = [child.to_bytes(4) + bytes((number % 127,)) for number in range(400)]
    content = b"".join(cells)
    start = PAGE - len(content)
    header = b"\x05\x00\x00" + len(cells).to_bytes(2) + start.to_bytes(2) + b"\x00"
    pointers = b"".join((start + 5 * number).to_bytes(2) for number in range(len(cells)))
    head = header + child.to_bytes(4) + pointers
    return head + bytes(start - len(head)) + content


def starts(cases: Iterable[Case], patience_s: float = PATIENCE_S) -> Iterator[tuple[Case, str]]:
    """Start with each file; the outcome is USED, ASIDE, ALONE, HUNG, FORGETS or an error."""
    watched: tuple[BaseProcess, Connection] | None = None
    with tempfile.TemporaryDirectory(prefix="leadline-damage-", dir=_in_memory()) as folder:
        for number, case in enumerate(cases):
            process, connection = watched = watched or _watched()
            connection.send((case.make, str(Path(folder) / str(number))))
            if connection.poll(patience_s):
                yield case, connection.recv()
            else:
                process.kill()
                process.join()
                watched = None
                yield case, HUNG
            shutil.rmtree(Path(folder) / str(number), ignore_errors=True)
    if watched is not None:
        watched[1].send(None)
        watched[0].join()


def _in_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for speed


def _watched() -> tuple[BaseProcess, Connection]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    ours.recv()  # it has imported all that it needs
    return process, ours


def _serve(connection: Connection) -> None:
    connection.send("ready")
    while (task := connection.recv()) is not None:
        make, folder = task
        try:
            outcome = _start(make, Path(folder))
        except BaseException as error:  # noqa: BLE001  # that is what is looked for
            outcome = f"raised {error!r:.120}"
        connection.send(outcome)


def _start(make: Make, folder: Path) -> str:
    folder.mkdir()
    path = folder / "d.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    explained = asyncio.run(_through(path))
    if not explained:
        return FORGETS
    if path.with_name("d.db.corrupt").exists():
        return ASIDE
    if not path.is_file() or path.read_bytes() == before:
        return SOLE_LEADER
    return USED


async def _through(path: Path) -> bool:
    """Whether a new decision is recorded."""
    recorder = Recorder(HistorySettings(path, 1))
    log = DecisionLog(sink=recorder.put)
    recorder.start()
    try:
        log.restore(await recorder.restored())
        made = Decision(Pod("default", "new", "u"), "n1", "it fits", "dacs", "lower")
        log.add(made, 0.0, PENDING, {})
        records = await recorder.about("default/new")
        await recorder.since(None)
    finally:
        await recorder.stop()
    return [each.node for each in records] == ["n1"]

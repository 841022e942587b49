"""What is in a recording, and a part of it as one file that can be read by itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from leadline_controller.history.recorded import Began, Entry
from leadline_controller.history.recording_blocks import BlockError
from leadline_controller.history.recording_files import (
    Block,
    Damage,
    RecordingError,
    begin,
    blocks,
    number_of,
    read_block,
    read_file,
    write_recording,
)
from leadline_controller.history.recording_start import Start


@dataclass(frozen=True, slots=True)
class File:
    """A file of a recording, from its blocks' headers and its first entry."""

    path: Path
    size_bytes: int
    entries: int
    # Of its first and last entry, on the clock of decisions.
    first_s: float
    last_s: float
    began: Began | None  # None if that is damaged
    continues: bool  # it goes on where the one of the number before ended
    damage: Damage  # of the headers
    unix_offset_s: float  # from that clock to the wall clock, by the file's time if not said

    @property
    def first_unix_s(self) -> float:
        """When it begins, by the wall clock."""
        return self.first_s + self.unix_offset_s

    @property
    def last_unix_s(self) -> float:
        """When it ends, by the wall clock."""
        return self.last_s + self.unix_offset_s


def file_of(path: Path) -> File:
    """What this file has. Raises RecordingError and OSError."""
    damage, began = Damage(), None
    with path.open("rb") as file:
        stat = path.stat()
        continues = begin(file)
        found = [each for each in blocks(file, damage) if isinstance(each, Block)]
        if found:
            try:
                first = read_block(file, found[0])[0].what
                began = first if isinstance(first, Began) else None
            except BlockError:
                damage.blocks += 1
    first_s = found[0].first_s if found else 0.0
    last_s = found[-1].last_s if found else 0.0
    offset_s = stat.st_mtime - last_s
    if began is not None and began.unix_s is not None:
        offset_s = began.unix_s - first_s
    entries = sum(each.entries for each in found)
    return File(*(path, stat.st_size, entries, first_s, last_s, began, continues, damage, offset_s))


def export(
    files: Sequence[File],
    since_unix_s: float,
    to: Path,
    report: Callable[[float], None] = lambda _: None,
) -> tuple[int, Damage]:
    """Write what these files, in their order, have since then as one file that begins with what
    was known then. report: is told the share that is done. Returns the number of entries, and what
    is missing. Raises RecordingError if there is nothing, and OSError."""
    wanted = [each for each in files if each.last_unix_s >= since_unix_s]
    if not wanted:
        raise RecordingError("nothing is recorded since then")
    damage, total = Damage(), sum(each.entries for each in wanted)

    def counted(entries: Iterator[Entry]) -> Iterator[Entry]:
        for number, entry in enumerate(entries):
            if number % 1024 == 0:
                report(number / max(1, total))
            yield entry

    first, *others = wanted
    left = counted(_joined(first, others, damage))
    start, began, offset_s = Start(), first.began, first.unix_offset_s
    for entry in left:
        if isinstance(entry.what, Began):
            start, began = Start.of(entry.what), entry.what
            offset_s = offset_s if began.unix_s is None else began.unix_s - entry.at_s
        if entry.at_s + offset_s >= since_unix_s:
            break
        start.add(entry.what)
    else:
        raise RecordingError("nothing is recorded since then")
    known: list[Entry] = []
    if not isinstance(entry.what, Began):
        if began is None:
            raise RecordingError(f"{first.path}: it does not say of which controller it is")
        now = replace(began, unix_s=entry.at_s + offset_s)
        known = list(start.entries(now, entry.at_s))
    return write_recording(to, chain(known, (entry,), left), start=len(known)), damage


def _joined(first: File, others: Sequence[File], damage: Damage) -> Iterator[Entry]:
    yield from read_file(first.path, damage)
    before = number_of(first.path)
    for each in others:
        yield from read_file(each.path, damage, joins=number_of(each.path) == before + 1)
        before = number_of(each.path)

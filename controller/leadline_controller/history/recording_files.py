"""Files of recordings: a header, then blocks of entries, each compressed, with a check sum.

docs/recording.md has the format. A block that is damaged costs only itself: its header has a check
sum of its own, and where that is damaged, too, the next block is found by its mark. A file that
ends within a block ended with the power. Nobody has to trust a file: sizes have limits, and what is
wrong with it is said in one line.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from leadline_controller.history.recorded import Began, Entry, Missed
from leadline_controller.history.recording_blocks import BlockError, decode_block, encode_block

MAGIC, VERSION = b"LEADLINE", 1
SUFFIX = ".recording"
_MARK = b"\xf0LB\xf1"
_CONTINUES = 1  # a file's flag: it goes on where the one of the number before ended
_IS_START = 1  # a block's flag: what was known when the file began
_FILE = struct.Struct("<8sHHI")  # magic, version, flags, check sum of these
# Mark, flags, bytes and number of entries, times of the first and the last, check sums of the bytes
# and of these.
_BLOCK = struct.Struct("<4sIIIddII")
_LARGEST, _LARGEST_EXPANDED = 1 << 27, 1 << 28
_CHUNK = 1 << 20
BLOCK_ENTRIES = 2048
_NAME = re.compile(rf"([0-9]{{6,12}}){re.escape(SUFFIX)}")


class RecordingError(ValueError):
    """A recording that cannot be read. str() is one line for people."""


class Block(NamedTuple):
    """A block as its header says. Times are those of its entries, seconds."""

    at: int  # where its bytes are in the file
    size: int
    entries: int
    first_s: float
    last_s: float
    crc: int
    is_start: bool  # it tells what was known when the file began


@dataclass(slots=True)
class Damage:
    """What of a recording cannot be read."""

    blocks: int = 0
    entries: int = 0  # of these, where the header is sound
    is_torn: bool = False  # it ends within a block
    what: str = ""  # the last fault

    @property
    def is_any(self) -> bool:
        """Whether anything is missing."""
        return self.blocks > 0 or self.is_torn


class RecordingFile:
    """A new file, to be written. continues: it goes on where the one of the number before ended. No
    method but `close` keeps an OSError to itself."""

    def __init__(self, path: Path, *, continues: bool = False) -> None:
        self.path = path
        self._file = path.open("xb", buffering=0)
        path.chmod(0o640)
        head = _FILE.pack(MAGIC, VERSION, _CONTINUES * continues, 0)[:-4]
        self.size = 0
        self._append(head + zlib.crc32(head).to_bytes(4, "little"))

    def write(self, entries: Sequence[Entry], *, is_start: bool = False) -> None:
        """Append a block. is_start: it tells what was known when the file began. Raises as
        `encode_block` does."""
        data = zlib.compress(encode_block(entries))
        head = _BLOCK.pack(
            *(_MARK, _IS_START * is_start, len(data), len(entries)),
            *(entries[0].at_s, entries[-1].at_s, zlib.crc32(data), 0),
        )[:-4]
        self._append(head + zlib.crc32(head).to_bytes(4, "little") + data)

    def sync(self) -> None:
        """Wait until the disk has it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        try:
            written = self._file.write(data)
            if written < len(data):  # the next write says why
                written += self._file.write(data[written:])
            if written < len(data):
                raise OSError("the disk takes no more")
        except OSError:
            self._file.truncate(self.size)
            raise
        self.size += len(data)


def write_recording(path: Path, entries: Iterable[Entry], *, start: int = 0) -> int:
    """Write a recording, in place of what is there. The first entry must be Began. start: so many
    entries tell what was known then. Returns the number of entries. Raises OSError, and what
    `encode_block` raises."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    count, left = 0, iter(entries)
    try:
        with closing(RecordingFile(new)) as file:
            for is_start in (True, False):
                while True:
                    most = min(BLOCK_ENTRIES, start - count) if is_start else BLOCK_ENTRIES
                    block = list(islice(left, max(0, most)))
                    if not block:
                        break
                    if not count and not isinstance(block[0].what, Began):
                        raise RecordingError("a recording begins with Began")
                    file.write(block, is_start=is_start)
                    count += len(block)
            file.sync()
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return count


def recordings(folder: Path) -> list[Path]:
    """The files of a folder, the oldest first, without those that ended before they began. Raises
    OSError."""
    return [each for each in numbered(folder) if each.stat().st_size >= _FILE.size]


def numbered(folder: Path) -> list[Path]:
    """All files of a folder that have a number, the oldest first. Raises OSError."""
    found = (each for each in folder.iterdir() if number_of(each))
    return sorted(found, key=number_of)


def number_of(path: Path) -> int:
    """The number of a file of a folder; 0 for one of another name."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


def path_of(folder: Path, number: int) -> Path:
    """The file of this number."""
    return folder / f"{number:06}{SUFFIX}"


def read_recording(path: Path, damage: Damage | None = None) -> Iterator[Entry]:
    """The entries of a file, or of all files of a folder as one recording. damage: is told what is
    missing, where a Missed stands. Raises RecordingError for what is no recording, and OSError."""
    damage, before = damage or Damage(), -1
    for file in recordings(path) if path.is_dir() else [path]:
        yield from read_file(file, damage, joins=number_of(file) == before + 1)
        before = number_of(file)


def read_file(path: Path, damage: Damage, *, joins: bool = False) -> Iterator[Entry]:
    """As `read_recording`, of one file. joins: the one of the number before was read, so that what
    was known when this one began is left out if it goes on there."""
    last_s = 0.0
    with path.open("rb") as file:
        continues = joins and begin(file)
        for block in blocks(file, damage):
            if isinstance(block, Damage):
                yield Entry(last_s, Missed(max(1, block.entries)))
                continue
            last_s = block.first_s
            if continues and block.is_start:
                continue
            try:
                yield from read_block(file, block)
            except BlockError as error:
                damage.blocks, damage.what = damage.blocks + 1, str(error)
                damage.entries += block.entries
                yield Entry(last_s, Missed(block.entries))
            last_s = block.last_s


def begin(file: BinaryIO) -> bool:
    """Read the header; whether the file goes on where another one ended. Raises RecordingError."""
    head = file.read(_FILE.size)
    if head[: len(MAGIC)] != MAGIC or len(head) < _FILE.size:
        raise RecordingError(f"{file.name}: no recording of Leadline")
    _, version, flags, crc = _FILE.unpack(head)
    if zlib.crc32(head[:-4]) != crc:
        raise RecordingError(f"{file.name}: its first bytes are damaged")
    if version != VERSION:
        raise RecordingError(
            f"{file.name}: a recording of format {version}; this Leadline reads format {VERSION}"
        )
    return bool(flags & _CONTINUES)


def blocks(file: BinaryIO, damage: Damage) -> Iterator[Block | Damage]:
    """The blocks from the header on, without reading them; damage, once it is counted, stands for
    bytes that belong to none. Raises RecordingError."""
    file.seek(0)
    begin(file)
    at: int | None = _FILE.size
    size = os.fstat(file.fileno()).st_size
    while at is not None and at < size:
        block = _block_at(file, at)
        if block is None:
            begun, at = at, _next_block(file, at + 1)
            damage.is_torn |= at is None and size - begun < _BLOCK.size
            damage.blocks += at is not None or size - begun >= _BLOCK.size
            damage.what = "no block where one should be"
            yield damage
        elif block.at + block.size > size:
            damage.is_torn, damage.entries = True, damage.entries + block.entries
            damage.what = "it ends within a block"
            yield damage
            return
        else:
            yield block
            at = block.at + block.size


def read_block(file: BinaryIO, block: Block) -> list[Entry]:
    """The entries of a block. Raises BlockError."""
    file.seek(block.at)
    data = file.read(block.size)
    if zlib.crc32(data) != block.crc:
        raise BlockError("the check sum of a block is wrong")
    expand = zlib.decompressobj()
    try:
        expanded = expand.decompress(data, _LARGEST_EXPANDED)
    except zlib.error as error:
        raise BlockError(f"a block cannot be expanded: {error}") from None
    if not expand.eof:
        raise BlockError("a block is too large, or ends too early")
    return decode_block(expanded)


def _block_at(file: BinaryIO, at: int) -> Block | None:
    file.seek(at)
    head = file.read(_BLOCK.size)
    if len(head) < _BLOCK.size or head[: len(_MARK)] != _MARK:
        return None
    _, flags, size, count, first_s, last_s, crc, own = _BLOCK.unpack(head)
    if zlib.crc32(head[:-4]) != own or size > _LARGEST:
        return None
    return Block(at + _BLOCK.size, size, count, first_s, last_s, crc, bool(flags & _IS_START))


def _next_block(file: BinaryIO, at: int) -> int | None:
    """Where the next sound header is."""
    while True:
        file.seek(at)
        data = file.read(_CHUNK)
        found = data.find(_MARK)
        if found < 0 and len(data) < _CHUNK:
            return None
        if found >= 0 and _block_at(file, at + found) is not None:
            return at + found
        at += found + 1 if found >= 0 else _CHUNK - len(_MARK) + 1

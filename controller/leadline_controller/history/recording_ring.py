"""The ring of files that a recording is written to, by one thread.

Each write wears an SD card, so the entries of a minute are written at once. A disk that takes no
more turns the recording off: it is tried again rarely, with a file that begins anew.
"""

import logging
import math
import operator
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from leadline_controller.history.recorded import Began, Entry, Missed
from leadline_controller.history.recording_blocks import ENTRY_ERRORS, encode_block
from leadline_controller.history.recording_files import (
    BLOCK_ENTRIES,
    RecordingFile,
    number_of,
    numbered,
    path_of,
)
from leadline_controller.history.recording_start import Start
from leadline_controller.parsing.settings import absolute_path, setting

log = logging.getLogger(__name__)

_MIB = 2**20
# What waits is written, and the disk has it, before it is a minute old.
_WRITE_EVERY_S = 55.0
_RETRY_S = 600.0


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """Whether and where what decisions depend on is recorded."""

    enabled: bool = setting(
        False,
        "true: the controller that leads keeps what decisions depend on, and them, in files; see "
        "[recordings](recording.md)",
    )
    folder: Path | None = setting(
        None,
        "where; it holds nothing else. The default is `recordings` beside the file of decisions",
        read=absolute_path,
        shown="`/var/lib/leadline-controller/recordings`",
    )
    max_mb: int = setting(
        300,
        "the size of all files, MiB, about two weeks of 20 boards; the oldest file is deleted",
        least=2,
        most=1 << 20,
    )
    file_mb: int = setting(
        8, "the size of a file, MiB; each can be read by itself", least=1, most=1024
    )


class Ring:
    """The files of a folder. began: what a file begins with, of its time. start: what is known
    already. size_bytes: of all files. problem: why nothing is recorded, empty if it is. failed:
    entries that could not be kept."""

    def __init__(
        self, settings: RecordingSettings, began: Callable[[float], Began], start: Start
    ) -> None:
        assert settings.folder is not None  # noqa: S101  # `load` fills it in
        self.folder = settings.folder
        self._most_bytes = settings.max_mb * _MIB
        # A ring has two files at least.
        self._file_bytes = min(settings.file_mb * _MIB, self._most_bytes // 2)
        self._began = began
        self._start = start
        self._file: RecordingFile | None = None
        self._waiting: list[Entry] = []
        self._is_on = False
        self._since_s = self._retry_s = math.inf
        self._last_s = -math.inf
        self.size_bytes = self.failed = 0
        self.problem = ""

    @property
    def is_on(self) -> bool:
        """Whether entries are to be written."""
        return self._is_on

    def begin(self, at_s: float) -> None:
        """Write from now on, in a new file that begins with what is known."""
        self._is_on, self._last_s = True, at_s
        self._open(at_s, continues=False)

    def end(self, at_s: float) -> None:
        """Write no more than what waits."""
        self._write(at_s, syncs=True)
        self._is_on, self._since_s = False, math.inf
        self._close()

    def add(self, entry: Entry) -> None:
        """An entry, in the order of their times."""
        # An agent's message counts a little later than it came, if another thread was quicker.
        at_s = max(entry.at_s, self._last_s)
        if not self._start.add(entry.what) or self._file is None:
            return
        self._last_s, self._since_s = at_s, min(self._since_s, at_s)
        self._waiting.append(Entry(at_s, entry.what))
        if len(self._waiting) >= BLOCK_ENTRIES:
            self._write(at_s, syncs=False)

    def tick(self, now_s: float) -> None:
        """Write what waits if it is time. Call it each few seconds."""
        if self._is_on and self._file is None and now_s >= self._retry_s:
            self._last_s = max(self._last_s, now_s)
            self._open(self._last_s, continues=False)
        elif now_s - self._since_s >= _WRITE_EVERY_S:
            self._write(now_s, syncs=True)

    def _write(self, at_s: float, *, syncs: bool) -> None:
        waiting, self._waiting = self._waiting, []
        if self._file is None:
            return
        try:
            if waiting:
                self._put(waiting)
            if syncs:
                self._file.sync()
                self._since_s = math.inf
        except OSError as error:
            self._lose(error, at_s)
            return
        if self._file.size >= self._file_bytes:
            self._close()
            self._open(self._last_s, continues=True)

    def _put(self, entries: Sequence[Entry], *, is_start: bool = False) -> None:
        """Write a block. What cannot be kept, for example a text that is no Unicode, is left out:
        the other entries must not suffer."""
        assert self._file is not None  # noqa: S101  # its callers look
        try:
            self._file.write(entries, is_start=is_start)
        except ENTRY_ERRORS as error:
            if not self.failed:
                log.error("an entry cannot be recorded: %r; please report it", error)
            left = [
                each if _can_be_kept(each) else each._replace(what=Missed(1)) for each in entries
            ]
            self.failed += sum(map(operator.ne, left, entries))
            self._file.write(left, is_start=is_start)

    def _open(self, at_s: float, *, continues: bool) -> None:
        try:
            self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            files = numbered(self.folder)
            sizes = {each: each.stat().st_size for each in files}
            while files and sum(sizes.values()) > self._most_bytes - self._file_bytes:
                sizes.pop(oldest := files.pop(0))
                oldest.unlink()
            self.size_bytes = sum(sizes.values()) + self._file_bytes
            number = number_of(files[-1]) + 1 if files else 1
            self._file = RecordingFile(path_of(self.folder, number), continues=continues)
            entries = self._start.entries(self._began(at_s), at_s)
            while block := list(islice(entries, BLOCK_ENTRIES)):
                self._put(block, is_start=True)
            self._file.sync()
            _sync_folder(self.folder)
        except OSError as error:
            if self._file is not None:  # it has not even what it begins with
                with suppress(OSError):
                    self._file.path.unlink()
            self._lose(error, at_s)
            return
        if self.problem:
            self.problem = ""
            log.info("%s: recording again", self.folder)

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = None

    def _lose(self, error: OSError, at_s: float) -> None:
        if not self.problem:
            log.warning("%s: %s; nothing is recorded", self.folder, error.strerror or error)
        self.problem = error.strerror or str(error)
        self._retry_s, self._since_s = at_s + _RETRY_S, math.inf
        self._waiting.clear()
        self._close()


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of its files. Raises OSError."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _can_be_kept(entry: Entry) -> bool:
    try:
        encode_block([entry])
    except ENTRY_ERRORS:
        return False
    return True

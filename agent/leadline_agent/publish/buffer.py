"""The bounded queue of messages that the broker has not acknowledged yet.

It is in memory. Only while the broker is unreachable is it also appended to a file, so that a
healthy board writes nothing to its SD card, and queued messages survive a restart and a power cut.
When it is full, the oldest message is dropped and counted.

The file is a log of records: length and CRC-32 of the body, then the body. A message record adds to
the queue; a mark removes all messages up to a number. Reading ends at the first incomplete record,
so that a power cut loses only the record that was being written.
"""

import logging
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ENOSPC
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path

from leadline_wire import topics

LOG = logging.getLogger(__name__)
_FRAME = struct.Struct(">II")  # bytes of the body, CRC-32 of the body
_HEAD = struct.Struct(">cQQ")  # kind, number, messages dropped so far
_MESSAGE = struct.Struct(">16sH")  # boot id, bytes of the topic; then topic and payload
_ADD, _MARK = b"M", b"A"
_MAX_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BufferedMessage:
    """A message with its number in the queue and the boot in which it was created."""

    number: int
    topic: str
    boot_id: bytes
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """Its size in the file, which counts against the bound."""
        return _FRAME.size + _HEAD.size + _MESSAGE.size + len(self.topic) + len(self.payload)


class Buffer:
    """A queue, oldest first, with contiguous numbers. For one thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Read what an earlier run left at `path`. An unusable file is logged."""
        self._path = path
        self.max_bytes = max_bytes
        self._messages: deque[BufferedMessage] = deque()
        self._bytes = 0
        self._last = 0  # number of the newest message ever
        self._last_on_disk = 0
        self._file: FileIO | None = None
        self._file_bytes = 0
        self._is_dirty = False
        self.dropped = 0
        self._read()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def first(self) -> int:
        """The number of the oldest message, or of the next one if there is none."""
        return self._last + 1 - len(self._messages)

    def append(self, topic: str, boot_id: bytes, payload: bytes) -> int:
        """Add a message in memory, dropping the oldest ones if it is full. Returns its number."""
        self.dropped += self._push(BufferedMessage(self._last + 1, topic, boot_id, payload))
        return self._last

    def after(self, number: int) -> BufferedMessage | None:
        """The oldest message after `number`."""
        index = max(0, number + 1 - self.first)
        return self._messages[index] if index < len(self._messages) else None

    def acknowledge(self, number: int) -> None:
        """Remove the messages up to `number`: the broker has them."""
        were_on_disk = self.first <= min(number, self._last_on_disk)
        while self._messages and self._messages[0].number <= number:
            self._pop()
        if not were_on_disk:
            return
        if self.first <= self._last_on_disk:
            self._write(self._mark())
        else:
            self._clear_disk()

    def spill(self) -> None:
        """Write to disk what is only in memory, without synchronising (see `flush`)."""
        start = max(self._last_on_disk + 1, self.first) - self.first
        missing = list(islice(self._messages, start, None))
        if missing and self._write(b"".join(self._record(message) for message in missing)):
            self._last_on_disk = self._last
        if self._file_bytes > 2 * self.max_bytes:
            self._compact()

    def flush(self) -> None:
        """Synchronise the file, so that it survives a power cut."""
        if self._file and self._is_dirty:
            with self._errors_logged():
                os.fsync(self._file.fileno())
            self._is_dirty = False

    def close(self) -> None:
        """Write, synchronise and close."""
        self.spill()
        self.flush()
        self._close_file()

    def _push(self, message: BufferedMessage) -> int:
        """Add a message and drop what no longer fits. Returns how many were dropped."""
        self._messages.append(message)
        self._bytes += message.size_bytes
        self._last = message.number
        count = 0
        while self._bytes > self.max_bytes and len(self._messages) > 1:
            self._pop()
            count += 1
        return count

    def _pop(self) -> None:
        self._bytes -= self._messages.popleft().size_bytes

    def _record(self, message: BufferedMessage) -> bytes:
        topic = message.topic.encode()
        head = _HEAD.pack(_ADD, message.number, self.dropped)
        return _framed(head + _MESSAGE.pack(message.boot_id, len(topic)) + topic + message.payload)

    def _mark(self) -> bytes:
        return _framed(_HEAD.pack(_MARK, self.first - 1, self.dropped))

    def _write(self, data: bytes) -> bool:
        """Append to the file. The next write overwrites an incomplete one."""
        with self._errors_logged():
            if self._file is None:
                self._file = FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
            self._file.seek(self._file_bytes)
            if self._file.write(data) != len(data):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            self._file_bytes += len(data)
            self._is_dirty = True
            return True
        return False

    def _clear_disk(self) -> None:
        with self._errors_logged():
            os.truncate(self._path, 0)
            self._file_bytes = 0
            self._is_dirty = True
            if self.dropped:
                self._write(self._mark())

    def _compact(self) -> None:
        """Rewrite the file atomically with the messages that are still queued."""
        data = self._mark() + b"".join(self._record(message) for message in self._messages)
        temporary = self._path.with_suffix(".new")
        with self._errors_logged():
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            self._close_file()
            self._file_bytes, self._last_on_disk = len(data), self._last

    def _close_file(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    @contextmanager
    def _errors_logged(self) -> Iterator[None]:
        """A disk that fails ends the block, and not the agent."""
        try:
            yield
        except OSError as error:
            LOG.warning(
                "buffer %s: %s; keeping messages in memory only", self._path, error.strerror
            )

    def _read(self) -> None:
        with self._errors_logged(), suppress(FileNotFoundError):
            with self._path.open("rb") as file:
                for body in _bodies(file):
                    if not self._replay(body):
                        break
                    self._file_bytes += _FRAME.size + len(body)
            torn_bytes = self._path.stat().st_size - self._file_bytes
            if torn_bytes:
                LOG.warning("buffer %s: cut off %d torn bytes", self._path, torn_bytes)
                os.truncate(self._path, self._file_bytes)
        self._last_on_disk = self._last

    def _replay(self, body: bytes) -> bool:
        """Apply a record. False if no agent can have written it."""
        kind, number, dropped = _HEAD.unpack_from(body)
        if kind == _ADD:
            try:
                boot_id, topic_bytes = _MESSAGE.unpack_from(body, _HEAD.size)
                start = _HEAD.size + _MESSAGE.size
                topic = body[start : start + topic_bytes].decode()
                topics.parse(topic)
            except (struct.error, ValueError):  # TopicError is a ValueError
                return False
            payload = body[start + topic_bytes :]
            self._push(BufferedMessage(number, topic, boot_id, payload))
        else:
            while self._messages and self._messages[0].number <= number:
                self._pop()
            self._last = max(self._last, number)
        self.dropped = dropped
        return True


def _framed(body: bytes) -> bytes:
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _bodies(file: BufferedReader) -> Iterator[bytes]:
    """The bodies of the complete records at the beginning of the file."""
    while len(frame := file.read(_FRAME.size)) == _FRAME.size:
        length, checksum = _FRAME.unpack(frame)
        if not _HEAD.size <= length <= _MAX_BODY_BYTES:
            return
        body = file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        yield body

"""The buffer compared with a model: in memory, on disk, and after a power cut."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from leadline_agent.publish.buffer import Buffer

from tests.support.examples import examples

BOOT = bytes(range(16))
TOPIC = "leadline/v1/home/pi-1/report"


def contents(buffer: Buffer) -> list[bytes]:
    return list(entries(buffer))


def entries(buffer: Buffer) -> Iterator[bytes]:
    number = 0
    while entry := buffer.after(number):
        yield entry.payload
        number = entry.number


def fill(buffer: Buffer, *payloads: bytes) -> None:
    for payload in payloads:
        buffer.append(TOPIC, BOOT, payload)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer"


def test_a_healthy_board_writes_nothing(path: Path) -> None:
    buffer = Buffer(path, 4096)
    for _ in range(100):
        buffer.acknowledge(buffer.append(TOPIC, BOOT, b"x" * 200))
    buffer.flush()
    buffer.close()
    assert not path.exists()


def test_unacknowledged_messages_survive_a_restart(path: Path) -> None:
    buffer = Buffer(path, 4096)
    fill(buffer, b"a", b"b", b"c")
    buffer.acknowledge(1)
    buffer.close()
    again = Buffer(path, 4096)
    assert contents(again) == [b"b", b"c"]
    entry = again.after(0)
    assert entry is not None
    assert (entry.topic, entry.boot_id) == (TOPIC, BOOT)


def test_a_spilled_message_survives_without_close(path: Path) -> None:
    buffer = Buffer(path, 4096)
    fill(buffer, b"a", b"b")
    buffer.spill()
    assert contents(Buffer(path, 4096)) == [b"a", b"b"]


def test_the_file_is_empty_when_all_is_acknowledged(path: Path) -> None:
    buffer = Buffer(path, 4096)
    fill(buffer, b"a", b"b")
    buffer.spill()
    buffer.acknowledge(2)
    assert path.stat().st_size == 0
    fill(buffer, b"c")
    buffer.close()
    assert contents(Buffer(path, 4096)) == [b"c"]


def test_the_oldest_is_dropped_first_and_counted_across_restarts(path: Path) -> None:
    buffer = Buffer(path, 1000)
    fill(buffer, *(bytes([i]) * 100 for i in range(20)))
    kept = contents(buffer)
    assert kept == [bytes([i]) * 100 for i in range(20 - len(kept), 20)]
    assert buffer.dropped == 20 - len(kept) > 0
    buffer.close()
    again = Buffer(path, 1000)
    assert (contents(again), again.dropped) == (kept, buffer.dropped)
    again.acknowledge(20)
    again.close()
    assert Buffer(path, 1000).dropped == buffer.dropped


def test_reading_ends_at_a_damaged_record(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = Buffer(path, 4096)
    fill(buffer, b"first", b"second", b"third")
    buffer.close()
    damaged = path.read_bytes().replace(b"second", b"s#cond")
    path.write_bytes(damaged)
    again = Buffer(path, 4096)
    assert contents(again) == [b"first"]
    assert "torn bytes" in caplog.text
    fill(again, b"fourth")
    again.close()
    assert contents(Buffer(path, 4096)) == [b"first", b"fourth"]


@pytest.mark.parametrize("junk", [b"\0" * 500, b"\xff" * 500, b"hello", os.urandom(999)])
def test_a_file_of_another_format_is_replaced(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    buffer = Buffer(path, 4096)
    assert contents(buffer) == []
    fill(buffer, b"a")
    buffer.close()
    assert contents(Buffer(path, 4096)) == [b"a"]


def test_the_file_stays_bounded_through_a_long_outage(path: Path) -> None:
    buffer = Buffer(path, 4096)
    for _ in range(500):
        fill(buffer, b"x" * 100)
        buffer.spill()
    assert path.stat().st_size <= 2 * 4096 + 1000
    assert contents(Buffer(path, 4096)) == contents(buffer)


def test_messages_stay_in_memory_when_the_disk_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = Buffer(tmp_path / "no such folder" / "buffer", 4096)
    fill(buffer, b"a")
    buffer.spill()
    assert contents(buffer) == [b"a"]
    assert "in memory only" in caplog.text


MAX_BYTES = 600
RECORD_BYTES = 8 + 17 + 18 + len(TOPIC)  # without the payload
MARK_BYTES = 8 + 17
Entries = list[tuple[int, bytes]]


def fitted(entries: Entries) -> Entries:
    """The newest entries that fit, and always the newest one."""
    while len(entries) > 1 and sum(RECORD_BYTES + len(p) for _, p in entries) > MAX_BYTES:
        entries = entries[1:]
    return entries


class BufferMachine(RuleBasedStateMachine):
    """Drives a buffer and its model alike, with restarts and with power cuts.

    `on_disk` lists what the file must read as when it is cut off at a given length: the
    last line that fits holds, whatever is torn after it.
    """

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "buffer"
        self.live: Entries = []
        self.last = 0
        self.dropped = 0
        self.on_disk: list[tuple[int, Entries]] = [(0, [])]
        self.buffer = Buffer(self.path, MAX_BYTES)

    def teardown(self) -> None:
        self.buffer.close()
        self.folder.cleanup()

    @rule(payload=st.binary(max_size=120))
    def append(self, payload: bytes) -> None:
        self.last = self.buffer.append(TOPIC, BOOT, payload)
        grown = [*self.live, (self.last, payload)]
        self.live = fitted(grown)
        self.dropped += len(grown) - len(self.live)

    @rule()
    def spill(self) -> None:
        self.buffer.spill()
        self._model_spill()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(self.live[0][0], self.live[-1][0]))
        self.buffer.acknowledge(number)
        self.live = [entry for entry in self.live if entry[0] > number]
        length, held = self.on_disk[-1]
        left = [entry for entry in held if entry[0] > number]
        if left:
            self.on_disk.append((length + MARK_BYTES * (left != held), left))
        elif held:
            self.on_disk = [(0, []), (MARK_BYTES * (self.dropped > 0), [])]

    @rule()
    def restart(self) -> None:
        self.buffer.close()
        self._model_spill()
        self._open()

    @rule(share=st.floats(0, 1))
    def power_cut(self, share: float) -> None:
        size = self.path.stat().st_size if self.path.exists() else 0
        assert size == self.on_disk[-1][0]
        cut = round(size * share)
        if size:
            os.truncate(self.path, cut)
        self.on_disk = [line for line in self.on_disk if line[0] <= cut]
        self.live = self.on_disk[-1][1]
        self._open()
        self.dropped = self.buffer.dropped

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "buffer"):
            assert contents(self.buffer) == [payload for _, payload in self.live]
            assert self.buffer.dropped == self.dropped
            assert len(self.buffer) == len(self.live)

    def _open(self) -> None:
        self.buffer = Buffer(self.path, MAX_BYTES)
        self.last = self.buffer.first + len(self.live) - 1

    def _model_spill(self) -> None:
        length, held = self.on_disk[-1]
        known = max((number for _, entries in self.on_disk for number, _ in entries), default=0)
        for number, payload in self.live:
            if number > known:
                length += RECORD_BYTES + len(payload)
                held = fitted([*held, (number, payload)])
                self.on_disk.append((length, held))
        if length > 2 * MAX_BYTES:
            self._model_compaction()

    def _model_compaction(self) -> None:
        self.on_disk = [(0, []), (MARK_BYTES, [])]
        for count, (_, payload) in enumerate(self.live, 1):
            length = self.on_disk[-1][0] + RECORD_BYTES + len(payload)
            self.on_disk.append((length, self.live[:count]))


TestBufferMachine = BufferMachine.TestCase
TestBufferMachine.settings = settings(examples(70), stateful_step_count=30)

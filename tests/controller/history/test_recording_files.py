"""What was written is read again, and what is damaged costs only itself."""

import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from fractions import Fraction
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leadline_controller.framework import ports
from leadline_controller.framework.cluster_objects import Claim
from leadline_controller.framework.model import Pod
from leadline_controller.history.recorded import Began, Changed, Entry, Missed, Recorded
from leadline_controller.history.recording_blocks import BlockError, decode_block, encode_block
from leadline_controller.history.recording_files import (
    MAGIC,
    VERSION,
    Damage,
    RecordingError,
    RecordingFile,
    path_of,
    read_recording,
    write_recording,
)
from leadline_controller.telemetry.accepted import Reported
from leadline_controller.telemetry.collectors import BoardReading

from tests.controller.history.recorded_values import BEGAN, KINDS, entries, stamp, story, values
from tests.support.examples import examples

slow_to_draw = settings(examples(40), suppress_health_check=list(HealthCheck))


def has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return isnan(value)
    if hasattr(value, "__slots__") and not isinstance(value, tuple):
        return any(has_nan(getattr(value, name, None)) for name in value.__slots__)
    if isinstance(value, dict):
        return any(map(has_nan, value.values()))
    return isinstance(value, tuple | list | frozenset) and any(map(has_nan, value))


def assert_round_trip(told: list[Entry]) -> None:
    data = encode_block(told)
    read = decode_block(data)
    assert encode_block(read) == data
    if not any(has_nan(entry.at_s) or has_nan(entry.what) for entry in told):
        assert read == told


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_entry_is_read_as_it_was_written(kind: type) -> None:
    @slow_to_draw
    @given(what=values(kind), at_s=st.floats())
    def check(what: Recorded, at_s: float) -> None:
        assert_round_trip([Entry(at_s, what)])

    check()


@slow_to_draw
@given(entries())
def test_the_order_of_entries_stays(told: list[Entry]) -> None:
    assert_round_trip(told)


def test_unknown_is_not_zero() -> None:
    told = [Entry(1.0, Reported("a", stamp(1, nan), BoardReading({"cpu_percent": nan})))]
    (read,) = decode_block(encode_block(told))
    assert isinstance(read.what, Reported)
    assert isnan(read.what.reading.values["cpu_percent"])
    assert isnan(read.what.stamp.measured_s)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(BlockError):
        decode_block(data)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_no_changed_block_crashes_the_reader(at: int, by: bytes) -> None:
    data = bytearray(encode_block(story()))
    at %= len(data)
    data[at : at + len(by)] = by
    said = ""
    try:
        decode_block(bytes(data))
    except BlockError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize("size", [b"1/0000000", b"1e9999999", b"1 / 12345", b"0x1234567"])
def test_no_size_of_a_stranger_takes_hours(size: bytes) -> None:
    claim = Claim("d", "c", size_bytes=Fraction(1234567, 9))
    data = encode_block([Entry(1.0, Changed(ports.ObjectChanged(claim)))])
    assert b"1234567/9" in data
    with pytest.raises(BlockError):
        decode_block(data.replace(b"1234567/9", size))


# Files.

BLOCKS = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.recording"


def in_blocks(path: Path) -> list[list[Entry]]:
    """A file of several blocks, the first with Began alone."""
    told = story(8)
    size = len(told) // (BLOCKS - 2)
    parts = [told[:1], *(told[at : at + size] for at in range(1, len(told), size))]
    file = RecordingFile(path)
    for part in parts:
        file.write(part)
    file.close()
    return parts


def sound(read: Iterator[Entry]) -> list[Entry]:
    """Without what says that something is missing; the story ends with one that is its own."""
    return [entry for entry in read if not isinstance(entry.what, Missed)]


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    told, damage = story(200), Damage()
    assert write_recording(path, iter(told)) == len(told)
    assert list(read_recording(path, damage)) == told
    assert not damage.is_any
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_recording_begins_with_what_began(path: Path) -> None:
    with pytest.raises(RecordingError, match="Began"):
        write_recording(path, story()[1:])
    assert not list(path.parent.iterdir())


def test_a_damaged_byte_costs_only_its_block(path: Path) -> None:
    parts = in_blocks(path)
    data = path.read_bytes()
    whole = sound(read_recording(path))
    for at in range(16, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        damage = Damage()
        read = list(read_recording(path, damage))
        assert damage.blocks == 1, at
        assert any(isinstance(entry.what, Missed) for entry in read)
        lost = [part for part in parts if part[0] not in read]
        assert len(lost) == 1
        assert sound(iter(read)) == [e for e in whole if e not in lost[0]]


def test_a_torn_end_costs_only_the_last_block(path: Path) -> None:
    parts = in_blocks(path)
    data = path.read_bytes()
    ends = [at for at in range(len(data)) if data[at:].startswith(b"\xf0LB\xf1")]
    assert len(ends) == len(parts)
    for at in range(16, len(data), 5):
        path.write_bytes(data[:at])
        damage = Damage()
        read = sound(read_recording(path, damage))
        whole = sum(end <= at for end in [*ends[1:], len(data)])
        assert read == [e for part in parts[:whole] for e in part if sound(iter([e]))]
        assert damage.is_torn == (at not in ends), at
        assert not damage.blocks


@pytest.mark.parametrize("cut", [1, 300])
def test_what_is_missing_in_the_middle_costs_only_its_block(path: Path, cut: int) -> None:
    parts = in_blocks(path)
    data = path.read_bytes()
    path.write_bytes(data[:300] + data[300 + cut :])
    damage = Damage()
    read = list(read_recording(path, damage))
    assert damage.blocks >= 1
    assert read[-1] == parts[-1][-1]


def header(version: int) -> bytes:
    head = struct.pack("<8sHH", MAGIC, version, 0)
    return head + struct.pack("<I", zlib.crc32(head))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no recording of Leadline"),
        (b"SQLite format 3\0" * 9, "no recording of Leadline"),
        (header(VERSION + 1), f"format {VERSION + 1}; this Leadline reads format {VERSION}"),
        (header(0), f"format 0; this Leadline reads format {VERSION}"),
        (header(VERSION)[:-1] + b"x", "its first bytes are damaged"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(path: Path, data: bytes, said: str) -> None:
    path.write_bytes(data)
    with pytest.raises(RecordingError) as caught:
        list(read_recording(path))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_expands_without_end_is_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recording(path, story())
    monkeypatch.setattr("leadline_controller.history.recording_files._LARGEST_EXPANDED", 100)
    damage = Damage()
    read = list(read_recording(path, damage))
    assert [type(entry.what) for entry in read] == [Missed]
    assert "too large" in damage.what


def test_fields_that_are_new_have_their_defaults_and_those_that_are_gone_are_left_out() -> None:
    data = encode_block([Entry(1.0, BEGAN)])
    older = data.replace(b"\xa7cluster", b"\xa7clustre")
    assert older != data
    with pytest.raises(BlockError, match="cluster"):
        decode_block(older)
    older = data.replace(b"\xa3ttl", b"\xa3old")
    assert older != data
    (read,) = decode_block(older)
    assert isinstance(read.what, Began)
    assert read.what.ttl == {}


def test_a_folder_is_one_recording(tmp_path: Path) -> None:
    told = story(8)
    first, second = told[:20], told[20:]
    write_recording(path_of(tmp_path, 9), first)
    file = RecordingFile(path_of(tmp_path, 10), continues=True)
    file.write([Entry(first[-1].at_s, BEGAN), first[1]], is_start=True)
    file.write(second)
    file.close()
    (tmp_path / "notes.txt").write_text("not ours")
    path_of(tmp_path, 11).touch()  # as a power cut leaves it
    assert list(read_recording(tmp_path)) == told
    assert list(read_recording(path_of(tmp_path, 10))) == [
        Entry(first[-1].at_s, BEGAN),
        first[1],
        *second,
    ]
    path_of(tmp_path, 9).rename(path_of(tmp_path, 8))  # as if the one between were gone
    assert len(list(read_recording(tmp_path))) == len(told) + 2


# A power cut.

WRITER = """
import sys
from itertools import count
from pathlib import Path
from leadline_controller.history.recording_files import RecordingFile
from leadline_controller.history.recorded import Entry
from tests.controller.history.recorded_values import BEGAN, report
file = RecordingFile(Path(sys.argv[1]))
file.write([Entry(0.0, BEGAN)])
for number in count(1):
    file.write([Entry(float(number), report("a", number, float(number)))])
    file.sync()
    print(number, flush=True)
"""


def test_what_was_written_before_a_kill_is_there(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        written = 0
        while written < 50:
            written = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split()
    written = int(rest[-1]) if rest else written
    damage = Damage()
    read = sound(read_recording(path, damage))
    assert [entry.at_s for entry in read[: written + 1]] == [float(n) for n in range(written + 1)]
    assert not damage.blocks


def test_a_pod_takes_little_room() -> None:
    pod = Pod("default", "web-7c9d", "3b0e7c52-0c5b-4b7b-9a53-8f2a1a6d4f10")
    one = len(encode_block([Entry(1.0, Changed(ports.PodChanged(pod)))]))
    assert one < 400

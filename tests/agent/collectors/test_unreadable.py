"""One value that cannot be read or understood never takes another one along.

A board whose /proc and /sys are files, each of which in turn fails in each way that drivers know.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf.message import Message
from leadline_agent.collectors import COLLECTORS, Collectors, network
from leadline_agent.collectors.board import read_board
from leadline_agent.collectors.cpu import watch_hindrances
from leadline_agent.config import load
from leadline_agent.probes.processor_wait import ProcessorWait
from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

MODEL = "birth.hardware_model"
STAT = "proc/stat"
DISKSTATS = "proc/diskstats"
NET_DEV = "proc/net/dev"
MEMINFO = "proc/meminfo"
FIRMWARE = "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
FREQUENCY = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
# Each file, and the values that are unknown without it. Counters grow by {more}.
BOARD: dict[str, tuple[str, set[str]]] = {
    STAT: (
        "cpu  {more} 10 200 4{more} 100 0 50 0 30 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nbtime 17000\n",
        {"cpu.busy_percent"},
    ),
    "proc/loadavg": ("0.42 0.30 0.20 2/345 6789\n", {"cpu.load_1m"}),
    MEMINFO: (
        "MemTotal: 3884380 kB\nMemFree: 210036 kB\nMemAvailable: 2964400 kB\nSlab: 90000 kB\n",
        {"memory.total_bytes", "memory.available_bytes", "birth.memory_bytes"},
    ),
    DISKSTATS: (
        "179 0 mmcblk0 50 10 8{more} 900 30 20 4{more} 800 0 700 600\n"
        "8 0 sda 50 10 8{more} 900 30 20 4{more} 800 0 700 600\n"
        "7 0 loop0 10 0 90 0 10 0 90 0 0 0 0\n",
        {"disk.read_bytes_per_s", "disk.written_bytes_per_s"},
    ),
    NET_DEV: (
        "Inter-|   Receive  |  Transmit\n face |bytes    packets |bytes\n"
        "    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0\n"
        "  eth0: 1{more} 1{more} 0 0 0 0 0 0 2{more} 2{more} 0 0 0 0 0 0\n"
        " wlan0: 3{more} 3{more} 0 0 0 0 0 0 4{more} 4{more} 0 0 0 0 0 0\n",
        {
            *(f"network.eth0.{rate}" for rate in network.RATES),
            *(f"network.wlan0.{rate}" for rate in network.RATES),
            "network.eth0.link_mbps",
        },
    ),
    "proc/net/route": ("", set()),
    "proc/thread-self/schedstat": ("1000000 2000000 12\n", set()),
    FREQUENCY.format(0): ("1500000\n", {"cpu.frequency_mhz"}),
    FREQUENCY.format(1): ("1500000\n", {"cpu.frequency_mhz"}),
    FIRMWARE: ("5\n", {"cpu.throttled"}),  # the voltage is known from hwmon as well
    "sys/class/hwmon/hwmon0/name": ("rpi_volt\n", set()),
    "sys/class/hwmon/hwmon0/in0_lcrit_alarm": ("1\n", set()),
    "sys/class/hwmon/hwmon1/name": ("cpu_thermal\n", set()),  # there is a thermal zone
    "sys/class/hwmon/hwmon1/temp1_input": ("48000\n", set()),
    "sys/class/hwmon/hwmon1/temp2_input": ("48000\n", set()),
    "sys/class/hwmon/hwmon2/name": ("nvme\n", set()),
    "sys/class/hwmon/hwmon2/temp1_input": ("90000\n", set()),
    "sys/class/thermal/thermal_zone0/type": ("cpu-thermal\n", set()),
    "sys/class/thermal/thermal_zone0/temp": ("48000\n", set()),
    "sys/class/thermal/thermal_zone1/type": ("gpu-thermal\n", set()),
    "sys/class/thermal/thermal_zone1/temp": ("90000\n", set()),
    "sys/class/net/eth0/speed": ("1000\n", {"network.eth0.link_mbps"}),
    "sys/class/net/eth0/type": ("1\n", set()),
    "sys/class/net/eth0/flags": ("0x1003\n", set()),
    "sys/class/net/eth0/uevent": ("INTERFACE=eth0\nIFINDEX=2\n", set()),
    "sys/class/net/eth0/device/uevent": ("DRIVER=bcmgenet\n", set()),
    "sys/class/net/wlan0/type": ("1\n", set()),
    "sys/class/net/wlan0/device/uevent": ("DRIVER=brcmfmac\n", set()),
    "sys/block/mmcblk0/device/type": ("SD\n", set()),
    "sys/block/sda/device/type": ("0\n", set()),
    "sys/firmware/devicetree/base/model": ("Raspberry Pi 5\0", {MODEL}),
}
CONTENTS = {
    "empty": b"",
    "a word": b"<unknown>\n",
    "no finite number": b"nan inf nan inf nan inf\n",
    "a negative number": b"-1\n",
    "a huge number": b"9" * 5000,
    "bytes": b"\xff\xfe\x00\x00 \xff",
    "words": b"cpu a b c d e f g h\n: x y z\nMemTotal: much kB\n",
}
FAULTS = (*CONTENTS, "missing", "a directory", "EIO", "EAGAIN")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(network, "is_up", lambda name: name in ("lo", "eth0", "wlan0"))
    for collector in ("disk", "network"):
        target = f"leadline_agent.collectors.{collector}.boot_ms"
        monkeypatch.setattr(target, partial(next, itertools.count(1000, 1000)))
    for name in BOARD:
        write(tmp_path, name, more=100)
    return tmp_path


def write(root: Path, name: str, more: int) -> None:
    path = root / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(BOARD[name][0].format(more=more))


@contextmanager
def broken(path: Path, fault: str) -> Iterator[None]:
    before = path.read_bytes()
    path.unlink()
    if fault in CONTENTS:
        path.write_bytes(CONTENTS[fault])
    elif fault == "a directory":
        path.mkdir()
    elif fault == "EIO":
        path.symlink_to("/proc/self/mem")  # which cannot be read at 0, as by a driver that fails
    if fault == "EAGAIN":
        path.write_bytes(before)
        with nothing_to_read_yet(path):
            yield
    else:
        yield
    if fault == "a directory":
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(before)


@contextmanager
def nothing_to_read_yet(path: Path) -> Iterator[None]:
    """A driver answers EAGAIN, as a pipe does."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    opens = Path.open

    def opened(self: Path, *how: Any, **more: Any) -> Any:
        return os.fdopen(reader, closefd=False) if self == path else opens(self, *how, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", opened)
        yield
    os.close(reader)
    os.close(writer)


def values(message: Message, prefix: str) -> Iterator[tuple[str, object]]:
    for field, value in message.ListFields():
        if isinstance(value, Message):
            yield from values(value, f"{prefix}{field.name}.")
        elif field.name == "network":
            for interface in value:
                yield from values(interface, f"{prefix}network.{interface.name}.")
        elif field.name not in ("collectors", "name", "measured_boot_ms"):
            yield f"{prefix}{field.name}", value


def read(root: Path, name: str = "", fault: str = "", *, early: bool = False) -> dict[str, object]:
    """Every value that a board says the second time that it is read. Its file `name` is broken by
    then, or early: from the start."""
    counters = [each for each in BOARD if each.startswith("proc")]
    for each in counters:
        write(root, each, more=100)
    with ExitStack() as stack:
        if early:
            stack.enter_context(broken(root / name, fault))
        collectors, hindrances = Collectors(sys_root=root / "sys"), watch_hindrances(root / "sys")
        wait = ProcessorWait.of_this_thread()
        collectors.collect()
        for each in counters:
            if not (early and each == name):
                write(root, each, more=300)
        if name and not early:
            stack.enter_context(broken(root / name, fault))
        report = collectors.collect()
        assert set(hindrances()) <= {*pb.BandwidthReport.Hindrance.values()}
        assert wait.us() >= 0
        birth = read_board(root / "sys", "1", load(None, {"LEADLINE_NODE": "pi-1"}), ())
    codec.check_report(report)
    assert len(report.collectors) == len(COLLECTORS)
    assert all(run.why for run in report.collectors if run.outcome == pb.CollectorRun.FAILED)
    return dict(values(report, "")) | dict(values(birth, "birth."))


def test_the_board_says_all_of_it(board: Path) -> None:
    lost = set().union(*(losses for _, losses in BOARD.values()))
    assert read(board).keys() >= lost | {"cpu.under_voltage", "temperature.cpu_celsius"}


@pytest.mark.parametrize("name", BOARD)
def test_a_file_that_fails_loses_its_own_values_alone(board: Path, name: str) -> None:
    whole, may_be_lost = read(board), BOARD[name][1]
    for fault, early in (*((each, False) for each in FAULTS), ("a word", True), ("EIO", True)):
        left = read(board, name, fault, early=early)
        lost = {key for key, value in whole.items() if left.get(key) != value}
        assert lost <= may_be_lost, (fault, early)
        # A name is whatever is in its file; a number that was not read is not made up.
        assert all(left.get(key) is None for key in lost - {MODEL}), (fault, early)


@pytest.mark.parametrize(
    ("name", "line", "lost"),
    [
        (MEMINFO, "MemFree: 210036 kB", set()),
        (MEMINFO, "Slab: 90000 kB", set()),
        (NET_DEV, "  eth0:", {key for key in BOARD[NET_DEV][1] if "eth0" in key}),
        (NET_DEV, "    lo:", set()),
        (DISKSTATS, "7 0 loop0", set()),
    ],
)
def test_a_line_that_is_none_loses_its_own_values_alone(
    board: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: str, lost: set[str]
) -> None:
    whole = read(board)
    text, losses = BOARD[name]
    for garbage in ("", "x", "eth0: a b c d e f g h i j k l", "\0\0 1 2", "1 2 3"):
        lines = [garbage if each.startswith(line) else each for each in text.splitlines()]
        monkeypatch.setitem(BOARD, name, ("\n".join(lines), losses))
        assert read(board) == {k: value for k, value in whole.items() if k not in lost}, garbage


def test_a_disk_that_cannot_be_read_does_not_count(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, losses = BOARD[DISKSTATS]
    without = text.replace("8{more} 900", "<unknown> 900", 1)
    whole = read(board)["disk.read_bytes_per_s"]
    monkeypatch.setitem(BOARD, DISKSTATS, (without, losses))
    assert (whole, read(board)["disk.read_bytes_per_s"]) == (2 * 200 * 512, 200 * 512)

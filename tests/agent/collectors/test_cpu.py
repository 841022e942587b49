"""The CPU collector on a board whose /proc and /sys are text."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from leadline_agent.collectors import cpu
from leadline_agent.collectors.collector import TransientError
from leadline_agent.collectors.cpu import CpuCollector, watch_hindrances
from leadline_wire.v1 import telemetry_pb2 as pb

STAT = """\
cpu  {user} 10 200 {idle} {iowait} 0 50 0 30 0
cpu0 500 10 200 4000 100 0 50 0 30 0
btime 1700000000
"""


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    return tmp_path / "proc"


def stat(proc: Path, user: int, idle: int, iowait: int = 100) -> None:
    write(proc, "stat", STAT.format(user=user, idle=idle, iowait=iowait))


def test_the_first_sample_has_no_busy_share(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=500, idle=4000)
    assert not CpuCollector(tmp_path / "sys").collect().cpu.HasField("busy_percent")


def test_the_busy_share_is_since_the_previous_sample(proc: Path, tmp_path: Path) -> None:
    collector = CpuCollector(tmp_path / "sys")
    stat(proc, user=500, idle=4000)
    collector.collect()
    stat(proc, user=525, idle=4050, iowait=125)  # 25 busy; 50 idle and 25 waiting for disks
    assert collector.collect().cpu.busy_percent == pytest.approx(25.0)


def test_a_guests_time_is_not_counted_twice() -> None:
    raw = psutil.cpu_times()._replace(user=3.0, guest=2.0, nice=0.0, system=1.0, idle=6.0)
    zeroed = raw._replace(iowait=0.0, irq=0.0, softirq=0.0, steal=0.0)
    assert cpu.times(zeroed) == (4.0, 6.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((10.0, 10.0), (5.0, 20.0), id="busy went back"),
        pytest.param((10.0, 10.0), (20.0, 5.0), id="idle went back"),
        pytest.param((10.0, 10.0), (10.0, 10.0), id="no time has passed"),
    ],
)
def test_counters_that_cannot_be_compared_are_unknown(
    before: tuple[float, float], after: tuple[float, float]
) -> None:
    assert cpu.busy_percent(before, after) is None


def test_a_pi_reports_throttling_and_under_voltage(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    flags = "sys/devices/platform/soc/soc:firmware/get_throttled"
    write(tmp_path, flags, "50005\n")
    reading = CpuCollector(tmp_path / "sys").collect().cpu
    assert (reading.throttled, reading.under_voltage) == (True, True)
    write(tmp_path, flags, "50000\n")  # it was so once, it is not now
    reading = CpuCollector(tmp_path / "sys").collect().cpu
    assert (reading.throttled, reading.under_voltage) == (False, False)


@pytest.mark.parametrize(
    ("flags", "held_back"),
    [("0", False), ("1", False), ("2", True), ("4", True), ("8", True), ("e0000", False)],
)
def test_each_flag_of_the_firmware(flags: str, held_back: bool) -> None:
    assert cpu.throttled(flags) is held_back
    assert cpu.under_voltage(flags, None) is (flags == "1")


@pytest.mark.parametrize(("alarm", "expected"), [("0", False), ("1", True)])
def test_hwmon_reports_the_voltage_where_the_firmware_does_not(
    proc: Path, tmp_path: Path, alarm: str, expected: bool
) -> None:
    stat(proc, user=1, idle=1)
    write(tmp_path, "sys/class/hwmon/hwmon0/name", "cpu_thermal\n")
    write(tmp_path, "sys/class/hwmon/hwmon1/name", "rpi_volt\n")
    write(tmp_path, "sys/class/hwmon/hwmon1/in0_lcrit_alarm", f"{alarm}\n")
    reading = CpuCollector(tmp_path / "sys").collect().cpu
    assert not reading.HasField("throttled")
    assert reading.under_voltage is expected


def test_the_frequency_is_the_mean_over_the_cores(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    for core, khz in enumerate((600_000, 1_800_000)):
        path = f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        write(tmp_path, path, f"{khz}\n")
    assert CpuCollector(tmp_path / "sys").collect().cpu.frequency_mhz == pytest.approx(1200.0)


def test_a_core_that_is_switched_off_has_no_frequency_and_takes_none_along(
    proc: Path, tmp_path: Path
) -> None:
    stat(proc, user=1, idle=1)
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1500000\n")
    for core, is_on in ((1, 1), (2, 0), (3, 0)):  # a Jetson that saves power
        write(tmp_path, f"sys/devices/system/cpu/cpu{core}/online", f"{is_on}\n")
    write(tmp_path, "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1500000\n")
    write(tmp_path, "sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "<unknown>\n")
    assert CpuCollector(tmp_path / "sys").collect().cpu.frequency_mhz == pytest.approx(1500.0)


def test_a_missing_sensor_is_unknown_and_not_zero(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    reading = CpuCollector(tmp_path / "sys").collect().cpu
    for name in ("frequency_mhz", "throttled", "under_voltage"):
        assert not reading.HasField(name)


def test_a_pi_5_has_its_firmware_elsewhere(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    for name in (
        "devices/platform/soc@107c000000/soc@107c000000:firmware",
        "bus/platform/drivers/raspberrypi-firmware/soc:firmware",
    ):
        root = tmp_path / name.replace("/", "-")
        write(root, f"{name}/get_throttled", "5\n")
        reading = CpuCollector(root).collect().cpu
        assert (reading.throttled, reading.under_voltage) == (True, True)
        watched = watch_hindrances(root)()
        assert watched == [pb.BandwidthReport.THROTTLED, pb.BandwidthReport.UNDER_VOLTAGE]


@pytest.mark.parametrize("text", ["<unknown>\n", "", "-1\n", "0\n", "9" * 5000])
def test_the_frequency_is_unknown_if_that_of_one_core_is(
    proc: Path, tmp_path: Path, text: str
) -> None:
    stat(proc, user=1, idle=1)
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1500000\n")
    write(tmp_path, "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", text)
    assert not CpuCollector(tmp_path / "sys").collect().cpu.HasField("frequency_mhz")


def test_without_cpu_times_it_fails_with_what_else_is_known(proc: Path, tmp_path: Path) -> None:
    write(proc, "loadavg", "0.5 0.4 0.3 1/100 4321\n")
    with pytest.raises(TransientError, match="/proc/stat") as failure:
        CpuCollector(tmp_path / "sys").collect()
    assert failure.value.report.cpu.load_1m == 0.5


@pytest.mark.parametrize(
    "line",
    [
        "cpu  2568500776029407000000",
        "cpu  10162498 0 0 8317131874320235395 0 0 0 0 0 0",
        "cpu  10162498 0 0 -5 0 0 0 0 0 0",
        "cpu  1 2 3",
    ],
)
def test_what_a_container_of_lxc_may_say_is_no_busy_share(
    proc: Path, tmp_path: Path, line: str
) -> None:
    """Such as 100 %, because the idle time is stuck at a number that nothing can have."""
    collector = CpuCollector(tmp_path / "sys")
    write(proc, "loadavg", "0.5 0.4 0.3 1/100 4321\n")
    for busy in ("1016", "2016"):
        write(proc, "stat", line.replace("1016", busy) + "\n")
        with pytest.raises(TransientError) as failure:
            collector.collect()
    assert failure.value.report.cpu == pb.Cpu(load_1m=0.5)


def test_times_that_psutil_knows_without_the_stolen_one_are_the_others() -> None:
    """It keeps to the columns that there were when it was imported."""
    raw = SimpleNamespace(user=1.0, nice=0.5, system=1.0, idle=6.0, iowait=1.0, irq=0, softirq=0.5)
    assert cpu.times(raw) == (3.0, 7.0)


def schedstat(proc: Path, ran_ms: int, waited_ms: int) -> None:
    write(proc, "thread-self/schedstat", f"{ran_ms * 10**6} {waited_ms * 10**6} 12\n")


@pytest.mark.parametrize(
    ("user", "idle", "ran_ms", "waited_ms", "is_bound"),
    [
        pytest.param(95, 5, 0, 0, True, id="all cores are busy"),
        pytest.param(85, 15, 0, 0, False, id="a core is idle now and then"),
        pytest.param(10, 0, 0, 0, False, id="too short for the kernel's steps"),
        pytest.param(25, 75, 950, 0, True, id="this thread is busy, other cores are idle"),
        pytest.param(25, 75, 400, 550, True, id="this thread waits for a core"),
        pytest.param(25, 75, 400, 100, False, id="neither"),
    ],
)
def test_what_holds_a_board_back_is_seen_over_a_test(
    proc: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    idle: int,
    ran_ms: int,
    waited_ms: int,
    is_bound: bool,
) -> None:
    clock_s = iter((5.0, 6.0))
    monkeypatch.setattr("leadline_agent.collectors.cpu.time.monotonic", lambda: next(clock_s))
    stat(proc, user=500, idle=4000)
    schedstat(proc, 10_000, 2000)
    hindrances = watch_hindrances(tmp_path / "sys")
    stat(proc, user=500 + user, idle=4000 + idle)
    schedstat(proc, 10_000 + ran_ms, 2000 + waited_ms)
    assert hindrances() == ([pb.BandwidthReport.CPU_BOUND] if is_bound else [])


@pytest.mark.parametrize("flags", [("50005", "50000"), ("50000", "50005")])
def test_throttling_before_or_after_a_test_held_it_back(
    proc: Path, tmp_path: Path, flags: tuple[str, str]
) -> None:
    stat(proc, user=1, idle=1)
    path = "sys/devices/platform/soc/soc:firmware/get_throttled"
    write(tmp_path, path, flags[0])
    hindrances = watch_hindrances(tmp_path / "sys")
    write(tmp_path, path, flags[1])
    assert hindrances() == [pb.BandwidthReport.THROTTLED, pb.BandwidthReport.UNDER_VOLTAGE]


def test_a_board_without_such_sensors_is_not_held_back(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    assert watch_hindrances(tmp_path / "sys")() == []

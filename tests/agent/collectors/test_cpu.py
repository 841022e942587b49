"""The CPU collector on a board whose /proc and /sys are text."""

from pathlib import Path

import psutil
import pytest
from leadline_agent.collectors import cpu
from leadline_agent.collectors.cpu import CpuCollector

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


def test_a_missing_sensor_is_unknown_and_not_zero(proc: Path, tmp_path: Path) -> None:
    stat(proc, user=1, idle=1)
    reading = CpuCollector(tmp_path / "sys").collect().cpu
    for name in ("frequency_mhz", "throttled", "under_voltage"):
        assert not reading.HasField(name)
    assert reading.cores >= 1

"""The temperature collector below a /sys that is text."""

from pathlib import Path

import pytest
from leadline_agent.collectors.collector import AbsentError, TransientError
from leadline_agent.collectors.temperature import TemperatureCollector


def write(root: Path, name: str, text: str) -> Path:
    path = root / "class" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_pi_has_the_sensor_cpu_thermal(tmp_path: Path) -> None:
    write(tmp_path, "hwmon/hwmon0/name", "rp1_adc\n")
    write(tmp_path, "hwmon/hwmon0/temp1_input", "31000\n")
    write(tmp_path, "hwmon/hwmon1/name", "cpu_thermal\n")
    write(tmp_path, "hwmon/hwmon1/temp1_input", "48312\n")
    assert TemperatureCollector(tmp_path).collect().temperature.cpu_celsius == pytest.approx(48.312)


def test_a_thermal_zone_is_read_where_there_is_no_hwmon(tmp_path: Path) -> None:
    write(tmp_path, "thermal/thermal_zone0/type", "gpu-thermal\n")
    write(tmp_path, "thermal/thermal_zone0/temp", "90000\n")
    write(tmp_path, "thermal/thermal_zone1/type", "cpu-thermal\n")
    write(tmp_path, "thermal/thermal_zone1/temp", "50500\n")
    assert TemperatureCollector(tmp_path).collect().temperature.cpu_celsius == pytest.approx(50.5)


def test_the_hottest_core_counts_of_all_processors(tmp_path: Path) -> None:
    for at, degrees in enumerate((41_000, 63_000, 44_000)):
        write(tmp_path, f"hwmon/hwmon{at % 2}/name", "coretemp\n")
        write(tmp_path, f"hwmon/hwmon{at % 2}/temp{at}_input", f"{degrees}\n")
    assert TemperatureCollector(tmp_path).collect().temperature.cpu_celsius == 63.0


def test_a_reading_that_no_processor_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "hwmon/hwmon0/name", "coretemp\n")
    write(tmp_path, "hwmon/hwmon0/temp1_input", "-274000\n")
    with pytest.raises(TransientError):
        TemperatureCollector(tmp_path).collect()


def test_no_sensor_is_absent(tmp_path: Path) -> None:
    write(tmp_path, "hwmon/hwmon0/name", "nvme\n")
    with pytest.raises(AbsentError):
        TemperatureCollector(tmp_path).collect()


def test_a_sensor_that_moves_is_found_again(tmp_path: Path) -> None:
    name = write(tmp_path, "hwmon/hwmon0/name", "coretemp\n")
    sensor = write(tmp_path, "hwmon/hwmon0/temp1_input", "40000\n")
    collector = TemperatureCollector(tmp_path)
    collector.collect()
    name.unlink()
    sensor.unlink()
    write(tmp_path, "hwmon/hwmon3/name", "coretemp\n")
    write(tmp_path, "hwmon/hwmon3/temp1_input", "42000\n")
    assert collector.collect().temperature.cpu_celsius == pytest.approx(42.0)

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


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        pytest.param({"BCPU-therm": 41, "MCPU-therm": 42, "PMIC-Die": 100}, 42, id="Jetson TX2"),
        pytest.param({"cpu-thermal": 48, "cv0-thermal": None, "tj-thermal": 49}, 48, id="Orin"),
        pytest.param({"cpu0-thermal": 60, "cpu2-thermal": 72, "gpu-thermal": 80}, 72, id="XU4"),
        pytest.param({"package-thermal": 45, "bigcore0-thermal": 46}, 45, id="Rock 5"),
        pytest.param({"soc-thermal": 45, "gpu-thermal": 46}, 45, id="Rock 5, its maker's kernel"),
        pytest.param({"cpu": 45, "gpu": 46}, 45, id="RK3399"),
        pytest.param({"cpul_thermal_zone": 45, "cpub_thermal_zone": 47}, 47, id="Orange Pi 4A"),
        pytest.param({"soc_dts0": 50, "soc_dts1": 52, "acpitz": 20}, 52, id="Atom"),
        pytest.param({"TCPU": 70, "x86_pkg_temp": 52, "INT3400 Thermal": 20}, 52, id="mini PC"),
        pytest.param({"imx_thermal_zone": 45}, 45, id="i.MX6"),
        pytest.param({"main0-thermal": 45, "main1-thermal": 46}, 46, id="BeaglePlay"),
        pytest.param({"cluster0_thermal": 45, "cluster1_thermal": 46}, 46, id="SpacemiT K1"),
        pytest.param({"PMIC-Die": 100, "acpitz": 27}, None, id="none of the processor"),
    ],
)
def test_boards_name_the_processors_zone_in_many_ways(
    tmp_path: Path, zones: dict[str, int | None], expected: int | None
) -> None:
    for at, (name, celsius) in enumerate(zones.items()):
        write(tmp_path, f"thermal/thermal_zone{at}/type", f"{name}\n")
        text = "" if celsius is None else f"{celsius * 1000}\n"
        write(tmp_path, f"thermal/thermal_zone{at}/temp", text)
        if celsius:  # as the kernel mirrors zones
            write(tmp_path, f"hwmon/hwmon{at}/name", name.replace("-", "_"))
            write(tmp_path, f"hwmon/hwmon{at}/temp1_input", text)
    try:
        found = TemperatureCollector(tmp_path).collect().temperature.cpu_celsius
    except AbsentError:
        assert expected is None
    else:
        assert found == expected


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

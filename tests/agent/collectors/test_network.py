"""The network collector: which interfaces matter, and their rates."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from leadline_agent.collectors import network
from leadline_agent.collectors.collector import AbsentError
from leadline_agent.collectors.network import (
    NetworkCollector,
    choose,
    is_up,
    rates,
)
from leadline_wire.v1 import telemetry_pb2 as pb

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0
  eth0: {received} 30 0 0 0 0 0 0 {sent} 20 0 0 0 0 0 0
"""


def up(name: str) -> bool:
    return not name.startswith("down")


def interface(
    packets_sent: float, packets_received: float, bytes_sent: float | None, bytes_received: float
) -> pb.NetworkInterface:
    return pb.NetworkInterface(
        name="eth0",
        packets_sent_per_s=packets_sent,
        packets_received_per_s=packets_received,
        bytes_sent_per_s=bytes_sent,
        bytes_received_per_s=bytes_received,
    )


def test_rates_are_per_interface_and_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ms = iter((1_000, 5_000))
    monkeypatch.setattr("leadline_agent.collectors.network.boot_ms", lambda: next(clock_ms))
    monkeypatch.setattr(network, "is_up", up)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "net").mkdir()
    collector = NetworkCollector(tmp_path / "sys")
    (tmp_path / "net/dev").write_text(NET_DEV.format(received=1000, sent=2000))
    assert list(collector.collect().network) == [pb.NetworkInterface(name="eth0")]
    (tmp_path / "net/dev").write_text(NET_DEV.format(received=5000, sent=2400))
    assert list(collector.collect().network) == [interface(0.0, 0.0, 100.0, 1000.0)]


@pytest.mark.parametrize(
    ("speed", "expected_mbps"),
    [
        ("1000\n", 1000),
        ("-1\n", None),
        ("0\n", None),
        ("4294967295\n", None),
        ("fast\n", None),
        (None, None),
    ],
)
def test_the_speed_of_a_link_is_known_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: str | None, expected_mbps: int | None
) -> None:
    monkeypatch.setattr(network, "is_up", up)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(NET_DEV.format(received=1000, sent=2000))
    if speed:
        (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
        (tmp_path / "sys/class/net/eth0/speed").write_text(speed)
    collected = list(NetworkCollector(tmp_path / "sys").collect().network)
    assert collected == [pb.NetworkInterface(name="eth0", link_mbps=expected_mbps)]


def test_loopback_alone_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "is_up", up)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(NET_DEV.format(received=1, sent=1).replace("eth0", "down0"))
    with pytest.raises(AbsentError):
        NetworkCollector(tmp_path / "sys").collect()


def test_an_interface_is_up_exactly_when_psutil_says_so() -> None:
    seen = {name: stats.isup for name, stats in psutil.net_if_stats().items()}
    assert {name: is_up(name) for name in seen} == seen
    assert not is_up("nowhere0")


@pytest.mark.parametrize(
    ("names", "physical", "expected"),
    [
        pytest.param(
            ["lo", "cni0", "flannel.1", "veth12ab", "wg0", "wlan0", "eth0"],
            {"eth0", "wlan0"},
            ["eth0", "wlan0", "wg0"],
            id="a node of a cluster",
        ),
        pytest.param(["lo", "veth0"], set(), ["veth0"], id="a namespace that has nothing else"),
        pytest.param(
            ["a0", "b0", "c0", "d0", "e0", "z0"],
            {"z0"},
            ["z0", "a0", "b0", "c0"],
            id="more than fit in a report",
        ),
        pytest.param(["lo"], set(), [], id="no network"),
    ],
)
def test_hardware_comes_first_and_virtual_interfaces_only_alone(
    names: list[str], physical: set[str], expected: list[str]
) -> None:
    assert choose(names, physical) == expected


def test_a_counter_that_was_reset_is_unknown_and_not_negative() -> None:
    before = SimpleNamespace(
        packets_sent=10, packets_recv=10, bytes_sent=4_000_000_000, bytes_recv=10
    )
    after = SimpleNamespace(packets_sent=20, packets_recv=20, bytes_sent=7, bytes_recv=20)
    assert rates("eth0", before, after, 1000) == interface(10.0, 10.0, None, 10.0)

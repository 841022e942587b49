"""The network collector: which interfaces matter, and their rates."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from leadline_agent.collectors import network
from leadline_agent.collectors.collector import AbsentError
from leadline_agent.collectors.network import NetworkCollector, default_routes, is_up, rates
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.namespaces import linked_namespace

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


ETHERNET, PPP = {"type": "1\n"}, {"type": "512\n"}
HARDWARE = ETHERNET | {"device/uevent": "DRIVER=bcmgenet\n"}
DUMMY = ETHERNET | {"flags": "0x10c3\n"}
TUN = {"type": "65534\n", "tun_flags": "0x1001\n"}
VXLAN = ETHERNET | {"uevent": "DEVTYPE=vxlan\nINTERFACE=flannel.1\n"}
BRIDGE = ETHERNET | {"bridge/bridge_id": "8000\n"}


def above(*names: str) -> dict[str, str]:
    """An interface that has others below, such as a bridge, a bond or a VLAN."""
    return ETHERNET | {f"lower_{name}/type": "1\n" for name in names}


def on(name: str) -> dict[str, str]:
    """The port of a bridge, or of a bond."""
    return {"master/type": "1\n", f"upper_{name}/type": "1\n"}


VIRTUAL = {
    "cni0": above("veth1"),
    "veth1": ETHERNET | on("cni0"),
    "flannel.1": VXLAN,
    "wg0": {"type": "65534\n", "uevent": "DEVTYPE=wireguard\nINTERFACE=wg0\n"},
    "tailscale0": TUN,
    "kube-ipvs0": DUMMY,
    "cilium_host": ETHERNET,
    "docker0": BRIDGE,
}


@pytest.mark.parametrize(
    ("interfaces", "default", "expected"),
    [
        pytest.param({"eth0": HARDWARE, "wlan0": HARDWARE, **VIRTUAL}, "eth0", "eth0 wlan0"),
        pytest.param({"eth0": HARDWARE | on("br0"), "br0": above("eth0")}, "br0", "eth0"),
        pytest.param(
            {"bond0": above("eth0", "wlan0"), "eth0": HARDWARE | on("bond0"), "wlan0": HARDWARE},
            "bond0",
            "eth0 wlan0",
        ),
        pytest.param({"eth0": HARDWARE, "eth0.10": above("eth0")}, "eth0.10", "eth0"),
        pytest.param({"eth0": HARDWARE, "ppp0": PPP}, "ppp0", "eth0", id="PPPoE"),
        pytest.param({"ppp0": PPP, "tailscale0": TUN}, "ppp0", "ppp0", id="a serial modem alone"),
        pytest.param(
            {"eth0": HARDWARE, "lan1": HARDWARE | {"lower_eth0/type": "1\n"}},
            "lan1",
            "eth0",
            id="a switch on the board",
        ),
        pytest.param(
            {"can0": HARDWARE | {"type": "280\n"}, "eth0": HARDWARE},
            "eth0",
            "eth0",
            id="a CAN bus",
        ),
        pytest.param(
            {"mon0": HARDWARE | {"type": "803\n"}, "wlan0": HARDWARE},
            "wlan0",
            "wlan0",
            id="Wi-Fi that is monitored",
        ),
        pytest.param({"wwan0": HARDWARE | {"type": "65534\n"}}, "wwan0", "wwan0"),
        pytest.param({"eth0": ETHERNET, **VIRTUAL}, "eth0", "eth0", id="a node in a container"),
        pytest.param(
            {"eth0": ETHERNET | on("br0"), "br0": above("eth0"), **VIRTUAL},
            "br0",
            "eth0",
            id="a bridge in a container",
        ),
        pytest.param({"eth0": ETHERNET, "veth1": ETHERNET | on("cni0")}, "", "eth0"),
        pytest.param({"eth0": ETHERNET | on("br0"), "br0": above("eth0")}, "", "eth0"),
        pytest.param({"eth0": ETHERNET, "wlan0": ETHERNET}, "", "eth0 wlan0"),
        pytest.param({"tap0": TUN | ETHERNET, "cni0": BRIDGE}, "tap0", "tap0", id="slirp4netns"),
        pytest.param({"eth0": {}}, "", "eth0", id="no sysfs"),
        pytest.param(dict.fromkeys("fedcba", HARDWARE), "f", "a b c f", id="more than fit"),
        pytest.param(
            dict.fromkeys("abcd", HARDWARE) | {"e": HARDWARE | on("br0"), "br0": above("e")},
            "br0",
            "a b c e",
            id="more than fit, one of them on a bridge",
        ),
        pytest.param(VIRTUAL | {"cilium_host": DUMMY, "veth1": DUMMY}, "", "", id="no network"),
        pytest.param({}, "", "", id="nothing"),
    ],
)
def test_a_packet_counts_once_where_it_leaves_the_board(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interfaces: dict[str, dict[str, str]],
    default: str,
    expected: str,
) -> None:
    for name, files in interfaces.items():
        for file, text in files.items():
            path = tmp_path / "class/net" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    route = f"{default}\t00000000\t0163A80A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net/route").write_text(route if default else "")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert network.choose(tmp_path / "class/net", list(interfaces)) == expected.split()


NAMES = """
from pathlib import Path
from leadline_agent.collectors.network import NetworkCollector
print(*(each.name for each in NetworkCollector(Path("/sys")).collect().network))
"""


@pytest.mark.network
@pytest.mark.parametrize("has_route", [True, False])
def test_a_board_in_a_namespace_counts_the_link_to_its_switch_alone(has_route: bool) -> None:
    """With what a board may have beside: bridge, macvlan, VXLAN, tap; with a route also a pod."""
    with linked_namespace() as board:
        a_pod_and_a_route = (
            f"route add default via {board.own_address}",
            "link add veth1 type veth peer name veth2",
            "link set veth1 master cni0 up",
            "link set veth2 up",
        )
        for command in (
            "link add br0 type bridge",
            "link set eth0 master br0",
            "addr flush dev eth0",
            f"addr add {board.address}/30 dev br0",
            "link set br0 up",
            "link add link br0 name above type macvlan",
            "link set above up",
            "link add flannel.1 type vxlan id 1 dstport 8472 local 10.0.0.1",
            "link set flannel.1 up",
            "tuntap add tailscale0 mode tap",
            "link set tailscale0 up",
            "link add cni0 type bridge",
            "link set cni0 up",
            *(a_pod_and_a_route if has_route else ()),
        ):
            board.run("ip", *command.split())
        seen = subprocess.run(
            board.command(sys.executable, "-c", NAMES), check=True, capture_output=True, text=True
        )
    assert seen.stdout.split() == ["eth0"]


def test_the_interface_of_a_default_route_of_either_protocol() -> None:
    zeros = "0" * 32
    route = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
down0\t00000000\t0100A8C0\t0002\t0\t0\t100\t00000000\t0\t0\t0
cni0\t00002A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
odd
"""
    ipv6_route = f"""\
{zeros} 00 {zeros} 00 fe80{zeros[4:]} 00000400 00000001 00000000 00000003 wlan0
{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo
fd00{zeros[4:]} 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001 cni0
"""
    assert default_routes(route, ipv6_route) == {"eth0", "wlan0"}
    assert default_routes("", "") == set()


def test_a_counter_that_was_reset_is_unknown_and_not_negative() -> None:
    before = dict(zip(network.RATES, (10, 10, 4_000_000_000, 10), strict=True))
    after = dict(zip(network.RATES, (20, 20, 7, 20), strict=True))
    assert rates("eth0", before, after, 1000) == interface(10.0, 10.0, None, 10.0)

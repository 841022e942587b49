"""The units as systemd reads them: clean, closed, and with the settings that the daemons know."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from leadline_agent import config as agent
from leadline_controller.extender import server as extender
from leadline_controller.serve import grpc_server
from leadline_controller.setting_rows import rows
from leadline_controller.settings import Settings
from leadline_flows import __main__ as flows

from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.system.daemons import clean_environ, unreachable_kubeconfig

UNITS = Path(__file__).parents[2] / "systemd"
AGENT, CONTROLLER = UNITS / "leadline-agent.service", UNITS / "leadline-controller.service"
FLOWS = UNITS / "leadline-flows.service"
EACH = pytest.mark.parametrize("unit", [AGENT, CONTROLLER, FLOWS], ids=lambda unit: unit.stem)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def settings(unit: Path) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@EACH
def test_systemd_has_nothing_to_say_about_the_unit(unit: Path, tmp_path: Path) -> None:
    runnable = shutil.which("true")
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={runnable}", unit.read_text()))
    done = analyze("verify", "--man=no", "--recursive-errors=one", copy)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    copy.write_text(copy.read_text() + "Nonsense=yes\n")
    assert "Nonsense" in analyze("verify", "--man=no", "--recursive-errors=one", copy).stderr


@pytest.mark.parametrize(("unit", "most"), [(AGENT, 2.0), (CONTROLLER, 2.5), (FLOWS, 1.1)])
def test_what_is_exposed_stays_below_the_limit(unit: Path, most: float, tmp_path: Path) -> None:
    tenths = round(10 * most)
    done = analyze("security", "--offline=true", f"--threshold={tenths}", unit)
    assert done.returncode == 0, done.stdout + done.stderr
    # The same judgement finds a unit without its sandbox exposed.
    bare = tmp_path / unit.name
    bare.write_text(unit.read_text().split("# Everything else is closed")[0])
    assert analyze("security", "--offline=true", f"--threshold={tenths}", bare).returncode != 0


def test_the_controllers_descriptors_suffice_for_all_that_its_settings_let_in() -> None:
    limit = int(settings(CONTROLLER)["LimitNOFILE"][0])
    ports = 2 * grpc_server.MAX_CONNECTIONS  # the gRPC API's and KEDA's
    assert limit >= ports + 4 * extender.Limits().connections + 512


def exposed(unit: Path) -> set[str]:
    done = analyze("security", "--offline=true", "--json=short", unit)
    return {each["json_field"] for each in json.loads(done.stdout) if float(each["exposure"] or 0)}


def test_the_agents_exposure_is_what_its_metrics_need() -> None:
    assert exposed(AGENT) == {
        "PrivateNetwork",  # it measures this board's network
        "RestrictAddressFamilies_AF_INET_INET6",
        "RestrictAddressFamilies_AF_UNIX",  # systemd's notify socket
        "ProcSubset",  # processor, memory, disks and packets stand in /proc
        "IPAddressDeny",  # the broker and the peers are wherever the settings say
        "DeviceAllow",  # ProtectClock itself lets the clock be read
        "RootDirectoryOrRootImage",
    }


def test_the_exposure_of_the_helper_that_counts_is_its_one_capability_and_where_it_counts() -> None:
    assert exposed(FLOWS) == {
        "CapabilityBoundingSet_CAP_NET_ADMIN",
        "AmbientCapabilities",
        "PrivateUsers",  # the capability counts in the users' namespace of the network
        "PrivateNetwork",  # it is this network's connections that it counts
        "RestrictAddressFamilies_AF_NETLINK",
        "RestrictAddressFamilies_AF_UNIX",  # systemd's notify socket
        "DeviceAllow",  # ProtectClock itself lets the clock be read
        "RootDirectoryOrRootImage",
    }


def test_only_the_agents_user_reads_what_the_helper_counts() -> None:
    said = settings(FLOWS)
    assert said["User"] == [AGENT.stem]  # the name that DynamicUser gives the agent
    assert said["RuntimeDirectoryMode"] == ["0700"]
    assert said["RuntimeDirectory"] == [Path(flows.DEFAULT_FILE).parent.name]


@EACH
def test_a_unit_never_gives_up_and_is_watched(unit: Path) -> None:
    said = settings(unit)
    assert said["Type"] == ["notify"]
    assert said["Restart"] == ["always"]
    assert said["StartLimitIntervalSec"] == ["0"]
    assert 2 <= int(said["RestartSec"][0]) <= 30
    assert int(said["WatchdogSec"][0]) > 0


@pytest.mark.parametrize(
    ("unit", "known"),
    [
        (AGENT, {f"LEADLINE_{path.replace('.', '_').upper()}" for path in agent._FIELDS}),
        (CONTROLLER, {row.variable for row in rows(Settings)}),
    ],
    ids=["agent", "controller"],
)
def test_each_variable_is_a_setting_and_each_credential_reaches_one(
    unit: Path, known: set[str]
) -> None:
    said = settings(unit)
    given = dict(pair.split("=", 1) for pair in said["Environment"])
    variables = {name: value for name, value in given.items() if name.startswith("LEADLINE_")}
    assert variables.keys() <= known
    loaded = {credential.split(":")[0] for credential in said["LoadCredential"]}
    assert {value.removeprefix("%d/") for value in variables.values()} == loaded - {
        "extender",
        "grpc",
        "keda",
        "metrics",
        "notify",
        "web",
    }


def test_the_controller_tells_systemd_when_it_serves_that_it_goes_on_and_that_it_ends(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path).client("controller").ca_file
    config = tmp_path / "controller.toml"
    config.write_text(
        f"kubernetes.kubeconfig = '{unreachable_kubeconfig(tmp_path, authority)}'\n"
        f"grpc.address = '127.0.0.1:{free_port()}'\nbroker.port = {free_port()}\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        variables = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "400000",
            "STATE_DIRECTORY": str(tmp_path / "state"),
        }
        command = [sys.executable, "-m", "leadline_controller", "run", "--config", str(config)]
        with subprocess.Popen(command, env=clean_environ() | variables) as controller:
            try:
                heard = [systemd.recv(100) for _ in range(4)]
                controller.send_signal(signal.SIGTERM)
                assert controller.wait(30) == 0
            finally:
                controller.kill()
        assert sorted(heard) == [b"READY=1", *[b"WATCHDOG=1"] * 3]
        systemd.setblocking(False)
        while (last := systemd.recv(100)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1"

"""Agents of the lab: their configuration files are valid, and environment settings are unset."""

import subprocess
from pathlib import Path

import pytest
from leadline_agent.config import load
from leadline_lab.broker import start_broker
from leadline_lab.lab import (
    AgentSettings,
    Lab,
    agent_command,
    start_agents,
    start_flows,
    track_connections,
)

from tests.lab.inventory import stop_processes
from tests.system.daemons import eventually


def test_the_agent_accepts_its_file(tmp_path: Path) -> None:
    settings = AgentSettings(cluster="attic", broker_host="10.77.0.254", interval_s=1)
    command = agent_command(tmp_path / "n2", "10.77.0.2", settings)
    read = load(Path(command[-1]), {})
    assert (read.node, read.cluster, read.interval_s) == ("n2", "attic", 1)
    assert read.state_dir == tmp_path / "n2"
    assert (read.broker.host, read.broker.port, read.broker.tls) == ("10.77.0.254", 1883, None)
    assert read.probe.address == "10.77.0.2"
    assert read.flows is None


@pytest.mark.network
def test_an_agent_reads_what_its_board_counts(shaped_lab: Lab) -> None:
    settings = AgentSettings("attic", "10.77.0.254", flows=True)
    command = agent_command(shaped_lab.directory / "n2", "10.77.0.2", settings)
    file = load(Path(command[-1]), {}).flows
    assert file is not None
    track_connections(shaped_lab, ["n2"])
    (counting,) = start_flows(shaped_lab, ["n2"], period_s=1)
    text = eventually(lambda: file.exists() and file.read_text(), bool, "the board counts")
    assert '"flows":[' in str(text)
    stop_processes(shaped_lab.spec.name, "flows-n2")
    assert not counting.running


@pytest.mark.network
def test_a_real_agent_reports_from_its_board(
    shaped_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_NODE", "somebody-else")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/not-yours")
    host, port = start_broker(shaped_lab, port=1885)
    settings = AgentSettings("attic", host, port, interval_s=1)
    (agent,) = start_agents(shaped_lab, settings, ["n1"])
    command = ["mosquitto_sub", "-h", host, "-p", str(port), "-V", "mqttv5", "-W", "90"]
    topics = ["-t", "leadline/v1/attic/n1/report", "-C", "1", "-F", "%t"]
    received = subprocess.run(
        shaped_lab.command("server", command + topics),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert received.stdout == "leadline/v1/attic/n1/report\n", agent.last_line()
    environment = Path(f"/proc/{agent.pid}/environ").read_bytes()
    assert b"LEADLINE_NODE" not in environment
    assert b"NOTIFY_SOCKET" not in environment
    stop_processes(shaped_lab.spec.name, "agent-n1", "broker")
    assert not agent.running

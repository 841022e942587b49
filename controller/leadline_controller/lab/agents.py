"""The agents of a lab: a real ``leadline_agent`` with its own configuration on each host."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leadline_controller.lab.lab import Lab
from leadline_controller.lab.processes import Process

_SETTINGS_PREFIX = "LEADLINE_"
_SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class AgentSettings:
    """The settings that all agents of a lab share. The broker speaks MQTT without TLS."""

    cluster: str
    broker_host: str
    broker_port: int = 1883
    interval_s: int = 2


def agent_toml(lab: Lab, host: str, settings: AgentSettings) -> str:
    """The configuration file of one host's agent."""
    return "\n".join(
        [
            f"node = {json.dumps(host)}",
            f"cluster = {json.dumps(settings.cluster)}",
            f"state_dir = {json.dumps(str(lab.directory / host))}",
            f"interval_s = {settings.interval_s}",
            "",
            "[broker]",
            f"host = {json.dumps(settings.broker_host)}",
            f"port = {settings.broker_port}",
            "plaintext = true",
            "",
            "[probe]",
            f"address = {json.dumps(lab.address(host))}",
            "",
        ]
    )


def start_agents(
    lab: Lab, settings: AgentSettings, hosts: Iterable[str] | None = None
) -> list[Process]:
    """Start an agent on the named hosts, by default on all boards and on ``server``, the anchor.

    The node has the name of the host. The processes are called ``agent-<host>``.
    """
    names = [host.name for host in lab.spec.hosts] if hosts is None else list(hosts)
    processes = []
    for host in names:
        folder = lab.directory / host
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / "agent.toml"
        config.write_text(agent_toml(lab, host, settings), encoding="utf-8")
        argv = ["env", *unset_settings(), *agent_command(config)]
        processes.append(lab.start(host, f"agent-{host}", argv))
    return processes


def agent_command(config: Path) -> list[str]:
    """The command line of an agent with this configuration file."""
    return [sys.executable, "-m", "leadline_agent", "run", "--config", str(config)]


def unset_settings() -> list[str]:
    """Options of `env` that unset this process's settings, as they take precedence over the
    file."""
    variables = [
        name
        for name in os.environ
        if name.startswith(_SETTINGS_PREFIX) or name in _SYSTEMD_VARIABLES
    ]
    return [f"--unset={name}" for name in variables]

"""Agents of a lab: each host gets a configuration of its own and a real ``leadline_agent``."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leadline_controller.lab.lab import Lab
from leadline_controller.lab.processes import Process

_PREFIX = "LEADLINE_"
_FROM_SYSTEMD = ("NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class AgentSettings:
    """What all agents of a lab have in common; the broker is plain MQTT inside the lab."""

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
            f"state_dir = {json.dumps(str(_folder(lab, host)))}",
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
    """Start an agent on every host (or on those named): the boards, and ``server`` as the anchor.

    The node's name is the host's. Processes are called ``agent-<host>``.
    """
    chosen = [host.name for host in lab.spec.hosts] if hosts is None else list(hosts)
    return [_start_agent(lab, host, settings) for host in chosen]


def _start_agent(lab: Lab, host: str, settings: AgentSettings) -> Process:
    folder = _folder(lab, host)
    folder.mkdir(mode=0o700, exist_ok=True)
    config = folder / "agent.toml"
    config.write_text(agent_toml(lab, host, settings), encoding="utf-8")
    argv = ["env", *unset_settings(), *agent_command(config)]
    return lab.start(host, f"agent-{host}", argv)


def agent_command(config: Path) -> list[str]:
    """The command line of an agent with this file."""
    return [sys.executable, "-m", "leadline_agent", "run", "--config", str(config)]


def unset_settings() -> list[str]:
    """For `env`: settings meant for another process, which would otherwise win over the file."""
    ours = [name for name in os.environ if name.startswith(_PREFIX) or name in _FROM_SYSTEMD]
    return [f"--unset={name}" for name in ours]


def _folder(lab: Lab, host: str) -> Path:
    return lab.directory / host

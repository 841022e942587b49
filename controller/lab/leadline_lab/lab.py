"""The interface of the lab: up, down, status, and processes and agents on its hosts. Every error
is a LabError of one sentence."""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline_lab import cgroups, network, state
from leadline_lab.errors import LabError
from leadline_lab.processes import Process, spawn, stop, wait_logged
from leadline_lab.relay import READY
from leadline_lab.spec import SERVER, SWITCH, LabSpec
from leadline_lab.state import LabState

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool"}
CONTROLLER = "controller"
_CLAIM = "claim"
_FLOWS = "flows.json"
# As kube-proxy's rules do: without a rule that reads it, the kernel tracks no connection.
_TRACK = (
    "add table inet leadline; "
    "add chain inet leadline forwarded { type filter hook forward priority 0; policy accept; }; "
    "add rule inet leadline forwarded ct state new counter"
)
_RELAY_START_S = 20.0
_CONTROLLER_START_S = 120.0
_SETTINGS_PREFIX = "LEADLINE_"
_SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class AgentSettings:
    """The settings that all agents of a lab share. The broker speaks MQTT without TLS."""

    cluster: str
    broker_host: str
    broker_port: int = 1883
    interval_s: int = 2
    flows: bool = False  # whether they report what `start_flows` has counted


@dataclass(frozen=True)
class Lab:
    """A lab that is up. Several instances, also of several processes, may refer to the same lab."""

    spec: LabSpec

    @property
    def directory(self) -> Path:
        """Folder for this lab's files and logs; it is deleted with the lab."""
        return state.directory(self.spec.name)

    @property
    def data(self) -> Path:
        """Folder on disk for what does not fit into ``directory``; it is deleted with the lab."""
        return state.data_directory(self.spec.name)

    def address(self, host: str = SERVER) -> str:
        """IPv4 address of a host."""
        return self.spec.address(host)

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` on a host."""
        if _speed_file(self.spec, host).exists():
            argv = network.with_speed(argv, _speed_file(self.spec, host))
        return network.command_in(self.spec.namespace(host), argv)

    def start(self, host: str, name: str, argv: Sequence[str]) -> Process:
        """Start a process on a host; it runs until :func:`down`.

        Its output goes to ``<directory>/<name>.log``. Raises :class:`LabError` if the lab is not
        up or a process of that name runs already.
        """
        return self.start_command(host, name, self.command(host, argv))

    def start_command(self, host: str, name: str, command: Sequence[str]) -> Process:
        """The same for a command that enters the host's namespaces by itself, or stays outside."""
        with state.locked():
            recorded = state.load(self.spec.name)
            if recorded is None:
                raise LabError(f"there is no lab {self.spec.name}: build it with leadline lab up")
            if not recorded.complete:
                raise LabError(
                    f"lab {self.spec.name} is incomplete: "
                    f"end it with leadline lab down {self.spec.name}"
                )
            return _start(recorded, host, name, command)[1]


def can_build() -> str | None:
    """None if this process can build a lab, and the reason as a sentence otherwise."""
    if os.geteuid() != 0:
        return "the lab needs root: network namespaces and traffic control are refused otherwise"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"the lab needs {tool}: install {package}"
    return network.missing_feature()


def up(spec: LabSpec) -> Lab:
    """Build a lab. If this fails half way, everything is removed before the error is raised.

    Raises :class:`LabError` if the lab exists already or this machine does not permit it.
    """
    if reason := can_build():
        raise LabError(reason)
    with state.locked():
        if state.load(spec.name) is not None:
            raise LabError(
                f"lab {spec.name} exists already: end it with leadline lab down {spec.name}"
            )
        try:
            state.forget(spec.name)  # what a reboot left on disk
            _build(spec)
        except BaseException:  # Ctrl-C must leave nothing behind either
            _take_down(spec.name)
            raise
    return Lab(spec)


def down(name: str) -> None:
    """End a lab's processes and remove its network, also after a crash; no error without a lab."""
    with state.locked():
        _take_down(name)


def remove_leftover(name: str) -> bool:
    """End what an interrupted build, or a killed process that had claimed the lab, has left. False
    if there is a lab in use."""
    with state.locked():
        recorded = state.load(name)
        if recorded is not None and recorded.complete and not _is_abandoned(name):
            return False
        _take_down(name)
    return True


@contextmanager
def claimed(lab: Lab) -> Iterator[None]:
    """The lab is of use to this process only: if it is killed, :func:`remove_leftover` ends it.
    Raises LabError if another process has claimed it."""
    with ExitStack() as stack:
        with state.locked():  # else it would look abandoned between the next two lines
            claim = stack.enter_context((lab.directory / _CLAIM).open("w"))
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LabError(f"lab {lab.spec.name} is in use by another process") from None
        yield


def _is_abandoned(name: str) -> bool:
    """Whether the process that claimed the lab has ended; the kernel then released its lock."""
    try:
        with (state.directory(name) / _CLAIM).open() as claim:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def status(name: str) -> dict[str, Any] | None:
    """The lab's hosts and their processes, as plain data; None if there is no lab of that name.
    "complete" is false if its build was interrupted, or if the machine was rebooted since."""
    recorded = state.load(name)
    if recorded is None:
        return None
    spec, present = recorded.spec, network.namespaces(name)
    hosts = [
        {
            "host": host.name,
            "address": spec.address(host.name),
            "rate_mbps": host.rate_mbps,
            "delay_ms": host.delay_ms,
            "link_mbps": host.speed_mbps,
            "namespace": spec.namespace(host.name),
            "present": spec.namespace(host.name) in present,
            "processes": {p.name: p.running for p in recorded.processes if p.host == host.name},
        }
        for host in spec.hosts
    ]
    controller = any(p.name == CONTROLLER and p.running for p in recorded.processes)
    return {
        "lab": name,
        "complete": recorded.complete,
        "controller": controller_address(name) if controller else None,
        "hosts": hosts,
    }


def controller_address(name: str) -> str:
    """Where the controller of a lab answers; a Unix socket can be reached from every namespace."""
    return f"unix:{state.directory(name) / 'controller.sock'}"


def start_controller(lab: Lab, argv: Sequence[str], ready: str) -> str:
    """Start a controller on the lab's server, and wait until its log has the text `ready`. Returns
    its address. Raises LabError."""
    process = lab.start(SERVER, CONTROLLER, argv)
    wait_logged(process, ready, _CONTROLLER_START_S)
    return controller_address(lab.spec.name)


def start_agents(
    lab: Lab, settings: AgentSettings, hosts: Iterable[str] | None = None
) -> list[Process]:
    """Start an agent on the named hosts, by default on all boards and on ``server``, the anchor.

    The node has the name of the host. The processes are called ``agent-<host>``.
    """
    names = [host.name for host in lab.spec.hosts] if hosts is None else hosts
    return [
        lab.start(
            host,
            f"agent-{host}",
            agent_command(lab.directory / host, lab.address(host), settings),
        )
        for host in names
    ]


def track_connections(lab: Lab, hosts: Iterable[str]) -> None:
    """Have the kernel track and count the connections of these boards' pods from now on, and those
    between pods of one board if it shows a bridge's packets to connection tracking. A connection
    that is open already may look as if its other end had opened it. Raises LabError."""
    for host in hosts:
        for settings in (("nft", _TRACK), ("sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")):
            network.run(*network.command_in(lab.spec.namespace(host), settings))


def start_flows(lab: Lab, hosts: Iterable[str], period_s: float = 60.0) -> list[Process]:
    """Start leadline-flows on these boards, for agents with the setting `flows`. The processes are
    called ``flows-<host>``. Raises LabError."""
    started = []
    for host in hosts:
        file = str(lab.directory / host / _FLOWS)
        options = ("--file", file, "--period-s", f"{period_s:g}")
        command = [sys.executable, "-m", "leadline_flows", *options]
        started.append(lab.start(host, f"flows-{host}", command))
    return started


def agent_command(folder: Path, address: str, settings: AgentSettings) -> list[str]:
    """Write the configuration of an agent into its folder, which has the name of its node. Returns
    the command line, without this process's settings: they would take precedence."""
    folder.mkdir(mode=0o700, exist_ok=True)
    config = folder / "agent.toml"
    config.write_text(
        f"node = {json.dumps(folder.name)}\n"
        f"cluster = {json.dumps(settings.cluster)}\n"
        f"state_dir = {json.dumps(str(folder))}\n"
        f"interval_s = {settings.interval_s}\n"
        f"[broker]\nhost = {json.dumps(settings.broker_host)}\n"
        f"port = {settings.broker_port}\nplaintext = true\n"
        f"[probe]\naddress = {json.dumps(address)}\n"
        + (f"[flows]\npath = {json.dumps(str(folder / _FLOWS))}\n" if settings.flows else ""),
        encoding="utf-8",
    )
    unset = [
        f"--unset={name}"
        for name in os.environ
        if name.startswith(_SETTINGS_PREFIX) or name in _SYSTEMD_VARIABLES
    ]
    return ["env", *unset, sys.executable, "-m", "leadline_agent", "run", "--config", str(config)]


def _speed_file(spec: LabSpec, host: str) -> Path:
    return state.directory(spec.name) / f"{host}.speed"


def _build(spec: LabSpec) -> None:
    recorded = LabState(spec)
    state.save(recorded)
    network.build_switch(spec)
    netem = network.has_netem(spec.namespace(SWITCH))
    relays = {}
    for number, host in enumerate(spec.hosts):
        if host.speed_mbps is not None:
            _speed_file(spec, host.name).write_text(f"{host.speed_mbps}\n", encoding="ascii")
        if relay := network.build_host(spec, host, number, netem):
            relays[f"relay-{host.name}"] = relay
    started = []
    for name, argv in relays.items():
        recorded, process = _start(recorded, SWITCH, name, Lab(spec).command(SWITCH, argv))
        started.append(process)
    for process in started:
        wait_logged(process, READY, _RELAY_START_S)
    state.save(replace(recorded, complete=True))


def _start(
    recorded: LabState, host: str, name: str, command: Sequence[str]
) -> tuple[LabState, Process]:
    for known in recorded.processes:
        if known.name == name and known.running:
            raise LabError(f"{name} runs already in lab {recorded.spec.name} (process {known.pid})")
    log = state.directory(recorded.spec.name) / f"{name}.log"
    process = spawn(
        name, host, command, log, lambda started: state.save(recorded.with_process(started))
    )
    return recorded.with_process(process), process


def _take_down(name: str) -> None:
    recorded = state.load(name)
    cgroups.end(name)
    stop(recorded.processes if recorded else (), network.namespaces(name))
    network.remove(name)
    state.forget(name)

"""The interface of the lab: up, down, status, and processes on its hosts.

Nothing is printed here. Progress goes to a callback, and every error is a
:class:`~leadline_controller.lab.errors.LabError` of one sentence.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leadline_controller.lab import network, state
from leadline_controller.lab.errors import LabError
from leadline_controller.lab.processes import Process, spawn, stop, wait_logged
from leadline_controller.lab.relay import READY
from leadline_controller.lab.spec import SERVER, SWITCH, BoardSpec, LabSpec
from leadline_controller.lab.state import LabState

Progress = Callable[[str], None]

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool"}
_RELAY_START_S = 20.0


@dataclass(frozen=True)
class HostStatus:
    """The current status of a host."""

    link: BoardSpec
    address: str
    namespace: str
    present: bool
    """Whether its namespace exists."""


@dataclass(frozen=True)
class LabStatus:
    """The status of a recorded lab. ``complete`` is false if its build was interrupted, or if the
    machine was rebooted since."""

    spec: LabSpec
    complete: bool
    hosts: tuple[HostStatus, ...]
    processes: tuple[Process, ...]
    directory: Path


@dataclass(frozen=True)
class Lab:
    """A lab that is up. Several instances, also of several processes, may refer to the same lab."""

    spec: LabSpec

    @property
    def directory(self) -> Path:
        """Folder for this lab's files and logs; it is deleted with the lab."""
        return state.directory(self.spec.name)

    def address(self, host: str = SERVER) -> str:
        """IPv4 address of a host."""
        return self.spec.address(host)

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` on a host."""
        return network.command_in(self.spec.namespace(host), argv)

    def start(self, host: str, name: str, argv: Sequence[str]) -> Process:
        """Start a process on a host; it runs until :meth:`stop` or :func:`down`.

        Its output goes to ``<directory>/<name>.log``. Raises :class:`LabError` if the lab is not
        up or a process of that name runs already.
        """
        with state.locked():
            return _start(_record(self.spec.name), host, name, argv)[1]

    def stop(self, name: str) -> None:
        """End a process: SIGTERM, and SIGKILL 3 s later if it still runs."""
        with state.locked():
            process = _record(self.spec.name).process(name)
            if process is None:
                raise LabError(f"lab {self.spec.name} has no process {name}")
            stop([process], network.namespaces(self.spec.name))

    def processes(self) -> tuple[Process, ...]:
        """All processes on record, running or not."""
        return _record(self.spec.name).processes


def can_build() -> str | None:
    """None if this process can build a lab, and the reason as a sentence otherwise."""
    if os.geteuid() != 0:
        return "the lab needs root: network namespaces and traffic control are refused otherwise"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"the lab needs {tool}: install {package}"
    return network.missing_feature()


def up(spec: LabSpec, progress: Progress = lambda _: None) -> Lab:
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
            _build(spec, progress)
        except BaseException:  # Ctrl-C must leave nothing behind either
            _take_down(spec.name)
            raise
    return Lab(spec)


def down(name: str, progress: Progress = lambda _: None) -> None:
    """End a lab's processes and remove its network, also after a crash; no error without a lab."""
    with state.locked():
        progress(f"ending lab {name}")
        _take_down(name)


def status(name: str) -> LabStatus | None:
    """The status of a lab; None if there is no lab of that name."""
    recorded = state.load(name)
    if recorded is None:
        return None
    spec = recorded.spec
    present = set(network.namespaces(name))
    hosts = tuple(
        HostStatus(link, spec.address(link.name), namespace, namespace in present)
        for link in spec.hosts
        for namespace in [spec.namespace(link.name)]
    )
    directory = state.directory(name)
    return LabStatus(spec, recorded.complete, hosts, recorded.processes, directory)


def names() -> list[str]:
    """The names of the recorded labs."""
    return state.names()


def open_lab(name: str) -> Lab:
    """A lab that another process built. Raises :class:`LabError` if it is not up."""
    return Lab(_record(name).spec)


def _record(name: str) -> LabState:
    recorded = state.load(name)
    if recorded is None:
        raise LabError(f"there is no lab {name}: build it with leadline lab up")
    if not recorded.complete:
        raise LabError(f"lab {name} is incomplete: end it with leadline lab down {name}")
    return recorded


def _build(spec: LabSpec, progress: Progress) -> None:
    recorded = LabState(spec)
    state.save(recorded)
    progress(f"switch of lab {spec.name}")
    network.build_switch(spec)
    netem = network.has_netem(spec.namespace(SWITCH))
    relays = []
    for number, host in enumerate(spec.hosts):
        progress(describe_link(host))
        if relay := network.build_host(spec, host, number, netem):
            relays.append(relay)
    started = []
    for relay in relays:
        progress(f"{relay.host}: delay by relay, as this kernel has no netem")
        recorded, process = _start(recorded, SWITCH, f"relay-{relay.host}", relay.argv)
        started.append(process)
    for process in started:
        wait_logged(process, READY, _RELAY_START_S)
    state.save(replace(recorded, complete=True))


def describe_link(link: BoardSpec) -> str:
    """A host and its link, as text."""
    rate = "unshaped" if link.rate_mbps is None else f"{link.rate_mbps:g} Mbit/s"
    delay = f", {link.delay_ms:g} ms round trip" if link.delay_ms else ""
    return f"{link.name}: {rate}{delay}"


def _start(
    recorded: LabState, host: str, name: str, argv: Sequence[str]
) -> tuple[LabState, Process]:
    known = recorded.process(name)
    if known is not None and known.running:
        raise LabError(f"{name} runs already in lab {recorded.spec.name} (process {known.pid})")
    command = Lab(recorded.spec).command(host, argv)
    log = state.directory(recorded.spec.name) / f"{name}.log"
    process = spawn(
        name, host, command, log, lambda started: state.save(recorded.with_process(started))
    )
    return recorded.with_process(process), process


def _take_down(name: str) -> None:
    recorded = state.load(name)
    stop(recorded.processes if recorded else (), network.namespaces(name))
    network.remove(name)
    state.forget(name)

"""Run real agents on this machine, on links that differ."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import Format, cell, emit, output_option, table, working
from rich.console import RenderableType

from leadline_lab import kubelets
from leadline_lab import lab as labs
from leadline_lab.broker import start_broker
from leadline_lab.demo_process import READY, Demo
from leadline_lab.errors import LabError, SpecError
from leadline_lab.sounding.command import sounding
from leadline_lab.spec import SERVER, BoardSpec, LabSpec, load_spec

_CLUSTER = "demo"
_MAP_HOST, _MAP_PORT = "127.0.0.1", 25509
_INTERVAL_S = 2
# Three of the four boards have a throttled link, and two of those are far away.
_DEMO = LabSpec(
    boards=(
        BoardSpec("n1", rate_mbps=4),
        BoardSpec("n2", rate_mbps=4, delay_ms=20),
        BoardSpec("n3", rate_mbps=4, delay_ms=10),
        BoardSpec("n4", rate_mbps=100),
    )
)
_name = click.argument("name", default=_DEMO.name)


@click.group(epilog="Example: leadline lab run")
def lab() -> None:
    """Run real agents on this machine, on links that differ (needs root)."""


lab.add_command(sounding)


_path = click.Path(path_type=Path)


@lab.command(epilog="Example: leadline lab up --kubelets --kubeconfig ~/.kube/config")
@click.option("--spec", "file", type=_path, help="Boards and links, TOML.")
@click.option("--kubelets", "with_kubelets", is_flag=True, help="Boards join a cluster as nodes.")
@click.option("--kubeconfig", type=_path, help="The cluster, with an administrator's rights.")
@click.option("--kubelet-binaries", type=_path, help="Folder of kubelet, containerd and its shim.")
@click.option("--no-controller", is_flag=True, help="Only broker and agents.")
def up(
    file: Path | None,
    with_kubelets: bool,
    kubeconfig: Path | None,
    kubelet_binaries: Path | None,
    no_controller: bool,
) -> None:
    """Build a lab with a broker, an agent on every board, and a controller that places pods on a
    simulated cluster of these boards; keep it running, for `leadline nodes`, `watch` and others.

    With --kubelets each board also runs containerd and kubelet, so that pods run on it, and the
    lab's server has a registry. Then there is no controller: the cluster is a real one.
    """
    if with_kubelets != (kubeconfig is not None):
        raise BadInput("give both --kubelets and --kubeconfig FILE, or neither")
    with _lab_errors(), _first_interrupt_only():
        spec = _DEMO if file is None else load_spec(file)
        binaries = kubelets.find_binaries(kubelet_binaries) if with_kubelets else {}
        built, broker = _start(spec)
        if kubeconfig is None and not no_controller:
            try:
                with working("starting the controller"), _map_socket() as listener:
                    page = "http://{}:{}/".format(*listener.getsockname())
                    command = _demo(built, broker, listener, tells=False, keeps=True).command()
                    address = labs.start_controller(built, command, READY)
            except BaseException:
                labs.down(spec.name)
                raise
            click.echo(f"{READY}{address}; it measures for up to a minute, then places pods:")
            click.echo(f"  export LEADLINE_ADDRESS={address}")
            click.echo("  leadline nodes; leadline placements; leadline watch --only placements")
            click.echo(f"the map: {page}")
        if kubeconfig is not None:
            try:
                with working("starting the kubelets"):
                    inside = kubelets.start_kubelets(built, kubeconfig.resolve(), binaries)
            except BaseException:
                labs.down(spec.name)
                raise
            click.echo(f"registry of the boards: {kubelets.registry_address(built)}")
            click.echo(f"kubeconfig for programs on the lab's hosts: {inside}")
            click.echo(f"when it has ended: kubectl delete node -l {kubelets.LABEL}={spec.name}")
    click.echo(f"lab {spec.name} is up; end it with: leadline lab down {spec.name}")


@lab.command(epilog="Example: leadline lab down demo")
@_name
def down(name: str) -> None:
    """Stop a lab's processes and remove its network. No error if there is no such lab."""
    with _lab_errors(), working(f"ending lab {name}"):
        labs.down(name)


@lab.command(epilog="Example: leadline lab status demo -o json")
@_name
@output_option
def status(name: str, output: Format) -> None:
    """Show a lab's boards and processes."""
    with _lab_errors():
        found = labs.status(name)
    if found is None:
        raise Failed(f"there is no lab {name}; build one with: leadline lab up")

    def rows() -> Iterator[tuple[str, ...]]:
        for host in found["hosts"]:
            delay = f"{host['delay_ms']:g} ms" if host["delay_ms"] else "-"
            running = [
                name if alive else f"{name} (ended)" for name, alive in host["processes"].items()
            ]
            rate = _rate(host["rate_mbps"])
            yield host["host"], host["address"], rate, delay, ", ".join(running) or "-"

    columns = ("HOST", "ADDRESS", "LINK", "DELAY", "PROCESSES")
    answers = found["controller"] or "there is none"

    def tables(_: bool) -> Iterator[RenderableType]:
        yield table(columns, rows())
        yield cell(f"controller: {answers}")

    emit(output, lambda: found, tables)


def _rate(rate_mbps: float | None) -> str:
    return "unshaped" if rate_mbps is None else f"{rate_mbps:g} Mbit/s"


@lab.command(epilog="Example: leadline lab run")
@click.option("--local", is_flag=True, help="No lab: its boards and links are played.")
@click.option("--keep", is_flag=True, help="Keep it running until Ctrl-C, for other commands.")
def run(local: bool, keep: bool) -> None:
    """Measure, place pods beside kube-scheduler's rule, and let them send their data.

    As root it builds a lab with links that differ. Otherwise, or with --local, it plays the same
    boards and links, and nothing is sent. It stops everything that it starts. With --keep the
    controller goes on: pods come and go, and it prints the address for `leadline nodes`, `watch`
    and others.
    """
    reason = "--local says so" if local else labs.can_build()
    with _lab_errors(), _first_interrupt_only():
        if reason:
            click.echo(f"without a lab ({reason}): its boards and links are played", err=True)
        try:
            code = _run_played(keep) if reason else _run_in_a_lab(keep)
        except KeyboardInterrupt:
            if keep:  # its usual end
                return
            raise
    if code:
        raise Failed("the demo failed; the lines above say why")


def _start(spec: LabSpec) -> tuple[labs.Lab, tuple[str, int]]:
    """Build a lab with broker and agents. If a part does not start, all of it is removed."""
    with working(f"building lab {spec.name}"):
        built = labs.up(spec)
        try:
            broker = start_broker(built)
            labs.start_agents(built, labs.AgentSettings(_CLUSTER, *broker, _INTERVAL_S))
        except BaseException:
            labs.down(spec.name)
            raise
    return built, broker


@contextmanager
def _map_socket() -> Iterator[socket.socket]:
    """A socket for the map at this machine's own address, for a process to inherit: the lab's
    controller is in another network namespace, where no browser is."""
    try:
        listener = socket.create_server((_MAP_HOST, _MAP_PORT))
    except OSError:
        listener = socket.create_server((_MAP_HOST, 0))
    with listener:
        listener.set_inheritable(True)
        yield listener


def _demo(
    built: labs.Lab,
    broker: tuple[str, int],
    listener: socket.socket,
    *,
    tells: bool = True,
    keeps: bool,
) -> Demo:
    serve = labs.controller_address(built.spec.name)
    return Demo(built.spec.to_mapping(), broker, serve, tells, keeps, listener.fileno())


def _run_in_a_lab(keep: bool) -> int:
    if not labs.remove_leftover(_DEMO.name):
        raise Failed(
            f"lab {_DEMO.name} is in use: end it with leadline lab down {_DEMO.name}, "
            "or go without a lab: leadline lab run --local"
        )
    built, broker = _start(_DEMO)
    try:
        with labs.claimed(built):
            return _told_in_a_lab(built, broker, keep)
    finally:
        with working("ending the lab"):
            labs.down(_DEMO.name)


def _tell_boards() -> None:
    for board in _DEMO.boards:
        delay = f", {board.delay_ms:g} ms round trip" if board.delay_ms else ""
        click.echo(f"  {board.name}: {_rate(board.rate_mbps)}{delay}")


def _told_in_a_lab(built: labs.Lab, broker: tuple[str, int], keep: bool) -> int:
    click.echo("A lab of four boards in network namespaces, three of their links throttled:")
    _tell_boards()
    click.echo(
        "They share this machine's CPU, memory and disk, so NetSched's points for these are "
        "set to 0;\na stream of small packets keeps the throttled links as busy as the paper's."
    )
    # The paper's throttled nodes are busy ones: a stream of small packets is on their links.
    for board in _DEMO.boards[:3]:
        argv = ["ping", "-q", "-i", "0.02", built.address(SERVER)]
        built.start(board.name, f"traffic-{board.name}", argv)
    with _map_socket() as listener:
        argv = built.command(SERVER, _demo(built, broker, listener, keeps=keep).command())
        fds = (listener.fileno(),)
        return subprocess.run(argv, check=False, pass_fds=fds).returncode  # noqa: S603  # our own module


def _run_played(keep: bool) -> int:
    _tell_boards()
    with _map_socket() as listener:
        fds = (listener.fileno(),)
        argv = Demo(_DEMO.to_mapping(), keeps=keep, web_fd=fds[0]).command()
        return subprocess.run(argv, check=False, pass_fds=fds).returncode  # noqa: S603  # our own module


@contextmanager
def _first_interrupt_only() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the work; a second one does not interrupt the clean-up."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _lab_errors() -> Iterator[None]:
    """Turn the lab's errors into one line and an exit code."""
    try:
        yield
    except SpecError as error:
        raise BadInput(str(error)) from None
    except LabError as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"the lab's files: {error}") from None

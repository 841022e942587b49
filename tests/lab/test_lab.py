"""Building and ending labs: complete ones, incomplete ones, and ones whose builder was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
from leadline_lab import lab as labs
from leadline_lab import network, state
from leadline_lab.errors import CommandError, LabError
from leadline_lab.lab import Lab
from leadline_lab.network import run
from leadline_lab.processes import Process, start_ticks
from leadline_lab.spec import BoardSpec, LabSpec
from leadline_lab.state import LabState

from tests.lab.inventory import namespace_inodes, processes_inside, recorded, stop_processes
from tests.lab.stages import at_a_stage
from tests.support.ports import wait_until

pytestmark = pytest.mark.network

BOARDS = (BoardSpec("n1", rate_mbps=8, delay_ms=20), BoardSpec("n2", delay_ms=10))


@pytest.fixture
def no_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use relays for delays, also if the kernel has netem."""
    monkeypatch.setattr(network, "has_netem", lambda _namespace: False)


def _is_clean(name: str, inodes: set[int]) -> bool:
    nothing_on_record = labs.status(name) is None and not state.directory(name).exists()
    return nothing_on_record and not network.namespaces(name) and not processes_inside(inodes)


def _build_lab(name: str) -> tuple[Lab, set[int]]:
    lab = labs.up(LabSpec(name, boards=BOARDS))
    return lab, namespace_inodes(network.namespaces(name))


def test_down_leaves_nothing(name: str, no_netem: None) -> None:
    links_before = run("ip", "-o", "-br", "link")
    lab, inodes = _build_lab(name)
    lab.start("server", "idle", ["sleep", "600"])
    assert len(network.namespaces(name)) == 4
    # Two relays and idle, which enters its namespace a moment after its start.
    wait_until(lambda: len(processes_inside(inodes)) == 3, "all are inside")
    assert run("ip", "-o", "-br", "link") == links_before
    labs.down(name)
    assert _is_clean(name, inodes)
    labs.down(name)


def test_a_lab_in_use_is_no_leftover_and_one_whose_user_was_killed_is(name: str) -> None:
    lab, inodes = _build_lab(name)
    assert not labs.remove_leftover(name), "a command built it, and keeps it"
    claiming = (
        "import sys, time; from leadline_lab import lab, spec\n"
        "with lab.claimed(lab.Lab(spec.LabSpec(sys.argv[1]))): print('mine', flush=True); "
        "time.sleep(600)"
    )
    argv = [sys.executable, "-c", claiming, name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"mine\n"
        assert not labs.remove_leftover(name), "it is still at work"
        user.kill()
    assert network.namespaces(lab.spec.name)
    assert labs.remove_leftover(name)
    assert _is_clean(name, inodes)
    assert labs.remove_leftover(name), "where there is none, nothing is in the way"


def test_a_lab_is_claimed_at_once_and_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the wrong moment would take it for abandoned, and end it."""
    monkeypatch.setattr(state, "RUN_DIR", tmp_path)
    lab = Lab(LabSpec("claimed", boards=BOARDS))
    state.save(LabState(lab.spec, complete=True))
    holds, may_end = Event(), Event()

    def claim() -> None:
        with labs.claimed(lab):
            holds.set()
            may_end.wait(60)

    claiming = Thread(target=claim)
    with state.locked():  # as remove_leftover
        claiming.start()
        assert not holds.wait(0.2)
        assert not (lab.directory / "claim").exists()
    try:
        assert holds.wait(60)
        assert not labs.remove_leftover("claimed")
        with pytest.raises(LabError, match="lab claimed is in use"), labs.claimed(lab):
            pass
    finally:
        may_end.set()
        claiming.join()


def test_status_lists_hosts_and_processes(name: str, no_netem: None) -> None:
    lab, _ = _build_lab(name)
    brief = lab.start("n2", "brief", ["sh", "-c", "echo spoke; exit 3"])
    wait_until(lambda: not brief.running, "brief ends")
    status = labs.status(name)
    assert status is not None
    assert (status["lab"], status["complete"]) == (name, True)
    assert [(host["host"], host["address"], host["present"]) for host in status["hosts"]] == [
        ("n1", "10.77.0.1", True),
        ("n2", "10.77.0.2", True),
        ("server", "10.77.0.254", True),
    ]
    assert [host["processes"] for host in status["hosts"]] == [{}, {"brief": False}, {}]
    assert {process.name: process.running for process in recorded(name).values()} == {
        "relay-n1": True,
        "relay-n2": True,
        "brief": False,
    }
    assert brief.log.read_text() == "spoke\n"


def test_a_board_states_the_speed_of_its_interface_and_the_machine_keeps_its_own(name: str) -> None:
    boards = (BoardSpec("n1", rate_mbps=8), BoardSpec("n2", rate_mbps=8, link_mbps=1000))
    lab = labs.up(LabSpec(name, boards=boards))
    mounts = Path("/proc/self/mounts").read_text()
    stated = {}
    for host in ("n1", "n2", "server"):
        read = lab.command(host, ["cat", "/sys/class/net/eth0/speed"])
        stated[host] = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    assert stated == {"n1": "10\n", "n2": "1000\n", "server": "10000\n"}
    assert Path("/proc/self/mounts").read_text() == mounts
    labs.down(name)
    assert not lab.directory.exists()


def test_the_same_lab_twice_is_refused_and_another_is_not(name: str) -> None:
    first = labs.up(LabSpec(name, boards=BOARDS[:1]))
    with pytest.raises(LabError, match=f"lab {name} exists already: end it with leadline lab"):
        labs.up(LabSpec(name))
    other = name + "b"
    try:
        labs.up(LabSpec(other, boards=BOARDS[:1]))
        labs.down(other)
        assert len(network.namespaces(name)) == 3
        subprocess.run(first.command("n1", ["true"]), check=True)
    finally:
        labs.down(other)


def test_a_process_is_ended_with_its_children(name: str) -> None:
    lab, inodes = _build_lab(name)
    idle = len(processes_inside(inodes))
    parent = lab.start("n1", "family", ["sh", "-c", "sleep 600 & sleep 601 & wait"])
    wait_until(lambda: len(processes_inside(inodes)) == idle + 3, "the family is complete")
    os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not parent.running, "the parent ends")
    stop_processes(name, "family")
    assert len(processes_inside(inodes)) == idle


def test_a_process_that_ignores_sigterm_is_killed(name: str) -> None:
    lab, _ = _build_lab(name)
    deaf = lab.start(
        "n1", "deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    )
    wait_until(lambda: deaf.log.read_text() == "ready\n", "the trap is set")
    with pytest.raises(LabError, match="deaf runs already"):
        lab.start("n1", "deaf", ["true"])
    stop_processes(name, "deaf")
    assert not deaf.running


def test_a_reused_pid_is_not_killed(name: str) -> None:
    lab, _ = _build_lab(name)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            ticks = start_ticks(bystander.pid)
            assert ticks is not None
            old = Process("old", "n1", bystander.pid, ticks - 1, lab.directory / "old.log")
            lab_state = state.load(name)
            assert lab_state is not None
            state.save(lab_state.with_process(old))
            labs.down(name)
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.parametrize("stage", ["n2", "server", "relay-n2"])
def test_an_interrupted_up_removes_everything(
    name: str, stage: str, no_netem: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    inodes: set[int] = set()

    def interrupt() -> None:
        inodes.update(namespace_inodes(network.namespaces(name)))
        raise KeyboardInterrupt

    at_a_stage(stage, interrupt, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        labs.up(LabSpec(name, boards=BOARDS))
    assert inodes
    assert _is_clean(name, inodes)


def test_a_failed_up_reports_the_error_and_removes_everything(name: str) -> None:
    run("ip", "netns", "add", f"leadline-{name}-n2")
    with pytest.raises(CommandError, match=f"ip netns add leadline-{name}-n2: exit 1: .*exists"):
        labs.up(LabSpec(name, boards=BOARDS))
    assert _is_clean(name, set())


@pytest.mark.parametrize("stage", ["n2", "relay-n2", "all is up"])
def test_down_cleans_up_after_a_builder_that_was_killed(name: str, stage: str) -> None:
    code = (
        "import os, sys, pytest\n"
        "from leadline_lab import lab, network\n"
        "from leadline_lab.spec import parse_spec\n"
        "from tests.lab.stages import at_a_stage\n"
        "network.has_netem = lambda _: False\n"
        "die = lambda: os.kill(os.getpid(), 9)\n"
        "at_a_stage(sys.argv[1], die, pytest.MonkeyPatch())\n"
        "boards = [{'name': 'n1', 'delay_ms': 20}, {'name': 'n2', 'delay_ms': 10}]\n"
        "built = lab.up(parse_spec({'name': sys.argv[2], 'boards': boards}))\n"
        "built.start('server', 'idle', ['sleep', '600'])\n"
        "die()\n"
    )
    died = subprocess.run([sys.executable, "-c", code, stage, name], timeout=180, check=False)
    assert died.returncode == -signal.SIGKILL
    inodes = namespace_inodes(network.namespaces(name))
    assert inodes
    if stage != "all is up":
        with pytest.raises(LabError, match=f"lab {name} is incomplete: end it with leadline lab"):
            Lab(LabSpec(name)).start("server", "idle", ["sleep", "600"])
    labs.down(name)
    wait_until(lambda: _is_clean(name, inodes), "nothing is left")
    assert _is_clean(name, inodes)


def test_what_a_reboot_left_on_disk_is_in_nobodys_way(name: str) -> None:
    left = state.data_directory(name) / "n1"
    left.mkdir(parents=True)
    _build_lab(name)
    assert not left.exists()


def test_after_a_reboot_recorded_pids_are_ignored(name: str) -> None:
    lab, _ = _build_lab(name)
    path = lab.directory / "state.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    original = path.read_text()
    path.write_text(original.replace(boot, "another-boot"))
    status = labs.status(name)
    assert status is not None
    assert not status["complete"]
    assert recorded(name) == {}
    path.write_text(original)


def test_a_record_that_cannot_be_read_is_named(name: str) -> None:
    folder = state.directory(name)
    folder.mkdir(parents=True)
    try:
        (folder / "state.json").write_text("{")
        with pytest.raises(LabError, match=r"state\.json: is no record of a lab"):
            labs.status(name)
    finally:
        state.forget(name)


def test_a_relay_delays_and_ends_when_its_link_vanishes(name: str, no_netem: None) -> None:
    lab, _ = _build_lab(name)
    relays = recorded(name)
    argv = lab.command("n1", ["ping", "-q", "-c", "5", "-i", "0.1", lab.address("n2")])

    def is_delayed() -> bool:
        said = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout
        return 30.0 <= float(said.rpartition("=")[2].split("/")[0]) < 60.0

    wait_until(is_delayed, "a round trip takes the delay of both, and little more")
    run("ip", "-n", f"leadline-{name}-n1", "link", "delete", "dev", "eth0")
    wait_until(lambda: not relays["relay-n1"].running, "the relay ends by itself")
    assert relays["relay-n2"].running


def test_without_root_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert labs.can_build() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (labs.can_build() or "")
    with pytest.raises(LabError, match="needs root"):
        labs.up(LabSpec("never"))


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert labs.can_build() == "the lab needs ip: install iproute2"


def test_an_unwritable_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(state, "RUN_DIR", tmp_path / "file/lab")
    with pytest.raises(LabError, match="file/lab: Not a directory: labs belong to root; use sudo"):
        labs.down("any")

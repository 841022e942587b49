"""The demo as a newcomer runs it: its output, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from leadline_controller.lab import lab as labs
from leadline_controller.lab.state import RUN_DIR

from tests.lab.inventory import fresh_name
from tests.system.confined import as_nobody_without_icmp_and_iperf3, give_to_nobody
from tests.system.daemons import TIMED, clean_environ, eventually

pytestmark = pytest.mark.network

RUN = [sys.executable, "-m", "leadline_controller.cli", "lab", "run"]
LONGEST_S = 540 if not TIMED else 110
MARK = "TEST_OF_THE_DEMO"


class Run:
    """One run of a command; its child processes inherit a mark in the environment."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self._mark = uuid4().hex
        self._folder = folder
        self._files = [(folder / name).open("w+") for name in ("stdout", "stderr")]
        out, err = self._files
        # LEADLINE_NODE: a setting for the agent that this machine may have, and not for the demo's.
        foreign = {"LEADLINE_NODE": "elsewhere", "COLUMNS": "100"}
        environ = {**clean_environ(), **foreign, MARK: self._mark}
        (folder / "tmp").mkdir(mode=0o700)
        give_to_nobody(folder / "tmp")
        environ |= {"HOME": str(folder / "tmp"), "TMPDIR": str(folder / "tmp")}
        self._process = subprocess.Popen(
            # A group of its own, as a shell gives it: the terminal's Ctrl-C goes to all in it.
            argv,
            stdout=out,
            stderr=err,
            env=environ,
            process_group=0,
        )

    @property
    def out(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "stderr").read_text()

    def wait(self) -> int:
        return self._process.wait(LONGEST_S)

    def send_to_group(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def left_over(self) -> list[str]:
        """Processes, files and namespaces that are still there."""
        files = [str(path) for path in (self._folder / "tmp").iterdir()]
        networks = [str(path) for path in Path("/run/netns").glob("leadline-demo-*")]
        labs_left = [str(path) for path in RUN_DIR.glob("demo")]
        return [*(f"process {pid}" for pid in self._marked()), *files, *networks, *labs_left]

    def end(self) -> None:
        """End the processes that a failed test left."""
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        for file in self._files:
            file.close()
        if os.geteuid() == 0:
            labs.down("demo")

    def _marked(self) -> list[int]:
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


class Runs:
    """Starts runs and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: list[Run] = []

    def __call__(self, argv: list[str]) -> Run:
        folder = self._folder / str(len(self._runs))
        folder.mkdir(mode=0o755)
        self._runs.append(Run(argv, folder))
        return self._runs[-1]

    def end(self) -> None:
        for run in self._runs:
            run.end()


@pytest.fixture
def start() -> Iterator[Runs]:
    # Not below pytest's own folder, which is closed to others than its owner.
    with tempfile.TemporaryDirectory(prefix="leadline-test-") as name:
        Path(name).chmod(0o755)
        runs = Runs(Path(name))
        try:
            yield runs
        finally:
            runs.end()


def section(out: str, title: str) -> str:
    """The part of the output below a title, up to the next empty line."""
    return out.split(f"\n{title}")[1].split("\n\n")[0]


def bandwidth_mbps(out: str) -> dict[str, float | None]:
    """Node -> the bandwidth in the table of what the agents measure."""
    found: dict[str, float | None] = {}
    for line in section(out, "What the agents measure on each node").splitlines():
        cells = line.replace(">= ", ">=").split()
        if len(cells) > 7 and cells[1] == "online":
            shown = cells[7].removeprefix(">=")
            found[cells[0]] = None if shown == "-" else float(shown)
    return found


def test_in_the_lab_the_pods_go_where_the_bandwidth_is(start: Runs) -> None:
    run = start(RUN)
    assert run.wait() == 0, run.out + run.err
    assert "Where netsched put 10 pods: 10 on n4\n" in run.out
    measured = bandwidth_mbps(run.out)
    assert set(measured) == {"n1", "n2", "n3", "n4", "server"}
    fourth = measured["n4"]
    assert fourth is not None
    for throttled in ("n1", "n2", "n3"):
        other = measured[throttled]
        assert other is not None
        # Their links have 4 Mbit/s; a burst of the shaper counts in a test of 64 KiB.
        assert 0 < other < 5 < fourth
    why = section(run.out, "Why default/web-1 is where it is")
    assert why.splitlines()[1] == "default/web-1 -> n4"
    assert re.search(r"^best in .*bandwidth", why, flags=re.MULTILINE)
    assert "Where dacs put 6 pods: " in run.out
    assert "nowhere" not in run.out
    assert run.left_over() == []


def test_without_a_lab_all_boards_are_this_machine(start: Runs) -> None:
    run = start([*RUN, "--local"])
    assert run.wait() == 0, run.err
    boards = {f"board-{number}" for number in range(1, 5)}
    measured = bandwidth_mbps(run.out)
    assert set(measured) == {*boards, "server"}
    assert all(value is not None and value > 0 for value in measured.values())
    assert "unknown" not in run.err
    assert "Where netsched put 10 pods: " in run.out
    assert "Where dacs put 6 pods: " in run.out
    assert run.left_over() == []


def test_nobody_without_icmp_and_iperf3_is_told_what_stays_unknown(
    start: Runs, tmp_path: Path
) -> None:
    run = start(as_nobody_without_icmp_and_iperf3(RUN, tmp_path))
    assert run.wait() == 0, run.err
    lines = run.err.splitlines()
    assert lines[0].startswith("without a lab, as the lab needs root")
    assert any(line.startswith("iperf3 is not here: bandwidth stays unknown") for line in lines)
    assert any(line.startswith("ICMP is not permitted here") for line in lines)
    measured = bandwidth_mbps(run.out)
    assert set(measured) == {"board-1", "board-2", "board-3", "board-4", "server"}
    assert set(measured.values()) == {None}
    trips = section(run.out, "Round trips between nodes, ms").splitlines()[2:]
    assert len(trips) == 5
    for row in trips:
        assert row.count("<=") == 4, "each is only known not to be longer"
    assert "Where netsched put 10 pods: " in run.out
    assert "nowhere" not in run.out
    assert run.left_over() == []


@pytest.mark.parametrize("local", [True, False], ids=["local", "lab"])
def test_ctrl_c_in_the_middle_leaves_nothing_behind(start: Runs, local: bool) -> None:
    run = start([*RUN, "--local"] if local else RUN)
    eventually(lambda: run.err, lambda err: "measuring the boards" in err, "the story begins")
    run.send_to_group(signal.SIGINT)
    assert run.wait() == 130
    assert "Traceback" not in run.err
    assert run.left_over() == []


def test_a_lab_that_is_just_being_built_can_be_interrupted(start: Runs) -> None:
    run = start(RUN)
    eventually(lambda: list(RUN_DIR.glob("demo/state.json")), bool, "the lab is on record")
    run.send_to_group(signal.SIGINT)
    assert run.wait() == 130
    assert "Traceback" not in run.err
    assert run.left_over() == []


@pytest.mark.parametrize("local", [True, False], ids=["local", "lab"])
def test_sigterm_to_the_command_alone_ends_all_of_it(start: Runs, local: bool) -> None:
    run = start([*RUN, "--local"] if local else RUN)
    eventually(lambda: run.err, lambda err: "measuring the boards" in err, "the story begins")
    run.send(signal.SIGTERM)
    assert run.wait() == 130
    assert "Traceback" not in run.err
    assert run.left_over() == []


def asked(what: str, address: str) -> dict[str, Any]:
    """What `leadline` answers with the controller at this address."""
    argv = [*RUN[:3], what, "-o", "json", "--address", address]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_demo_that_is_kept_answers_until_ctrl_c(start: Runs) -> None:
    run = start([*RUN, "--local", "--keep"])
    eventually(lambda: run.out, lambda out: "Ctrl-C ends it." in out, "it is told", timeout_s=300)
    (address,) = re.findall(r"export LEADLINE_ADDRESS=(\S+)", run.out)
    before = {each["pod"] for each in asked("placements", address)["placements"]}
    assert "default/web-1" in before
    eventually(
        lambda: {
            each["pod"]: each["outcome"] for each in asked("placements", address)["placements"]
        },
        lambda now: now.keys() > before and now["default/web-1"] == "deleted",
        "a pod comes and the oldest goes",
        timeout_s=300,
    )
    run.send_to_group(signal.SIGINT)
    assert run.wait() == 0
    assert "Traceback" not in run.err
    assert run.left_over() == []


def test_a_lab_in_use_is_not_destroyed_by_another_run(start: Runs) -> None:
    first = start(RUN)
    eventually(lambda: first.err, lambda err: "measuring the boards" in err, "the story begins")
    second = start(RUN)
    assert second.wait() == 1
    assert "lab demo is in use: end it with leadline lab down demo" in second.err
    first.send_to_group(signal.SIGINT)
    assert first.wait() == 130
    assert first.left_over() == []


def test_up_status_down(start: Runs, tmp_path: Path) -> None:
    name = fresh_name()
    spec = tmp_path / "boards.toml"
    boards = '[{name = "a", rate_mbps = 5}, {name = "b", delay_ms = 10}]'
    spec.write_text(f'name = "{name}"\nboards = {boards}\n')

    def lab(*arguments: str) -> tuple[int, str, str]:
        run = start([*RUN[:-1], *arguments])
        return run.wait(), run.out, run.err

    try:
        assert lab("status", name)[0] == 1
        code, out, _ = lab("up", "--spec", str(spec))
        assert code == 0
        assert f"leadline lab down {name}" in out
        address = f"unix:{RUN_DIR / name / 'controller.sock'}"
        assert f"export LEADLINE_ADDRESS={address}\n" in out
        eventually(
            lambda: {each["name"]: each["agent"] for each in asked("nodes", address)["nodes"]},
            lambda agents: agents == dict.fromkeys(("a", "b", "server"), "online"),
            "all boards are online",
        )
        eventually(
            lambda: asked("placements", address)["placements"],
            lambda placed: {each["node"] for each in placed} & {"a", "b"},
            "pods are placed",
            timeout_s=300,
        )
        code, _, err = lab("up", "--spec", str(spec))
        assert code == 1
        assert "exists already" in err
        code, out, _ = lab("status", name, "-o", "json")
        status = json.loads(out)
        assert (code, status["lab"], status["complete"]) == (0, name, True)
        assert [host["host"] for host in status["hosts"]] == ["a", "b", "server"]
        assert [host["rate_mbps"] for host in status["hosts"]] == [5, None, None]
        running = {
            process: ok for host in status["hosts"] for process, ok in host["processes"].items()
        }
        parts = ("agent-a", "agent-b", "agent-server", "broker", "controller")
        assert running == dict.fromkeys(parts, True)
        assert status["controller"] == address
        code, out, _ = lab("status", name)
        assert "5 Mbit/s" in out
    finally:
        ended = lab("down", name)
    assert ended == (0, "", "")
    assert lab("status", name)[0] == 1
    assert lab("down", name)[0] == 0
    assert list(Path("/run/netns").glob(f"leadline-{name}-*")) == []
    assert not (RUN_DIR / name).exists()

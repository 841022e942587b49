"""The demo as a newcomer runs it: its output, and that it leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline_lab.state import RUN_DIR

from tests.lab.inventory import fresh_name
from tests.system.confined import as_nobody, without_iperf3
from tests.system.daemons import eventually
from tests.system.demo import RUN, Run

pytestmark = pytest.mark.network


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


def race(out: str) -> dict[str, list[tuple[int, float]]]:
    """Board, or "all" -> by each scheduler its pods and after how many seconds they had sent."""
    rows = (line.split() for line in section(out, "How long 10 pods").splitlines()[3:])
    found = {}
    for name, *cells in rows:
        text = " ".join(cells)
        found[name] = [
            (int(pods or 0), float(seconds or 0.0))
            for pods, seconds in re.findall(r"(?:(\d+) pods?, )?([\d.]+) s|-", text)
        ]
    return found


def check_outcome(out: str) -> None:
    """Leadline's pods are on n4 and have sent long before those of kube-scheduler's rule."""
    assert re.search(r"^web-1 to web-10 +n4 ", section(out, "Where netsched put"), re.MULTILINE)
    why = section(out, "Why default/web-1 is where it is")
    assert why.splitlines()[1] == "default/web-1 -> n4"
    assert re.search(r"^best in .*bandwidth", why, flags=re.MULTILINE)
    assert "none" not in section(out, "Where dacs put 6 pods")
    measured = bandwidth_mbps(out)
    assert set(measured) == {"n1", "n2", "n3", "n4", "server"}
    fourth = measured["n4"]
    assert fourth is not None
    for name in ("n1", "n2", "n3"):
        other = measured[name]
        assert other is not None
        # Their links have 4 Mbit/s; a burst of the shaper counts in a test of 64 KiB.
        assert 0 < other < 5 < fourth
    took = race(out)
    boards = [took[name] for name in ("n1", "n2", "n3", "n4")]
    assert sorted(kube[0] for kube, _ in boards) == [2, 2, 3, 3]
    assert [ours[0] for _, ours in boards] == [0, 0, 0, 10]
    (_, kube_s), (_, ours_s) = took["all"]
    # Three pods of 1.2 MB at 4 Mbit/s; what a shaper lets pass at once is no more than a tenth.
    assert kube_s >= 0.9 * 7.2
    assert ours_s < kube_s / 3


def test_in_the_lab_the_pods_go_where_the_bandwidth_is(start: Runs) -> None:
    run = start(RUN)
    assert run.wait() == 0, run.out + run.err
    check_outcome(run.out)
    assert run.left_over() == []


@pytest.mark.smoke
@pytest.mark.parametrize("who", ["root", "nobody"])
def test_without_a_lab_the_same_boards_are_played(start: Runs, tmp_path: Path, who: str) -> None:
    run = start([*RUN, "--local"] if who == "root" else as_nobody(RUN, tmp_path))
    assert run.wait() == 0, run.err
    (line,) = run.err.splitlines()
    assert re.fullmatch(r"without a lab \(.*\): its boards and links are played", line)
    check_outcome(run.out)
    assert run.left_over() == []


def test_without_iperf3_the_demo_says_what_stays_unknown(start: Runs, tmp_path: Path) -> None:
    run = start(without_iperf3(RUN, tmp_path))
    assert run.wait() == 0, run.err
    assert "iperf3 is not here: bandwidth stays unknown" in run.err
    assert set(bandwidth_mbps(run.out).values()) == {None}
    assert race(run.out)["all"][0][1] > 0
    assert run.left_over() == []


@pytest.mark.parametrize("local", [True, False], ids=["local", "lab"])
def test_ctrl_c_in_the_middle_leaves_nothing_behind(start: Runs, local: bool) -> None:
    run = start([*RUN, "--local"] if local else RUN)
    eventually(lambda: run.out, lambda out: "the map" in out, "the story begins")
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
    eventually(lambda: run.out, lambda out: "the map" in out, "the story begins")
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

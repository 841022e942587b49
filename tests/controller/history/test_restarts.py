"""Recorded decisions survive a kill of the controller at any moment, and a power cut."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.ports import Relisted
from leadline_controller.history import times
from leadline_controller.history.log import BOUND, GONE, PENDING
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller

from tests.controller.history.decision_builder import decision, names
from tests.support.memory_cluster import MemoryCluster
from tests.support.ports import free_port
from tests.support.processes import frozen

pytestmark = pytest.mark.slow


class Worker:
    """tests.controller.history.worker as a process."""

    def __init__(self, path: Path, name: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        command = [
            sys.executable,
            "-m",
            "tests.controller.history.worker",
            str(path),
            self.address,
        ]
        self._process = subprocess.Popen(
            [*command, name],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def wait_for(self, word: str, times: int = 1) -> str:
        """Read lines until this one begins with the word for the last time; returns its rest."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            times -= line.startswith(word)
            if not times:
                return line.removeprefix(word).strip()
        raise AssertionError(f"the worker ended before it printed {word!r}")

    def frozen(self) -> AbstractContextManager[None]:
        """Stop the process during a block, so that its files are those of one moment."""
        return frozen(self._process)

    def kill(self) -> int:
        """Kill it. Returns the number of kept decisions that it printed last."""
        self._process.kill()
        self._process.wait()
        output = self._process.stdout
        lines = [] if output is None or output.closed else output.readlines()
        if output is not None:
            output.close()
        return max([0, *(int(line.split()[1]) for line in lines if line.startswith("kept "))])


@contextmanager
def worker(path: Path, name: str = "") -> Iterator[Worker]:
    """A worker for the duration of a block. name: of the pods that it places; "" for none."""
    started = Worker(path, name)
    try:
        started.wait_for("answering")
        yield started
    finally:
        started.kill()


def leadline(capsys: pytest.CaptureFixture[str], address: str, *arguments: str) -> Any:
    code = run([*arguments, "-o", "json", "--address", address])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return json.loads(captured.out)


def without_ages(decision: dict[str, Any]) -> dict[str, Any]:
    """The fields that do not depend on the time of the request. The time of the decision may differ
    by a second, as clocks are rounded."""
    kept = {name: x for name, x in decision.items() if name not in ("age_s", "first_age_s", "time")}
    if "earlier" in kept:
        kept["earlier"] = [without_ages(each) for each in kept["earlier"]]
    return kept


def pods_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return []  # the tables had not been written
        return [pod for (pod,) in connection.execute("SELECT pod FROM decisions ORDER BY id")]


def pods_kept(path: Path) -> list[str]:
    """The pods that a controller finds when it opens the file, which may lack even the tables."""
    store = Store(HistorySettings(path), times.now)
    found = names(store)
    store.close()
    assert pods_in(path) == [f"default/{name}" for name in found]
    return pods_in(path)


def numbers(pods: list[str], name: str = "p") -> list[int]:
    prefix = f"default/{name}"
    return sorted(int(pod.removeprefix(prefix)) for pod in pods if pod.startswith(prefix))


def test_after_a_kill_the_next_process_explains_as_this_one_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.db"
    with worker(path, "p") as first:
        first.wait_for("kept", times=3)
        before = {
            pod: leadline(capsys, first.address, "explain", pod) for pod in ("default/p3", "huge")
        }
    with worker(path) as second:
        after = {pod: leadline(capsys, second.address, "explain", pod) for pod in before}
        listed = leadline(capsys, second.address, "placements", "--since", "1h")["placements"]
    placed, stuck = after["default/p3"], after["huge"]
    assert placed["node"] in placed["scores"]
    assert placed["outcome"] == "deleted"  # neither cluster has such a pod
    assert set(placed["scores"]) == {"n1", "n2", "small"}
    assert without_ages(placed) == without_ages(before["default/p3"])
    assert placed["age_s"] > before["default/p3"]["age_s"]
    assert abs(_unix_s(placed["time"]) - _unix_s(before["default/p3"]["time"])) <= 1
    assert (stuck["node"], stuck["outcome"]) == (None, "gone")  # the second cluster has no such pod
    assert stuck["rejected"] == before["huge"]["rejected"]
    assert stuck["rejected_by_filter"] == {"NodeResourcesFit": 3}
    placements = {each["pod"]: each for each in listed}
    assert without_ages(placements["default/p3"]).items() <= without_ages(placed).items()
    ages = [each["age_s"] for each in listed]
    assert ages == sorted(ages, reverse=True)


def _unix_s(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp())


def test_a_decision_that_is_younger_than_asked_is_listed_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.db"
    with worker(path, "p") as first:
        first.wait_for("kept")
    with worker(path) as second:
        everything = leadline(capsys, second.address, "placements")["placements"]
        youngest = min(each["age_s"] for each in everything)
        span = f"{youngest / 2:.3f}s"
        assert leadline(capsys, second.address, "placements", "--since", span)["placements"] == []
        assert leadline(capsys, second.address, "placements", "--since", "2h")["placements"] != []


def test_repeated_kills_lose_nothing_that_was_stored(tmp_path: Path) -> None:
    path, chance = tmp_path / "d.db", Random(5)
    kept: dict[str, int] = {}
    for name in ("a", "b", "c"):
        with worker(path, name) as running:
            count = int(running.wait_for("kept", times=chance.randrange(1, 6)))
            kept[name] = max(count, running.kill())
        for each, count in kept.items():
            found = numbers(pods_in(path), each)
            assert found == list(range(len(found)))
            assert len(found) >= count


def test_after_a_power_cut_the_file_has_a_sound_beginning(tmp_path: Path) -> None:
    """Copies of the files at one moment, without the journal's last bytes or with random ones."""
    path, chance = tmp_path / "d.db", Random(6)
    lengths = set()
    with worker(path, "p") as running:
        for case in range(12):
            running.wait_for("kept", times=chance.randrange(1, 4))
            copy = tmp_path / str(case)
            copy.mkdir()
            with running.frozen():
                for ending in ("", "-wal"):
                    shutil.copy(f"{path}{ending}", copy)
            journal = (copy / "d.db-wal").read_bytes()
            lost = chance.choice([0, chance.randrange(len(journal) + 1)])
            noise = chance.randbytes(lost) if case % 2 else b""
            (copy / "d.db-wal").write_bytes(journal[: len(journal) - lost] + noise)
            survived = numbers(pods_kept(copy / "d.db"))
            assert survived == list(range(len(survived)))
            lengths.add(len(survived))
    assert len(lengths) > 3


def test_after_a_power_cut_the_controller_continues_with_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = tmp_path / "d.db", tmp_path / "after" / "d.db"
    copy.parent.mkdir()
    with worker(path, "p") as running:
        running.wait_for("kept", times=5)
        with running.frozen():
            shutil.copy(path, copy)
            journal = path.with_name("d.db-wal").read_bytes()
    copy.with_name("d.db-wal").write_bytes(journal[: len(journal) * 2 // 3])
    with worker(copy) as next_one:
        listed = leadline(capsys, next_one.address, "placements")["placements"]
        assert len(listed) > 5
        youngest = leadline(capsys, next_one.address, "explain", listed[-1]["pod"])
        assert youngest["scores"] or youngest["rejected"]


def test_a_controller_that_is_stopped_has_written_everything(tmp_path: Path) -> None:
    async def decide_and_stop() -> None:
        settings = Settings(decisions=HistorySettings(tmp_path / "d.db"))
        controller = Controller(settings, MemoryCluster())
        async with controller.storing_decisions():
            for i in range(100):
                controller.decisions.add(decision(f"p{i}"), controller.clock.now_s(), PENDING, {})

    asyncio.run(decide_and_stop())
    assert numbers(pods_in(tmp_path / "d.db")) == list(range(100))
    assert not (tmp_path / "d.db-wal").exists()


def test_the_next_run_sets_the_outcomes_of_old_pending_decisions(tmp_path: Path) -> None:
    """Also after many later decisions, and if others bound or deleted the pod meanwhile."""
    settings = Settings(decisions=HistorySettings(tmp_path / "d.db"))
    names = ("here", "elsewhere", "deleted", "waiting")

    async def decide() -> None:
        controller = Controller(settings, MemoryCluster())
        async with controller.storing_decisions():
            for name in names:
                controller.decisions.add(decision(name), controller.clock.now_s(), PENDING, {})
            for i in range(400):
                controller.decisions.add(decision(f"p{i}"), controller.clock.now_s(), BOUND, {})

    async def outcomes() -> list[str]:
        nodes = {"here": "n1", "elsewhere": "n2", "waiting": None}
        pods = [replace(decision(name).pod, node_name=node) for name, node in nodes.items()]
        controller = Controller(settings, MemoryCluster())
        async with controller.storing_decisions():
            controller.decisions.observe(Relisted((), tuple(pods)))
        async with controller.storing_decisions():
            return [
                (await controller.history.about(f"default/{name}"))[0].outcome for name in names
            ]

    asyncio.run(decide())
    assert asyncio.run(outcomes()) == [BOUND, "failed: the pod is on n2", GONE, PENDING]

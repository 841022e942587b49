"""A new filter or strategy needs one file and one line in the registry, and nothing else."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pytest
from leadline_controller import filters
from leadline_controller.cli.__main__ import run
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.plugin import (
    Better,
    ClusterEvent,
    ClusterView,
    FilterResult,
    Ints,
    Scores,
    best,
    option,
)
from leadline_controller.settings import Settings
from leadline_controller.strategies import STRATEGIES
from leadline_controller.wiring import Controller, scheduling_rule

from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

RETRIED_AFTER_S = 30.0  # more than the longest back-off

# What would be one file in filters/.

asked: list[str] = []


def quiet_node(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes without the label `quiet`."""
    asked.append(pod.name)
    passes = np.array(["quiet" not in node.labels for node in view.nodes], dtype=np.bool_)
    return FilterResult(passes, lambda _: "the node is quiet", requeue_on=ClusterEvent.LABELS)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line in FILTERS."""
    asked.clear()
    monkeypatch.setitem(cast(MutableMapping[str, Filter], FILTERS), "QuietNode", quiet_node)


def node(cpu: int, **labels: str) -> Node:
    return Node("n", allocatable={CPU: cpu, MEMORY: 2**30, PODS: 110}, labels=labels)


@pytest.mark.usefixtures("registered")
async def test_a_filter_decides_in_the_scheduler_and_its_hint_says_when_to_ask_again() -> None:
    cluster, clock = MemoryCluster([node(1000, quiet="yes")]), ManualClock()
    controller = Controller(Settings(warm_up_s=0.0), cluster, clock=clock)
    cluster.put_pod(Pod("default", "p", uid="p", requests={CPU: 1, PODS: 1}))
    assert controller.scheduler is not None
    scheduling = asyncio.create_task(controller.scheduler.run())
    try:
        await clock.advance(0)
        assert [e.event.message for e in cluster.events] == ["0 of 1 nodes fit: 1 QuietNode"]
        assert asked == ["p"]
        cluster.put_node(node(2000, quiet="yes"))  # more room does not help
        await clock.advance(RETRIED_AFTER_S)
        assert asked == ["p"]
        cluster.put_node(node(2000))
        await clock.advance(RETRIED_AFTER_S)
        assert cluster.pod("default/p").node_name == "n"
    finally:
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)


@pytest.mark.usefixtures("registered")
def test_a_filter_decides_in_leadline_score(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    snapshot = tmp_path / "cluster.json"
    nodes = [{"name": "loud"}, {"name": "still", "labels": {"quiet": "yes"}}]
    pods = [{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}]
    kind = {"apiVersion": "leadline.dev/v1", "kind": "ClusterSnapshot"}
    snapshot.write_text(json.dumps({**kind, "nodes": nodes, "pods": pods}))
    assert run(["score", "--snapshot", str(snapshot), "-o", "json"]) == 0
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert decision["node"] == "loud"
    assert decision["rejected"] == {"still": ["QuietNode: the node is quiet"]}


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_a_file_that_no_other_filter_imports(name: str) -> None:
    room = filters.__name__
    module = FILTERS[name].__module__
    assert [each for each, known in FILTERS.items() if known.__module__ == module] == [name]
    assert module == f"{room}.{FILTERS[name].__name__}"
    values = vars(importlib.import_module(module)).values()
    origins = {getattr(value, "__module__", None) or "" for value in values}
    assert {origin for origin in origins if origin.startswith(room)} == {module}


# What would be one file in strategies/.


@dataclass(frozen=True, slots=True)
class Last:
    """The last node by name. Unknown: nothing can be."""

    name: ClassVar[str] = "last"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "none"
    needs: ClassVar[tuple[str, ...]] = ()
    step: float = option(1.0, unit="points", help="from one node to the next")

    def score(self, _: ClusterView, __: Pod, candidates: Ints) -> Scores:
        total = candidates.astype(np.float64) * self.step
        return Scores(candidates, total, best(total, self.better), lambda _: "the last")

    def charge(self, _: ClusterView, pod: Pod, __: int) -> Mapping[str, int]:
        return pod.requests


def test_a_strategy_is_one_line_in_the_registry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = {"last": f"{__name__}:Last", **STRATEGIES.built_in}
    monkeypatch.setattr(STRATEGIES, "built_in", registry)
    assert run(["strategies"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in ("last", "step", "from one node to the next", "points"))
    settings = Settings(strategy="last", options={"step": 3})
    assert scheduling_rule(settings).strategy == Last(step=3.0)

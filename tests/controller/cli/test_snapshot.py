"""`leadline snapshot`, and `leadline score` on what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.ports import PodChanged

from tests.controller.cli.calling import Leadline, Outcome
from tests.controller.inspect.harness import ControllerHarness, pod

Capture = pytest.CaptureFixture[str]


async def written(leadline: Leadline, *options: str) -> str:
    shown: Outcome = await leadline("snapshot", *options)
    assert (shown.code, shown.err) == (0, "")
    return shown.out


def scored(capsys: Capture, file: Path, *options: str) -> dict[str, Any]:
    run(["score", "--snapshot", str(file), "-o", "json", *options])
    captured = capsys.readouterr()
    assert captured.err == ""
    found: dict[str, Any] = json.loads(captured.out)
    return found


async def test_yaml_and_json_are_the_same_document(leadline: Leadline) -> None:
    as_yaml, as_json = await written(leadline), await written(leadline, "-o", "json")
    document = yaml.safe_load(as_yaml)
    assert document == json.loads(as_json)
    assert document["kind"] == "ClusterSnapshot"
    assert [each["name"] for each in document["nodes"]] == ["n1", "n2", "n3"]
    assert document["nodes"][0]["metrics"]["cpu_percent"] == 12.5
    assert document["nodes"][0]["metric_ages_s"]["cpu_percent"] == pytest.approx(13.0)
    assert document["rule"]["strategy"] == "netsched"


async def test_score_takes_the_rule_and_decides_as_the_controller(
    harness: ControllerHarness, leadline: Leadline, capsys: Capture, tmp_path: Path
) -> None:
    new = pod("new", scheduler_name=harness.source.scheduler_name)
    harness.cluster.apply(PodChanged(new))
    file = tmp_path / "cluster.yaml"
    file.write_text(await written(leadline))
    decision = harness.place(new)
    found = scored(capsys, file)
    assert found["strategy"] == "netsched"
    assert {each["pod"]: each["node"] for each in found["decisions"]}["default/new"] == "n1"
    assert decision.node == "n1"
    totals = next(each["scores"] for each in found["decisions"] if each["pod"] == "default/new")
    assert {node: each["total"] for node, each in totals.items()} == {
        node: total for node, (total, _) in decision.scores().items()
    }


async def test_an_anonymous_one_has_no_names(leadline: Leadline) -> None:
    text = await written(leadline, "--anonymize", "-o", "json")
    document = json.loads(text)
    assert [each["name"] for each in document["nodes"]] == ["node-1", "node-2", "node-3"]
    for name in ('"n1"', '"web-1"', "default"):
        assert name not in text


async def test_only_the_pods_of_its_scheduler_wait(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    harness.cluster.apply(PodChanged(pod("other", scheduler_name="default-scheduler")))
    document = json.loads(await written(leadline, "-o", "json"))
    assert "other" not in [each["metadata"]["name"] for each in document["pods"]]


async def test_before_the_cluster_is_listed_there_is_none(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    harness.cluster.listed = False
    shown = await leadline("snapshot")
    assert (shown.code, shown.out) == (1, "")
    assert "has not listed its nodes and pods yet" in shown.err


async def test_a_large_one_comes_in_parts(leadline: Leadline, harness: ControllerHarness) -> None:
    for number in range(2000):
        harness.cluster.apply(
            PodChanged(pod(f"many-{number}", node_name="n1", labels={"app": f"a{number}" * 20}))
        )
    text = await written(leadline, "-o", "json")
    assert len(text) > 2 * 256 * 1024
    assert len(json.loads(text)["pods"]) > 2000


# What `leadline score` makes of a snapshot's rule.


@pytest.fixture
def ruled(tmp_path: Path) -> Path:
    """Two nodes, of which netsched with its weights takes one and kube-default the other."""
    busy = {"cpu_percent": 90, "memory_percent": 90, "bandwidth_mbps": 1}
    idle = {"cpu_percent": 1, "memory_percent": 1, "bandwidth_mbps": 100}
    document = {
        "apiVersion": "leadline.dev/v1",
        "kind": "ClusterSnapshot",
        "rule": {
            "strategy": "dacs",
            "options": {"alpha": 0.25},
            "preferences": "on",
            "letter": True,
            "assumed_load": False,
            "seed": 5,
        },
        "nodes": [
            {"name": "a", "allocatable": {"cpu": "8", "memory": "8Gi"}, "metrics": busy},
            {"name": "b", "allocatable": {"cpu": "4", "memory": "4Gi"}, "metrics": idle},
        ],
        "pods": [{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}],
    }
    file = tmp_path / "ruled.json"
    file.write_text(json.dumps(document))
    return file


def test_the_rule_of_the_snapshot_is_the_default(capsys: Capture, ruled: Path) -> None:
    found = scored(capsys, ruled)
    assert (found["strategy"], found["options"]["alpha"]) == ("dacs", 0.25)


def test_explicit_options_win(capsys: Capture, ruled: Path) -> None:
    found = scored(capsys, ruled, "--option", "alpha=0.75")
    assert (found["strategy"], found["options"]["alpha"]) == ("dacs", 0.75)
    other = scored(capsys, ruled, "--strategy", "kube-default")
    assert other["strategy"] == "kube-default"
    assert "alpha" not in other["options"]
    same = scored(capsys, ruled, "--strategy", "dacs")
    assert same["options"]["alpha"] == 0.25


def test_a_strategy_that_is_not_installed_is_named(capsys: Capture, ruled: Path) -> None:
    ruled.write_text(ruled.read_text().replace('"dacs"', '"own"'))
    assert run(["score", "--snapshot", str(ruled)]) == 2
    said = capsys.readouterr().err
    assert "rule.strategy: no strategy 'own' here" in said
    assert "--strategy" in said
    assert said.count("\n") == 1

"""Errors in a snapshot, under every strategy: one line, or a pod that stays pending with a reason.
Never a traceback, and never half of an answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.options import options_of
from leadline_controller.strategies import STRATEGIES

Capture = pytest.CaptureFixture[str]
Document = dict[str, Any]
Spoil = Callable[[Document], None]

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def pod(name: str, **annotations: str) -> Document:
    given = {f"leadline.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}}
    return {
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": given},
        "spec": {"containers": [{"name": "app", "image": "web:1", "resources": resources}]},
    }


GOOD: Document = {
    "apiVersion": "leadline.dev/v1",
    "kind": "ClusterSnapshot",
    "nodes": [
        {
            "name": name,
            "tier": tier,
            "allocatable": {"cpu": "4", "memory": "4Gi"},
            "requested": {"cpu": "1", "memory": "1Gi", "pods": 1},
            "bandwidth_mbps": 100,
            "bandwidth_requested_mbps": 10,
            "metrics": {"cpu_percent": 20.0, "bandwidth_mbps": 90.0},
            "image_layers": ["sha256:a"],
            "pulling_mb": 10,
            "registry_mbps": 50,
        }
        for name, tier in (("n1", "edge"), ("n2", "edge"), ("n3", "cloud"))
    ],
    "links": [{"a": "n1", "b": "n2", "rtt_ms": 5, "bandwidth_mbps": 90}],
    "images": [{"name": "web:1", "layers": [{"digest": "sha256:a", "size_mb": 30}]}],
    "pods": [
        {
            **pod("running"),
            "spec": {**pod("running")["spec"], "nodeName": "n1"},
        },
        pod("web-1", user_node="n1", profile_ms='{"n1": 5}'),
        pod("web-2"),
    ],
}


def put(value: object, *path: str | int) -> Spoil:
    """Sets the value at this path."""

    def spoil(document: Document) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return spoil


def drop(*keys: str) -> Spoil:
    """Removes these fields from every node."""

    def spoil(document: Document) -> None:
        for node in document["nodes"]:
            for key in keys:
                node.pop(key)

    return spoil


def of_every_node(**fields: object) -> Spoil:
    """Sets these fields of every node."""

    def spoil(document: Document) -> None:
        for node in document["nodes"]:
            node |= fields

    return spoil


def scored(
    capsys: Capture, folder: Path, strategy: str, spoil: Spoil, *arguments: str
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    document = json.loads(json.dumps(GOOD))  # cheaper than a deep copy
    spoil(document)
    file = folder / "cluster.json"
    file.write_text(json.dumps(document))
    code = run(["score", "--snapshot", str(file), "--strategy", strategy, "-o", "json", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def nothing(_: Document) -> None:
    pass


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


INCOMPLETE: dict[str, Spoil] = {
    "nothing wrong": nothing,
    "no metrics": drop("metrics"),
    "no tiers": drop("tier"),
    "no edge": of_every_node(tier="cloud"),
    "no cloud": of_every_node(tier="edge"),
    "no bandwidth": drop("bandwidth_mbps", "bandwidth_requested_mbps"),
    "no layers": drop("registry_mbps", "pulling_mb", "image_layers"),
    "no links": put([], "links"),
    "no images": put([], "images"),
    "next to nothing": drop("metrics", "tier", "bandwidth_mbps", "registry_mbps", "requested"),
    "a node without metrics": put({}, "nodes", 1, "metrics"),
    "a link without values": put({"a": "n1", "b": "n2"}, "links", 0),
    "a dead link": put(0, "nodes", 0, "bandwidth_mbps"),
    "a dead registry link": put(0, "nodes", 0, "registry_mbps"),
    "an empty layer": put(0, "images", 0, "layers", 0, "size_mb"),
    "an unknown image": put("unheard-of:1", "pods", 1, "spec", "containers", 0, "image"),
}


@every_strategy
@pytest.mark.parametrize("case", INCOMPLETE)
def test_missing_data_is_unknown_and_every_pod_is_placed(
    capsys: Capture, tmp_path: Path, strategy: str, case: str
) -> None:
    code, out, err = scored(capsys, tmp_path, strategy, INCOMPLETE[case])
    assert (code, err) == (0, "")
    decisions = json.loads(out, parse_constant=no_constant)["decisions"]
    assert [decision["pod"] for decision in decisions] == ["default/web-1", "default/web-2"]
    assert all(decision["node"] for decision in decisions)


BAD: dict[str, tuple[Spoil, str]] = {
    "a link to an unknown node": (put("n9", "links", 0, "b"), "links[0].b"),
    "a pod on an unknown node": (put("n9", "pods", 0, "spec", "nodeName"), "pods[0].spec.nodeName"),
    "a link to itself": (put("n1", "links", 0, "b"), "links[0].b"),
    "the same node twice": (put("n1", "nodes", 1, "name"), "nodes[1].name"),
    "a pod twice": (put("web-1", "pods", 2, "metadata", "name"), "pods[2].metadata.name"),
    "negative CPU": (put("-1", "nodes", 0, "allocatable", "cpu"), "nodes[0].allocatable"),
    "negative use": (put("-1", "nodes", 0, "requested", "memory"), "nodes[0].requested"),
    "negative bandwidth": (put(-1, "nodes", 0, "bandwidth_mbps"), "nodes[0].bandwidth_mbps"),
    "negative promise": (
        put(-1, "nodes", 0, "bandwidth_requested_mbps"),
        "nodes[0].bandwidth_requested_mbps",
    ),
    "a negative metric": (
        put(-1, "nodes", 0, "metrics", "cpu_percent"),
        "nodes[0].metrics.cpu_percent",
    ),
    "more than all of the CPU": (
        put(101, "nodes", 0, "metrics", "cpu_percent"),
        "nodes[0].metrics.cpu_percent",
    ),
    "an unknown metric": (put(1, "nodes", 0, "metrics", "cpus"), "nodes[0].metrics"),
    "a negative round trip": (put(-1, "links", 0, "rtt_ms"), "links[0].rtt_ms"),
    "a negative queue": (put(-1, "nodes", 0, "pulling_mb"), "nodes[0].pulling_mb"),
    "a negative registry": (put(-1, "nodes", 0, "registry_mbps"), "nodes[0].registry_mbps"),
    "a negative layer": (
        put(-1, "images", 0, "layers", 0, "size_mb"),
        "images[0].layers[0].size_mb",
    ),
    "negative traffic": (
        put({"flowing": [{"node": "n1", "mbps": -1}]}, "traffic"),
        "traffic.flowing[0].mbps",
    ),
    "traffic of nobody": (
        put({"workloads": [{"namespace": "x", "peer": []}]}, "traffic"),
        "traffic.workloads[0].peer",
    ),
    "a peer's negative traffic": (
        put(
            {"workloads": [{"namespace": "x", "peers": [{"node": "n1", "name": "y", "mbps": -1}]}]},
            "traffic",
        ),
        "traffic.workloads[0].peers[0]",
    ),
    "an unknown tier": (put("fog", "nodes", 0, "tier"), "nodes[0].tier"),
    "a number that is none": (put("much", "links", 0, "rtt_ms"), "links[0].rtt_ms"),
    "a negative request": (
        put("-1", "pods", 1, "spec", "containers", 0, "resources", "requests", "cpu"),
        "pods[1].spec.containers[0].resources.requests",
    ),
    "no nodes at all": (lambda document: document.pop("nodes"), "nodes"),
}


# The file is read before any strategy sees it; one that plans batches is read for as the others.
@pytest.mark.parametrize("strategy", ["dacs", "kubedsm"])
@pytest.mark.parametrize("case", BAD)
def test_a_wrong_snapshot_is_one_line_and_exit_code_2(
    capsys: Capture, tmp_path: Path, strategy: str, case: str
) -> None:
    spoil, field = BAD[case]
    code, out, err = scored(capsys, tmp_path, strategy, spoil)
    assert (code, out) == (2, ""), "nothing half done"
    assert err.startswith(f"leadline: {tmp_path / 'cluster.json'}: {field}")
    assert err.count("\n") == 1


PENDING: dict[str, tuple[Spoil, str]] = {
    "no room anywhere": (
        put("64", "pods", 1, "spec", "containers", 0, "resources", "requests", "cpu"),
        "0 of 3 nodes fit: 3 NodeResourcesFit",
    ),
    "no bandwidth anywhere": (
        put("500", "pods", 1, "metadata", "annotations", "leadline.dev/bandwidth-mbps"),
        "0 of 3 nodes fit: 3 NodeBandwidthFit",
    ),
    "negative data": (
        put("-1", "pods", 1, "metadata", "annotations", "leadline.dev/data-mb"),
        "annotation leadline.dev/data-mb: expected a number from 0 to 1e+12, got",
    ),
    "a negative profile": (
        put('{"n1": -5}', "pods", 1, "metadata", "annotations", "leadline.dev/profile-ms"),
        "annotation leadline.dev/profile-ms: 'n1': expected a number from 0",
    ),
    "a threshold that is none": (
        put("soon", "pods", 1, "metadata", "annotations", "leadline.dev/response-time-ms"),
        "annotation leadline.dev/response-time-ms: expected a number from 0",
    ),
    "a share above 1": (
        put("1.5", "pods", 1, "metadata", "annotations", "leadline.dev/qos-edge-ratio"),
        "annotation leadline.dev/qos-edge-ratio: expected a share between 0 and 1",
    ),
}


@every_strategy
@pytest.mark.parametrize("case", PENDING)
def test_a_pod_that_cannot_be_placed_stays_pending_and_the_others_are_placed(
    capsys: Capture, tmp_path: Path, strategy: str, case: str
) -> None:
    spoil, why = PENDING[case]
    code, out, err = scored(capsys, tmp_path, strategy, spoil)
    assert (code, err) == (1, "")
    stuck, other = json.loads(out)["decisions"]
    assert (stuck["pod"], stuck["node"]) == ("default/web-1", None)
    assert why in stuck["why"]
    assert "\n" not in stuck["why"]
    assert other["node"] is not None


def without_nodes(document: Document) -> None:
    document |= {"nodes": [], "links": [], "pods": [pod("web-1"), pod("web-2")]}


@every_strategy
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (without_nodes, "no nodes are known"),
        (of_every_node(schedulable=False), "0 of 3 nodes fit: 3 NodeUnschedulable"),
    ],
    ids=["no nodes", "all cordoned"],
)
def test_a_cluster_that_takes_no_pods_leaves_every_pod_pending(
    capsys: Capture, tmp_path: Path, strategy: str, spoil: Spoil, why: str
) -> None:
    code, out, err = scored(capsys, tmp_path, strategy, spoil)
    assert (code, err) == (1, "")
    decisions = json.loads(out)["decisions"]
    assert [(each["node"], each["why"]) for each in decisions] == [(None, why)] * 2


OUT_OF_RANGE = [
    (name, option.name, (option.minimum - 1, option.maximum * 2 + 1))
    for name, strategy in STRATEGIES.items()
    for option in options_of(strategy)
]


@pytest.mark.parametrize(("strategy", "option", "beyond"), OUT_OF_RANGE)
def test_an_option_out_of_its_range_is_one_line_and_exit_code_2(
    capsys: Capture, tmp_path: Path, strategy: str, option: str, beyond: tuple[float, float]
) -> None:
    for value in (*beyond, "nan", "inf", "", "half", "True"):
        given = ("--option", f"{option}={value}")
        code, out, err = scored(capsys, tmp_path, strategy, nothing, *given)
        assert (code, out) == (2, ""), value
        assert err.startswith(f"leadline: option {option}: expected "), value
        assert err.count("\n") == 1, value


def test_alpha_is_among_them() -> None:
    assert ("dacs", "alpha", (-1.0, 3.0)) in OUT_OF_RANGE


@every_strategy
def test_an_unknown_option_is_one_line_and_exit_code_2(
    capsys: Capture, tmp_path: Path, strategy: str
) -> None:
    code, out, err = scored(capsys, tmp_path, strategy, nothing, "--option", "unheard=1")
    assert (code, out) == (2, "")
    assert err.startswith("leadline: option 'unheard': unknown; this strategy has: ")
    assert err.count("\n") == 1

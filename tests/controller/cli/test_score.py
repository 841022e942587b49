"""`leadline score` as users call it, and the papers' worked examples through it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from weakref import WeakSet

import click
import pytest
import yaml
from leadline_controller.cli.__main__ import run
from leadline_controller.cli.output import track
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule
from leadline_controller.framework.options import build
from leadline_controller.settings import Settings
from leadline_controller.snapshot.score import start_scoring, to_document
from leadline_controller.snapshot.snapshot import load_snapshot
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES
from leadline_controller.wiring.rules import scheduling_rule

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
Capture = pytest.CaptureFixture[str]


def score(capsys: Capture, file: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["score", "--snapshot", str(file), *arguments, "-o", "json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    result: dict[str, Any] = json.loads(captured.out)
    return result


def spread(result: dict[str, Any]) -> Counter[str | None]:
    return Counter(decision["node"] for decision in result["decisions"])


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ((EXAMPLES / "netsched.yaml").read_text(), 0, ""),
        ("a: [", 2, "leadline: standard input: line 2: "),
    ],
)
def test_a_snapshot_can_come_from_standard_input(content: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leadline_controller.cli", "score", "--snapshot", "-"],
        input=content,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (code, int(code != 0))
    assert done.stderr.startswith(said)
    assert ("pods placed" in done.stdout) == (code == 0)


def test_dacs_worked_example_of_figure_2(capsys: Capture) -> None:
    result = score(
        capsys,
        EXAMPLES / "dacs-fig2.yaml",
        *("--strategy", "dacs", "--option", "beta_cs=0.1", "--option", "beta_rc=0"),
    )
    assert (result["strategy"], result["better"]) == ("dacs", "lower")
    assert (result["options"]["alpha"], result["options"]["lambda"]) == (0.5, 0.05)
    *earlier, decision = result["decisions"]
    assert [each["node"] for each in earlier] == ["n1", "n3"]
    assert decision["node"] == "n3"
    assert decision["rejected"] == {
        "n2": ["NodeResourcesFit: insufficient cpu: needs 4, has 2"],
        "n4": ["NodeResourcesFit: insufficient memory: needs 5Gi, has 3Gi"],
    }
    n1, n3 = decision["scores"]["n1"], decision["scores"]["n3"]
    assert n1["total"] == pytest.approx(3.6)
    assert n1["parts"] == pytest.approx(
        {"processing_s": 5.0, "network_s": 2.0, "contention_s": 0.1}
    )
    assert n3["total"] == pytest.approx(3.1)
    assert n3["parts"] == pytest.approx(
        {"processing_s": 3.0, "network_s": 3.0, "contention_s": 0.1}
    )


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_netsched_avoids_the_throttled_boards(capsys: Capture, seed: str) -> None:
    result = score(capsys, EXAMPLES / "netsched.yaml", "--strategy", "netsched", "--seed", seed)
    assert spread(result) == {"pi-1": 10}
    totals = {node: s["total"] for node, s in result["decisions"][0]["scores"].items()}
    assert totals == {"pi-1": 5.0, "pi-2": 3.0, "pi-3": 1.0, "pi-4": 1.0}
    assert set(result["decisions"][0]["rejected"]) == {"master"}


def test_netsched_uses_more_than_bandwidth(capsys: Capture, tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLES / "netsched.yaml").read_text())
    for node in document["nodes"]:
        node["metrics"]["bandwidth_mbps"] = 94.0  # nothing is throttled
    document["nodes"][1]["metrics"]["cpu_percent"] = 50.0
    file = tmp_path / "unthrottled.json"
    file.write_text(json.dumps(document))
    assert spread(score(capsys, file, "--strategy", "netsched")) == {"pi-4": 10}


def test_a_placed_pod_adds_what_it_is_expected_to_use(capsys: Capture, tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLES / "netsched.yaml").read_text())
    for pod in document["pods"]:
        pod["spec"] = {"containers": [{"name": "app"}]}  # without requests
    file = tmp_path / "defaults.json"
    file.write_text(json.dumps(document))
    result = score(capsys, file, "--strategy", "netsched")
    assert max(spread(result).values()) == 3
    first, second = (each["scores"]["pi-1"] for each in result["decisions"][:2])
    assert first["assumed"] == dict.fromkeys(first["measured"], 0.0)
    assert first["sum"] == first["measured"] == second["measured"]
    assert second["assumed"]["cpu_percent"] == pytest.approx(2.5)  # 0.1 of 4 cores
    assert second["sum"]["memory_percent"] == pytest.approx(41.5 + 100 * 200 / 900, abs=1e-3)
    plain = score(capsys, file, "--strategy", "netsched", "--assumed-load", "off")
    assert spread(plain) == {"pi-1": 10}


@pytest.mark.parametrize("seed", range(6))
def test_kube_default_spreads_two_on_each(capsys: Capture, seed: int) -> None:
    result = score(
        capsys,
        EXAMPLES / "kube-default.yaml",
        *("--strategy", "kube-default", "--seed", str(seed)),
    )
    assert spread(result) == {"n1": 2, "n2": 2, "n3": 2}
    assert result["options"] == {"rounding": "exact", "spread": "least-requested"}


@pytest.mark.parametrize("seed", ["0", "1", "2"])
@pytest.mark.parametrize(
    ("strategy", "options", "expected"),
    [
        ("elasticfog", [], (2, 2, 2)),
        ("kube-default", [], (2, 2, 2)),
        ("tsra", [], (4, 1, 1)),
        ("kcss", [], (0, 3, 3)),
        ("dacs", ["alpha=0.25", "phi=0.25", "lambda=0.005"], (3, 1, 2)),
        ("dacs", ["alpha=0.5", "phi=0.25", "lambda=0.005"], (3, 2, 1)),
        ("dacs", ["alpha=0.75", "phi=0.25", "lambda=0.005"], (3, 2, 1)),
    ],
)
def test_figure_4a_of_the_dacs_paper(
    capsys: Capture, strategy: str, options: list[str], expected: tuple[int, ...], seed: str
) -> None:
    given = [part for option in options for part in ("--option", option)]
    file = EXAMPLES / "dacs-scenario2.yaml"
    placed = spread(score(capsys, file, "--strategy", strategy, "--seed", seed, *given))
    assert tuple(placed[node] for node in ("n1", "n2", "n3")) == expected


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_a_user_at_an_unknown_node_counts_as_none_and_the_output_says_so(
    capsys: Capture, tmp_path: Path, strategy: str
) -> None:
    document = yaml.safe_load((EXAMPLES / "dacs-scenario2.yaml").read_text())
    document["pods"][0]["metadata"]["annotations"]["leadline.dev/user-node"] = "nowhere"
    file = tmp_path / "unknown.json"
    file.write_text(json.dumps(document))
    decisions = score(capsys, file, "--strategy", strategy)["decisions"]
    said = "annotation leadline.dev/user-node: the cluster has no node 'nowhere', "
    assert [said in decision["why"] for decision in decisions] == [True] + [False] * 5
    del document["pods"][0]["metadata"]["annotations"]["leadline.dev/user-node"]
    file.write_text(json.dumps(document))
    without = score(capsys, file, "--strategy", strategy)["decisions"]
    assert [d["node"] for d in decisions] == [d["node"] for d in without]
    assert decisions[0]["scores"] == without[0]["scores"]


def test_response_time_goes_round_the_nodes_under_the_threshold(capsys: Capture) -> None:
    result = score(capsys, EXAMPLES / "response-time.yaml", "--strategy", "response-time")
    assert [decision["node"] for decision in result["decisions"]] == ["n2", "n1", "n3", "n2"]
    first = result["decisions"][0]
    assert {node: s["total"] for node, s in first["scores"].items()} == {
        "n1": 100.0,
        "n2": 90.0,
        "n3": 150.0,
    }
    assert first["rejected"]["n4"] == ["ResponseTime: needs 200 ms, predicted 230"]


@pytest.mark.parametrize(
    ("queue", "times_s"), [("wait", [15.0, 40.0, 20.0]), ("literal", [10.0, 40.0, 20.0])]
)
def test_infrastructure_aware_counts_the_download_queue_only_with_queue_wait(
    capsys: Capture, queue: str, times_s: list[float]
) -> None:
    result = score(
        capsys,
        EXAMPLES / "infrastructure-aware.yaml",
        *("--strategy", "infrastructure-aware", "--option", f"queue={queue}"),
    )
    assert result["options"]["queue"] == queue
    scores = result["decisions"][0]["scores"]
    assert [scores[node]["parts"]["time_s"] for node in ("n1", "n2", "n3")] == times_s
    assert spread(result) == {"n1": 2}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
@pytest.mark.parametrize("output", ["table", "wide", "yaml"])
def test_every_example_is_shown_in_every_format(capsys: Capture, file: Path, output: str) -> None:
    assert run(["score", "--snapshot", str(file), "-o", output]) == 0
    assert capsys.readouterr().out.strip()


def test_the_table_has_a_row_for_each_pod(capsys: Capture) -> None:
    options = ["--option", "beta_cs=0.1", "--option", "beta_rc=0"]
    file = str(EXAMPLES / "dacs-fig2.yaml")
    assert run(["score", "--snapshot", file, "--strategy", "dacs", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["POD", "NODE", "WHY"]
    assert lines[3].split(maxsplit=2) == [
        "default/p",
        "n3",
        "3.100 s average delay (processing 3.000, network 3.000)",
    ]
    assert lines[-1] == "3 of 3 pods placed: n3 2, n1 1"
    assert run(["score", "--snapshot", file, "--strategy", "dacs", *options, "-o", "wide"]) == 0
    row = capsys.readouterr().out.splitlines()[3]
    assert "n3 3.1, n1 3.6" in row
    assert "n2: NodeResourcesFit: insufficient cpu: needs 4, has 2" in row


@pytest.fixture
def too_large(tmp_path: Path) -> Path:
    document = yaml.safe_load((EXAMPLES / "kube-default.yaml").read_text())
    document["pods"][0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    file = tmp_path / "large.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_pod_that_fits_nowhere_is_exit_code_1(capsys: Capture, too_large: Path) -> None:
    result = score(capsys, too_large, code=1)
    unresolvable = result["decisions"][0]
    assert unresolvable["node"] is None
    assert unresolvable["why"].startswith("0 of 4 nodes fit: ")
    assert unresolvable["rejected"]["n1"] == ["NodeResourcesFit: insufficient cpu: needs 64, has 2"]
    assert sum(1 for d in result["decisions"] if d["node"]) == 5, "the others are placed"


def test_a_pod_that_fits_nowhere_is_in_the_table(capsys: Capture, too_large: Path) -> None:
    assert run(["score", "--snapshot", str(too_large)]) == 1
    out = capsys.readouterr().out
    assert "default/fft-1  none  0 of 4 nodes fit" in out
    assert "5 of 6 pods placed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "guess"], "leadline: Invalid value for '--strategy': 'guess' is not one"),
        (["--option", "alpha"], "leadline: option 'alpha': expected KEY=VALUE"),
        (["--option", "alpha=2"], "leadline: option alpha: expected a number from 0 to 1, got '2'"),
        (["--option", "beta=1"], "leadline: option 'beta': unknown; this strategy has: alpha, phi"),
        (["--seed", "x"], "leadline: Invalid value for '--seed': 'x' is not a valid integer"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    capsys: Capture, arguments: list[str], message: str
) -> None:
    file = str(EXAMPLES / "kube-default.yaml")
    assert run(["score", "--snapshot", file, "--strategy", "dacs", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("", "file: expected an object, got nothing"),
        ("kind: [", "line 2: "),
        ("apiVersion: leadline.dev/v1\nkind: ClusterSnapshot\nnodes: [{}]", "nodes[0].name: expec"),
        ("\x00", "expected YAML or JSON"),
    ],
)
def test_bad_input_names_the_file_and_is_exit_code_2(
    capsys: Capture, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "cluster.yaml"
    if content is not None:
        file.write_text(content)
    assert run(["score", "--snapshot", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"leadline: {file}: {message}")
    assert captured.err.count("\n") == 1


def test_the_default_is_a_new_controllers(capsys: Capture) -> None:
    assert run(["score", "--snapshot", str(EXAMPLES / "netsched.yaml"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == DEFAULT_STRATEGY
    assert scheduling_rule(Settings()).strategy.name == DEFAULT_STRATEGY


def test_kubedsm_worked_example_moves_pods_as_worked_by_hand(capsys: Capture) -> None:
    file = EXAMPLES / "kubedsm.yaml"
    result = score(capsys, file, "--strategy", "kubedsm", "--option", "room=capacity")
    assert spread(result) == {"e2": 1}
    assert [(m["pod"], m["from"], m["to"]) for m in result["migrations"]] == [
        ("default/batch-1", "e2", "far"),
        ("default/web-1", "far", "e1"),
    ]
    assert all(move["why"] for move in result["migrations"])
    result = score(capsys, file, "--strategy", "kubedsm", "--option", "suggest=0")
    assert (spread(result), result["migrations"]) == ({"far": 1}, [])


def test_migrations_are_shown_in_the_table_too(capsys: Capture) -> None:
    file = str(EXAMPLES / "kubedsm.yaml")
    assert run(["score", "--snapshot", file, "--strategy", "kubedsm"]) == 0
    shown = capsys.readouterr().out
    assert "MIGRATION" in shown
    assert "default/web-1" in shown


def test_strategies_that_place_pod_by_pod_print_no_migrations(capsys: Capture) -> None:
    assert "migrations" not in score(capsys, EXAMPLES / "kubedsm.yaml", "--strategy", "bef")


@pytest.mark.parametrize("strategy", ["dacs", "kubedsm"])
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_streamed_output_equals_the_output_at_once(
    capsys: Capture, file: Path, strategy: str
) -> None:
    made = build(STRATEGIES[strategy], {})
    at_once = start_scoring(load_snapshot(file), Rule(made, FILTERS))
    decisions = [to_document(decision) for decision in at_once.decisions]
    whole = {**at_once.head, "decisions": decisions, **at_once.tail}
    arguments = ["score", "--snapshot", str(file), "--strategy", strategy, "-o"]
    run([*arguments, "json"])
    assert capsys.readouterr().out == json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    run([*arguments, "yaml"])
    assert capsys.readouterr().out == yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)


@pytest.mark.parametrize("strategy", ["dacs", "kubedsm"])
def test_a_snapshot_without_pods_has_no_decisions(
    capsys: Capture, tmp_path: Path, strategy: str
) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("apiVersion: leadline.dev/v1\nkind: ClusterSnapshot\nnodes: []\n")
    assert score(capsys, file, "--strategy", strategy)["decisions"] == []
    assert run(["score", "--snapshot", str(file), "--strategy", strategy, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["decisions"] == []


def test_printed_decisions_are_not_kept_in_memory(tmp_path: Path) -> None:
    """A decision that is printed is freed before the next one is made."""
    snapshot = load_snapshot(EXAMPLES / "kube-default.yaml")
    alive: WeakSet[Decision] = WeakSet()
    for decision in start_scoring(snapshot, Rule(build(STRATEGIES["dacs"], {}), FILTERS)).decisions:
        assert len(alive) <= 1
        alive.add(decision)
        to_document(decision)


def test_a_progress_bar_leaves_standard_output_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for _ in track(["a"], "working"):
        click.echo("{}")
    assert capfd.readouterr().out == "{}\n"


@pytest.mark.parametrize(
    ("given", "counts"), [("on", [2, 2, 1, 1]), ("off", [6]), ("0.3", [2, 2, 1, 1])]
)
def test_preferences_spread_a_deployment(
    capsys: Capture, tmp_path: Path, given: str, counts: list[int]
) -> None:
    file = tmp_path / "deployment.json"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    size = {"cpu": "500m", "memory": "128Mi"}
    app = {"name": "app", "resources": {"requests": size, "limits": size}}
    document = {
        "apiVersion": "leadline.dev/v1",
        "kind": "ClusterSnapshot",
        "nodes": [
            {"name": f"n{i}", "allocatable": {"cpu": cpu, "memory": f"{cpu}Gi"}}
            for i, cpu in enumerate(("16", "4", "4", "4"))
        ],
        "replica_sets": [
            {
                "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
            }
        ],
        "pods": [
            {
                "metadata": {
                    "name": f"web-{i}",
                    "labels": {"app": "web"},
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {"containers": [app]},
            }
            for i in range(6)
        ],
    }
    file.write_text(json.dumps(document))
    result = score(capsys, file, "--strategy", "dacs", "--preferences", given)
    assert sorted(spread(result).values(), reverse=True) == counts
    parts = result["decisions"][1]["scores"]["n0"]["parts"]
    assert ("PodTopologySpread" in parts, "preference" in parts) == (given != "off",) * 2


@pytest.mark.parametrize("given", ["maybe", "-1", "nan", "inf"])
def test_preferences_that_mean_nothing_are_refused(capsys: Capture, given: str) -> None:
    file = str(EXAMPLES / "netsched.yaml")
    assert run(["score", "--snapshot", file, f"--preferences={given}"]) == 2
    assert f"a number of 0 or more, got '{given}'" in capsys.readouterr().err

"""What scripts rely on: exit codes, errors of one line, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from leadline_controller.cli.__main__ import OPTIONAL, built_in, leadline, run

from tests.support.examples import examples
from tests.support.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SNAPSHOT = EXAMPLES / "netsched.yaml"
FINE, NO, BAD, UNREACHABLE = 0, 1, 2, 3


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def called(*arguments: str) -> Outcome:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(arguments)
    return Outcome(code, out.getvalue(), err.getvalue())


def told_in_one_line(outcome: Outcome) -> bool:
    """Whether it failed as a person and a script can use: one sentence, and nothing else."""
    lines = outcome.err.splitlines()
    is_one_line = len(lines) == 1 and lines[0].startswith("leadline: ") and not outcome.out
    return is_one_line and "internal error" not in outcome.err


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, as it is typed."""
    context = click.Context(group)
    yield path
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(leadline)), ids=" ".join)
def test_the_help_of_every_command_has_an_example(path: tuple[str, ...]) -> None:
    shown = called(*path, "--help")
    assert (shown.code, shown.err) == (FINE, "")
    example = " ".join(shown.out.partition("\n  Example: ")[2].split())
    assert f"{example} ".startswith(" ".join(("leadline", *path, "")))


def test_the_commands_of_the_contract_are_there() -> None:
    promised = "nodes node matrix budget placements explain score watch strategies lab version"
    assert set(promised.split()) <= {*built_in(), *OPTIONAL}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["version"], FINE),
        (["--version"], FINE),
        (["strategies", "-o", "json"], FINE),
        (["score", "--snapshot", str(SNAPSHOT)], FINE),
        (["lab", "status", "thereisnone"], NO),
        (["nonsense"], BAD),
        (["nodes", "--nonsense"], BAD),
        (["nodes", "-o", "xml"], BAD),
        (["nodes", "surplus"], BAD),
        (["node"], BAD),
        (["explain"], BAD),
        (["node", "\udcff"], BAD),
        (["explain", "\udcff"], BAD),
        (["score"], BAD),
        (["score", "--snapshot", "/no/such/file"], BAD),
        (["score", "--snapshot", "/"], BAD),
        (["score", "--snapshot", "/dev/null"], BAD),
        (["score", "--snapshot", str(SNAPSHOT), "--strategy", "best"], BAD),
        (["score", "--snapshot", str(SNAPSHOT), "--option", "alpha"], BAD),
        (["score", "--snapshot", str(SNAPSHOT), "--option", "alpha=2"], BAD),
        (["score", "--snapshot", str(SNAPSHOT), "--seed", "x"], BAD),
        (["placements", "--since", "yesterday"], BAD),
        (["nodes", "--address", "nowhere"], BAD),
        (["nodes", "--address", "192.0.2.1:25505"], BAD),
        (["nodes", "--ca", "/ca.pem"], BAD),
        (["lab", "up", "--spec", "/no/such/file"], BAD),
        (["lab", "up", "--spec", str(SNAPSHOT)], BAD),
        (["lab", "up", "--kubelets"], BAD),
        (["lab", "up", "--kubeconfig", "/no/such/file"], BAD),
        (["lab", "down", "../etc"], BAD),
        (["lab", "status", "A b"], BAD),
        (["lab", "nonsense"], BAD),
    ],
    ids=repr,
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    outcome = called(*arguments)
    assert outcome.code == code, outcome
    if code == FINE:
        assert outcome.err == ""
        assert outcome.out
    else:
        assert told_in_one_line(outcome), outcome


@pytest.mark.parametrize(
    "arguments",
    [
        *(["nodes"], ["node", "n1"], ["matrix"], ["budget"], ["placements"]),
        *(["explain", "web-1"], ["watch"]),
    ],
    ids=" ".join,
)
def test_without_a_controller_every_question_ends_with_3(arguments: list[str]) -> None:
    outcome = called(*arguments, "--address", f"127.0.0.1:{free_port()}")
    assert outcome.code == UNREACHABLE
    assert told_in_one_line(outcome), outcome
    assert "leadline-controller run" in outcome.err


def test_a_pod_that_fits_nowhere_is_a_no_and_an_answer_all_the_same(tmp_path: Path) -> None:
    snapshot = yaml.safe_load(SNAPSHOT.read_text())
    snapshot["pods"][0]["spec"]["nodeSelector"] = {"no-node": "has-it"}
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(snapshot, default=str))
    outcome = called("score", "--snapshot", str(file), "-o", "json")
    assert outcome.code == NO
    assert outcome.err == ""
    assert json.loads(outcome.out)["decisions"][0]["node"] is None


WORDS = [*built_in(), "experiment"]  # not lab: as root, it would really be built
FLAGS = ["-o", "--rtt", "--since", "--snapshot", "--strategy", "--option", "--seed", "--address"]
FLAGS += ["--ca", "--cert", "--key", "--", "-", "json", "wide", "alpha=1", "127.0.0.1:1", "10m"]
# Any argument that a system can pass: invalid UTF-8 becomes surrogates, and NUL is impossible.
TYPED = st.text(st.characters(exclude_characters="\0"), max_size=12) | st.binary(max_size=8).map(
    lambda typed: typed.replace(b"\0", b"").decode(errors="surrogateescape")
)
ARGUMENTS = st.lists(st.sampled_from([*FLAGS, str(SNAPSHOT), str(EXAMPLES)]) | TYPED, max_size=6)


@example("-n", [])
@example("--address", ["127.0.0.1:1"])
@examples(100)
@given(command=st.sampled_from(WORDS) | TYPED.filter("lab".__ne__), more=ARGUMENTS)
def test_whatever_is_typed_there_is_no_traceback(command: str, more: list[str]) -> None:
    address = () if "--address" in more else ("--address", "127.0.0.1:1")
    asks = command in ("nodes", "node", "matrix", "budget", "placements", "explain", "watch")
    outcome = called(command, *(address if asks else ()), *more)
    assert outcome.code in (FINE, NO, BAD, UNREACHABLE)
    assert outcome.code == FINE or outcome.out or told_in_one_line(outcome), outcome
    assert "internal error" not in outcome.err


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["-1", "1e400", "9" * 400, "NaN", "10Ei", 10**400, "\x1b[2J", "Exists"])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a document."""
    yield path
    children = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in children:
        yield from places(value, (*path, key))


def replaced(tree: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with one thing in it exchanged."""
    if not path:
        return new
    if isinstance(tree, dict):
        return {**tree, path[0]: replaced(tree[path[0]], path[1:], new)}
    return [replaced(one, path[1:], new) if at == path[0] else one for at, one in enumerate(tree)]


@st.composite
def broken_snapshots(draw: st.DrawFn) -> str:
    tree = yaml.safe_load(draw(st.sampled_from(sorted(EXAMPLES.glob("*.yaml")))).read_text())
    for _ in range(draw(st.integers(1, 3))):
        tree = replaced(tree, draw(st.sampled_from(list(places(tree)))), draw(ANYTHING))
    return json.dumps(tree, default=str)


@settings(examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=broken_snapshots().map(str.encode) | st.binary(max_size=60),
    strategy=st.sampled_from(["netsched", "dacs", "kube-default"]),
)
def test_whatever_is_in_a_snapshot_there_is_no_traceback(
    tmp_path: Path, content: bytes, strategy: str
) -> None:
    file = tmp_path / "snapshot.yaml"
    file.write_bytes(content)
    outcome = called("score", "--snapshot", str(file), "--strategy", strategy, "-o", "json")
    assert outcome.code in (FINE, NO, BAD), outcome
    if outcome.code == BAD:
        assert told_in_one_line(outcome), outcome
        assert str(file) in outcome.err
    else:
        assert "NaN" not in outcome.out
        assert json.loads(outcome.out)["strategy"] == strategy


def process(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "leadline_controller.cli", "strategies", "-o", "wide"]
    with open(writing, "wb") as pipe:  # noqa: PTH123 - a descriptor has no path
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode in (FINE, NO)
    assert "Traceback" not in ended.stderr


def test_a_terminal_without_unicode_gets_an_answer() -> None:
    ended = process(
        "leadline_controller.cli",
        *("score", "--snapshot", str(SNAPSHOT), "-o", "wide"),
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        PYTHONIOENCODING="ascii",
    )
    assert (ended.returncode, ended.stderr) == (FINE, "")


@pytest.mark.parametrize("daemon", ["leadline_agent", "leadline_controller"])
def test_the_daemons_keep_the_same_contract(daemon: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("nonsense = 1\n")
    wrong_file = process(daemon, "run", "--config", str(file))
    assert wrong_file.returncode == BAD
    assert wrong_file.stderr.count("\n") == 1
    assert f"{file}: nonsense: " in wrong_file.stderr
    wrong_usage = process(daemon, "nonsense")
    assert wrong_usage.returncode == BAD
    assert "Traceback" not in wrong_usage.stderr
    shown = process(daemon, "--help")
    assert shown.returncode == FINE
    assert f"\nExample: {daemon.replace('_', '-')} " in shown.stdout

"""The command line itself: exit codes, one line for every error, and never a traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import pytest
from leadline_controller.cli import commands
from leadline_controller.cli.__main__ import OPTIONAL, built_in, leadline, run

from tests.support.distributions import install

ROLE_FILES = Path(__file__).parents[3] / "ansible/roles/controller/files"
LEADLINE = [sys.executable, "-m", "leadline_controller.cli"]


FAILING = '''"""Fail in a way that is asked for.

More about it.
"""
import click

@click.command()
@click.argument("how")
def failing(how):
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "bug":
        raise RuntimeError("first line\\nsecond line")
    print("did not fail")
'''
COMMANDS = sorted([*built_in(), *OPTIONAL])


@pytest.fixture
def failing_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One file more among the commands."""
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{commands.__name__}.failing", raising=False)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "leadline: No such command 'nonsense'; see 'leadline --help'\n"),
        (["score"], 2, "leadline: Missing option '--snapshot'; see 'leadline score --help'\n"),
        (["version", "-o", "xml"], 2, "leadline: Invalid value for '-o' / '--output': 'xml'"),
        (["version", "--loud"], 2, "leadline: No such option '--loud'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


def test_without_a_command_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "What is measured:" in capsys.readouterr().err


@pytest.mark.usefixtures("failing_command")
def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["failing", "interrupt"]) == 130
    captured = capsys.readouterr()
    assert (captured.out + captured.err).strip() == ""


@pytest.mark.usefixtures("failing_command")
def test_an_unexpected_exception_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["failing", "bug"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("leadline: internal error, please report it: RuntimeError: first line")
    assert told.count("\n") == 1


@pytest.mark.usefixtures("failing_command")
def test_with_leadline_debug_an_unexpected_exception_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEADLINE_DEBUG", "1")
    with pytest.raises(RuntimeError):
        run(["failing", "bug"])


def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen(
        [*LEADLINE, "strategies", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
@pytest.mark.parametrize("arguments", ["strategies", "strategies -o json", "--help"])
def test_an_answer_that_cannot_be_written_is_one_line_and_exit_code_1(
    arguments: str, redirection: str
) -> None:
    done = in_shell(f"{arguments} {redirection}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("leadline: standard output cannot be written: ")


def test_without_standard_output_a_command_that_fails_says_why_it_does() -> None:
    done = in_shell("nonsense >&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No such command" in done.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(redirection: str) -> None:
    assert in_shell(f"nonsense {redirection}").returncode == 2
    fine = in_shell(f"strategies -o json {redirection}")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert '"name": "netsched"' in fine.stdout


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("", "pla"), {"placements"}),
        (("", "exp"), {"experiment", "explain"}),
        (("nodes", "--out"), {"--output"}),
    ],
)
def test_a_shell_completes_commands_and_options(typed: tuple[str, ...], told: set[str]) -> None:
    words = ["leadline", *filter(None, typed)]
    environ = {
        **os.environ,
        "_LEADLINE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(LEADLINE, env=environ, capture_output=True, text=True, check=False)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == told


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_role_installs_the_completion_that_the_command_prints(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    assert capsys.readouterr().out == (ROLE_FILES / f"completion.{shell}").read_text()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["pla"], ["placements", ":4"]),
        (["nodes", "-o", "j"], ["json", "jsonpath=", ":4"]),
        (["nodes", "-o", ""], ["table", "wide", "json", "yaml", "name", "jsonpath=", ":4"]),
    ],
)
def test_kubectl_completes_the_plugin(typed: list[str], told: list[str], tmp_path: Path) -> None:
    command = tmp_path / "leadline"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leadline_controller.cli "$@"\n')
    command.chmod(0o755)
    program = ROLE_FILES / "kubectl_complete-leadline"
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [program, *typed], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == told


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """leadline, with this command line of a shell."""
    line = f'"{sys.executable}" -m leadline_controller.cli {command}'
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


def test_a_signal_from_the_keyboard_ends_it_quietly(tmp_path: Path) -> None:
    fifo = tmp_path / "never-written"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [*LEADLINE, "score", "--snapshot", str(fifo)], stderr=subprocess.PIPE
    ) as process:
        # Opening for writing returns once the command has it open for reading.
        with fifo.open("wb"):
            # One that comes between Python's check for signals and its read is seen after the read.
            for _ in range(6):
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)
                    break
            assert process.returncode == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == b""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Example" in told
    assert f"leadline {name}" in told


@pytest.mark.parametrize("name", built_in())
def test_the_help_of_a_command_begins_with_its_modules_docstring(name: str) -> None:
    command = leadline.get_command(click.Context(leadline), name)
    assert command is not None
    module = sys.modules[f"{commands.__name__}.{name}"]
    assert built_in()[name] == " ".join((module.__doc__ or "").split())
    assert built_in()[name].endswith(".")


@pytest.mark.usefixtures("failing_command")
def test_a_file_among_the_commands_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "  failing     Fail in a way that is asked for.\n" in capsys.readouterr().out
    assert f"{commands.__name__}.failing" not in sys.modules, "the help imports no command"
    assert run(["failing", "not"]) == 0
    assert capsys.readouterr().out == "did not fail\n"


Declare = Callable[..., None]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Declare:
    """Installs a package that declares these commands; its module is `elsewhere`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "elsewhere", raising=False)

    def plugin(entry_points: dict[str, str], source: str = FAILING) -> None:
        summary = "Fail elsewhere."
        install(
            tmp_path,
            "leadline-more",
            {"leadline.commands": entry_points},
            {"elsewhere": source},
            summary,
        )

    return plugin


def test_a_package_may_declare_a_command(
    declare: Declare, capsys: pytest.CaptureFixture[str]
) -> None:
    declare({"more": "elsewhere:failing", "score": "elsewhere:failing"})
    assert run(["--help"]) == 0
    told = capsys.readouterr().out
    assert "  more        Fail elsewhere.\n" in told
    assert f"  score       {built_in()['score']}\n" in told, "a built-in command stays"
    assert "elsewhere" not in sys.modules
    assert run(["more", "not"]) == 0
    assert capsys.readouterr().out == "did not fail\n"
    assert run(["score"]) == 2


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0; install what it needs, or "),
        ("failing = 3", "expected a click command, got int; correct the entry point, or "),
    ],
)
def test_a_broken_command_of_another_package_is_one_line(
    source: str, problem: str, declare: Declare, capsys: pytest.CaptureFixture[str]
) -> None:
    declare({"more": "elsewhere:failing"}, source)
    assert run(["more"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith(
        "leadline: command plug-in leadline-more 1.2, entry point more = elsewhere:failing: "
        + problem
    )
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert run(["--help"]) == 0, "the others can still be used"


def test_help_imports_nothing_that_is_slow_to_load() -> None:
    assert imported("--help").isdisjoint({"numpy", "grpc", "rich", "yaml", "paho", "google"})


@pytest.mark.parametrize("command", ["status", "nodes", "explain", "watch"])
def test_a_command_that_asks_a_controller_loads_nothing_of_it(command: str) -> None:
    loaded = imported(command, "--help")
    assert "grpc" in loaded
    assert loaded.isdisjoint({"numpy", "paho", "msgspec", "aiohttp"})


def test_score_needs_no_grpc_and_no_broker() -> None:
    example = Path(__file__).parents[3] / "docs/examples/netsched.yaml"
    loaded = imported("score", "--snapshot", str(example), "-o", "json")
    assert "numpy" in loaded
    assert loaded.isdisjoint({"grpc", "paho", "kubernetes_asyncio", "google", "rich"})


def imported(*arguments: str) -> set[str]:
    """The top-level packages that a command line loads."""
    program = (
        "import sys; from leadline_controller.cli.__main__ import run; "
        "run(sys.argv[1:]); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return {line.split(".")[0] for line in done.stderr.splitlines()}

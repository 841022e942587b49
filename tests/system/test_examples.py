"""Every command that the README, the pages for users and the help show, copied into a shell in the
demo's lab: it works, or says in one line what it needs. Left out is only what the README says needs
the internet, what has a word in capitals in place of a value, and what writes outside of home."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Timer

import click
import pytest
from leadline_controller.cli.__main__ import leadline

from tests.system.daemons import clean_environ, eventually
from tests.system.demo import Run

REPOSITORY = Path(__file__).parents[2]
SETTINGS = "/etc/leadline"
OURS = ("leadline", "leadline-agent", "leadline-controller")
TOOLS = (*OURS, "make", ".venv/bin/python")
# Their sessions with k3s and Ansible are those of tests/docs/test_install.py and tests/rollout.
PAGES = ("cli", "network", "rescheduling", "troubleshooting")
NEEDS_MORE = "needs (?:the internet|Docker)"
LIMIT_S = 200.0
AT_A_TIME = 2
# The one that goes on is what all others are run beside.
MAKE_THE_LAB = {"make demo", "make demo KEEP=1"}
ENDS_THE_LAB = "leadline lab down demo"
# What cannot work in the lab, and the words of the line that says why.
NEEDS = {
    "leadline lab run": "end it with leadline lab down demo",
    "leadline lab up --kubelets --kubeconfig ~/.kube/config": "run make kubelets",
    "leadline node raspberrypi-3 --since 6h": "raspberrypi-3",
    "leadline matrix pi-3 --rtt": "pi-3",
    f"leadline profile --pods app=web --port 8080 --path /detect --save {SETTINGS}/profiles.json": (
        "start a replica on each board"
    ),
    "leadline compare --since 1d": "[shadow]",
    "leadline recording list": "recording.enabled = true",
    "leadline recording list --sort-by -mib": "recording.enabled = true",
    "leadline recording export --since 24h day.recording": "recording.enabled = true",
    f"leadline-controller run --config {SETTINGS}/controller.toml": "controller.toml",
}
ENDLESS = (
    *("leadline watch", "leadline nodes -w -o name"),
    "leadline map docs/recordings/home.recording",
)  # until they are interrupted
# A board that shares a busy machine may be degraded, which they tell by code 1.
JUDGING = {"leadline status", "leadline status --quiet", "leadline doctor"}
# Programs of others that ours print for: here they only read.
READERS = ("kubectl", "jq")


def commands_of_the_readme() -> dict[str, bool]:
    """All lines of its code blocks without a language, and commands within sentences; whether the
    words after it say that it needs more than this machine."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    found = dict[str, bool]()
    for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command, _, comment = line.partition(" #")
            found[command.strip()] = bool(re.match(f" {NEEDS_MORE}", comment))
    sentences = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for span, after in re.findall(rf"`([^`]+)`((?:, {NEEDS_MORE})?)", sentences):
        command = " ".join(span.split())
        if " " in command and command.split()[0] in TOOLS:
            found[command] = bool(after)
    return found


def commands_of_the_pages() -> Iterator[str]:
    """The lines of their code blocks that begin with one of our commands."""
    for page in PAGES:
        text = (REPOSITORY / f"docs/{page}.md").read_text("utf-8")
        for language, block in re.findall(
            r"^```(\S*).*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
        ):
            for line in block.splitlines() if language in ("", "sh") else ():
                command = line.partition("  #")[0].strip()
                if command.split(" ")[0] in OURS and not re.search(r"\b[A-Z]{3,}\b|> /", command):
                    yield command


def examples(group: click.Group) -> Iterator[str]:
    """What the help of each command shows."""
    context = click.Context(group)
    for command in (group, *(group.get_command(context, x) for x in group.list_commands(context))):
        assert command is not None
        if isinstance(command, click.Group) and command is not group:
            yield from examples(command)
        else:
            yield _example(command.epilog or "")


def _example(text: str) -> str:
    example = " ".join(text.partition("Example: ")[2].split())
    assert example.split(maxsplit=1)[0] in OURS, text
    return example


def examples_of_the_daemons() -> Iterator[str]:
    for module in ("leadline_agent", "leadline_controller"):
        argv = [sys.executable, "-m", module, "--help"]
        yield _example(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


README = commands_of_the_readme()


@cache  # it starts daemons, for which the collection of tests need not wait
def all_commands() -> list[str]:
    shown = {*examples(leadline), *examples_of_the_daemons()}
    return sorted({*README, *commands_of_the_pages(), *shown})


def test_no_entry_of_these_lists_is_stale() -> None:
    listed = {*MAKE_THE_LAB, *NEEDS, *ENDLESS, *JUDGING, ENDS_THE_LAB}
    assert listed - set(all_commands()) == set()
    assert [
        each for each, needs_more in README.items() if needs_more and each.startswith(OURS)
    ] == []
    assert len(all_commands()) > 45


class Shell:
    """A shell in a checkout, on a machine where nothing else is."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        for name in ("home", "bin", "checkout", "settings"):
            (folder / name).mkdir()
        for each in REPOSITORY.iterdir():
            if each.name not in (".git", "inventory.yml"):
                (folder / "checkout" / each.name).symlink_to(each)
        for name in READERS:
            program = folder / "bin" / name
            program.write_text("#!/bin/sh\nexec cat\n")
            program.chmod(0o755)
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = str(folder / "home")
        environ = {"HOME": home, "XDG_CACHE_HOME": home, "PATH": path, "LEADLINE_ADDRESS": address}
        self._environ = clean_environ() | environ

    def run(self, command: str) -> tuple[int, str, str]:
        """The exit code, and what it wrote. An endless one is interrupted after its first line."""
        typed = command.replace(SETTINGS, str(self._folder / "settings"))
        argv = ["/bin/bash", "-o", "pipefail", "-c", typed]
        with subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder / "checkout",
            env=self._environ,
            process_group=0,
        ) as process:
            late = Timer(LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
            late.start()
            first = ""
            if command.startswith(ENDLESS):
                assert process.stdout is not None
                first = process.stdout.readline()
                os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate()
            late.cancel()
            return process.returncode, first + out, err


def what_is_wrong(command: str, code: int, out: str, err: str) -> str:
    """Empty if it is as it should be."""
    said = f"{command}\n  ended with {code}: {out[-300:]} {err[-1000:]}"
    if "Traceback" in out + err or "internal error" in err:
        return said
    if needed := NEEDS.get(command):
        is_line = err.startswith("leadline") and err.count("\n") == 1 and not out
        return "" if code in (1, 2, 3) and is_line and needed in err else said
    if command.startswith(ENDLESS):
        return "" if out else said
    fine = (0, 1) if command in JUDGING else (0,)
    return "" if code in fine else said


@pytest.mark.network
@pytest.mark.timeout(900)
def test_every_command_works_in_the_lab_or_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    makes = ["make", "--no-print-directory", "-C", str(REPOSITORY), "demo", "KEEP=1"]
    run = Run(makes, tmp_path / "run")
    try:
        said = eventually(
            lambda: run.out + run.err,
            lambda said: "Ctrl-C ends it." in said or "leadline: " in said,
            "the lab runs, or says why not",
            300,
        )
        assert "Ctrl-C ends it." in said, said
        (address,) = re.findall(r"export LEADLINE_ADDRESS=(\S+)", run.out)
        shell = Shell(tmp_path, address)
        left = {*MAKE_THE_LAB, ENDS_THE_LAB, *(each for each in README if README[each])}
        typed = [each for each in all_commands() if each not in left]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            ended = list(pool.map(shell.run, typed))
        ended.append(shell.run(ENDS_THE_LAB))
        wrong = [
            problem
            for command, outcome in zip((*typed, ENDS_THE_LAB), ended, strict=True)
            if (problem := what_is_wrong(command, *outcome))
        ]
        assert wrong == [], "\n".join(wrong)
    finally:
        run.end()


@pytest.mark.network
@pytest.mark.timeout(300)
def test_the_session_with_a_lab_of_ones_own_works(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/lab.md").read_text("utf-8")
    session = re.search(r"^```\n\$ cat boards\.toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert session
    spec, *shown = session[1].split("\n$ sudo ")
    commands = [each.splitlines()[0] for each in shown]
    name = tomllib.loads(spec)["name"]
    assert (commands[0], commands[-1]) == (
        "leadline lab up --spec boards.toml",
        f"leadline lab down {name}",
    )
    shell = Shell(tmp_path, "")
    (tmp_path / "checkout/boards.toml").write_text(spec)
    try:
        for command in commands:
            code, out, err = shell.run(command)
            assert (code, "Traceback" in err) == (0, False), f"{command}: {out} {err}"
    finally:
        shell.run(commands[-1])

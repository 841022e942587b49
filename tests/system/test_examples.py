"""Every command that the README and the help show, copied into a shell in the demo's lab: it works,
or says in one line what it needs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import click
import pytest
from leadline_controller.cli.__main__ import leadline

from tests.system.daemons import clean_environ, eventually
from tests.system.test_demo import RUN, Run

REPOSITORY = Path(__file__).parents[2]
SETTINGS = "/etc/leadline"
OURS = ("leadline", "leadline-agent", "leadline-controller")
LIMIT_S = 200.0
AT_A_TIME = 2
ENDS_THE_LAB = "leadline lab down demo"
# Not run, and why.
LEFT_OUT = {
    "make demo": "this lab is what it runs",
    "make test": "this is one of its tests",
    "make rollout-env bundle": "downloads Ansible and all that boards install",
    "ANSIBLE_COLLECTIONS_PATH=.venv/collections .venv/bin/ansible-playbook -i inventory.yml "
    "leadline.edge.site": "needs Ansible and boards",
}
# What cannot work in the lab, and the words of the line that says why.
NEEDS = {
    "leadline lab sounding": "Missing option '--truth'",
    "leadline lab run": "end it with leadline lab down demo",
    "leadline lab up --kubelets --kubeconfig ~/.kube/config": "run make kubelets",
    "leadline node raspberrypi-3 --since 6h": "raspberrypi-3",
    "leadline profile --pods app=web": "start a replica on each board",
    f"leadline profile --pods app=web --port 8080 --path /detect --save {SETTINGS}/profiles.json": (
        "start a replica on each board"
    ),
    f"leadline-controller run --config {SETTINGS}/controller.toml": "controller.toml",
}
# They go on until they are interrupted.
ENDLESS = {"leadline watch", "leadline watch --only placements -o json | jq .placement"}
# A board that shares a busy machine may be degraded, which they tell by code 1.
JUDGING = {"leadline status", "leadline status --quiet", "leadline doctor"}
# Programs of others that ours print for: here they only read.
READERS = ("kubectl", "jq")


def commands_of_the_readme() -> list[str]:
    """All lines of its code blocks, but of pictures, and our commands within sentences."""
    text, found = (REPOSITORY / "README.md").read_text("utf-8"), list[str]()
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        if "\u2500" not in block:
            lines = (line.partition(" #")[0].strip() for line in block.splitlines())
            found += [line for line in lines if line]
    sentences = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", sentences))
    return found + [span for span in spans if span.split()[0] in OURS and " " in span]


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


COMMANDS = sorted({*commands_of_the_readme(), *examples(leadline), *examples_of_the_daemons()})


def test_no_entry_of_these_lists_is_stale() -> None:
    listed = {*LEFT_OUT, *NEEDS, *ENDLESS, *JUDGING, ENDS_THE_LAB}
    assert listed - set(COMMANDS) == set()
    assert len(COMMANDS) > 40


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
            if command in ENDLESS:
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
    if command in ENDLESS:
        return "" if out else said
    fine = (0, 1) if command in JUDGING else (0,)
    return "" if code in fine else said


@pytest.mark.network
@pytest.mark.timeout(900)
def test_every_command_works_in_the_lab_or_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = Run([*RUN, "--keep"], tmp_path / "run")
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
        typed = [each for each in COMMANDS if each not in LEFT_OUT and each != ENDS_THE_LAB]
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

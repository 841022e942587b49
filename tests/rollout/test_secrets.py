"""No other user can read a key or a token.

The tests search for the key material on the disk of every machine and in the output of systemd, the
journal, the processes and Ansible. The files that must have it show that the search works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed

LINE = 64  # characters of a whole line in PEM; the first line has all of a key on P-256


def secrets(testbed: NspawnTestbed) -> dict[str, str]:
    """A line of every key, and the controller's tokens, by owner."""
    found = {}
    for file in sorted((testbed.folder / "pki").rglob("*.key")):
        lines = [line for line in file.read_text().splitlines() if len(line) == LINE]
        found[str(file.relative_to(testbed.folder))] = lines[0]
    config = testbed.server.run("cat /etc/leadline/kubeconfig").stdout
    tokens = re.findall(r"token: *\"?([-\w.]{40,})", config)
    return found | {f"token {number}": token for number, token in enumerate(tokens)}


@pytest.fixture(scope="module")
def hidden(deployed: NspawnTestbed) -> dict[str, str]:
    hidden = secrets(deployed)
    assert {"pki/mqtt-ca.key", "pki/agent/pi-1.key", "pki/controller/server.key", "token 0"} <= set(
        hidden
    )
    return hidden


@pytest.fixture(scope="module")
def patterns(hidden: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("secrets") / "patterns"
    path.touch(0o600)
    path.write_text("".join(f"{secret}\n" for secret in hidden.values()))
    yield path
    path.unlink()


def owners_of_secrets_in(text: str, hidden: Mapping[str, str]) -> list[str]:
    """The owners of the secrets in a text; a failure's message must not have the secrets."""
    return [whose for whose, secret in hidden.items() if secret in text]


def files_with_secrets(testbed: NspawnTestbed, machine: Machine, patterns: Path) -> list[str]:
    """The files with a secret on a machine's disk."""
    grep = ("grep", "-rlaF", "--devices=skip", "-f", patterns, ".")
    done = testbed.namespaces.run("env", "-C", machine.root, *grep, mounts=True, timeout_s=300)
    assert done.returncode in (0, 1), done.stderr
    return [line.removeprefix(".") for line in done.stdout.splitlines()]


def test_only_root_and_mosquitto_can_read_a_file_with_a_secret(
    deployed: NspawnTestbed, patterns: Path, evidence: Evidence
) -> None:
    table = []
    for machine in deployed.machines.values():
        files = files_with_secrets(deployed, machine, patterns)
        part = "controller" if machine is deployed.server else "agent"
        assert f"/etc/leadline/pki/{part}/key.pem" in files  # the search works
        assert not any("ca.key" in file for file in files)
        for file in files:
            readable = machine.run(f"runuser -u nobody -- test -r {file}", check=False).returncode
            assert readable == 1, f"{machine.name}: nobody can read {file}"
            rights = machine.run(f"stat -c '%A %U %G %n' {file}").stdout
            table.append(f"{machine.name} {rights}")
    evidence.say("secrets-files.txt", "".join(table))


def test_no_board_has_anothers_key_nor_the_authoritys(
    deployed: NspawnTestbed, tmp_path: Path
) -> None:
    for name, board in deployed.boards.items():
        for file, secret in secrets(deployed).items():
            if file != f"pki/agent/{name}.key":
                (tmp_path / "one").write_text(secret + "\n")
                assert files_with_secrets(deployed, board, tmp_path / "one") == [], file


def test_credentials_in_run_are_the_daemons_alone(deployed: NspawnTestbed) -> None:
    for machine in deployed.machines.values():
        unit = "controller" if machine is deployed.server else "agent"
        key = f"/run/credentials/leadline-{unit}.service/key.pem"
        machine.run(f"test -s {key}")
        assert machine.run(f"runuser -u nobody -- cat {key}", check=False).returncode != 0


def test_neither_systemd_nor_the_journal_nor_a_process_shows_a_secret(
    deployed: NspawnTestbed, hidden: Mapping[str, str]
) -> None:
    for machine in deployed.machines.values():
        shown = machine.run("systemctl show leadline-agent leadline-controller mosquitto").stdout
        assert "/opt/leadline/" in shown
        processes = machine.run(
            "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; tr '\\0' ' ' < $p/cmdline; done"
            " 2>/dev/null; true"
        ).stdout
        assert "LEADLINE_BROKER_TLS_KEY_FILE=" in processes
        journal = machine.run("journalctl --no-pager --all --output verbose", timeout_s=120).stdout
        assert "leadline" in journal
        logs = machine.run("cat /var/log/mosquitto/*.log /var/log/apt/*.log 2>/dev/null; true")
        for text in (shown, processes, journal, logs.stdout, machine.console()):
            assert owners_of_secrets_in(text, hidden) == [], machine.name


def test_ansibles_output_shows_no_secret_however_much_it_says(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    key = deployed.folder / "pki" / "agent" / "pi-2.key"
    key.unlink()  # so that the run makes a key, signs its certificate and installs both
    run = deployed.ansible("site", "-vvv", "--diff", limit="pi-2,server")
    hidden = secrets(deployed)
    assert owners_of_secrets_in(run.output, hidden) == []
    assert owners_of_secrets_in(deployed.deploy(evidence).output, hidden) == []
    assert owners_of_secrets_in(deployed.boards["pi-2"].journal(), hidden) == []
    board = deployed.boards["pi-2"].run("cat /etc/leadline/pki/agent/key.pem").stdout
    assert board == key.read_text()
    files = [path for path in (deployed.folder / "ansible").rglob("*") if path.is_file()]
    assert not [
        path for path in files if owners_of_secrets_in(path.read_text(errors="replace"), hidden)
    ]

"""Who is not who it says it is gets nothing, and both logs say so; nobody speaks for another."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_wire.topics import Kind

from tests.rollout.certificates import sign
from tests.rollout.evidence import Evidence
from tests.rollout.listener import Listener, listener
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import Yard
from tests.support.certificates import Authority
from tests.support.ports import wait_until

CLIENT = Path(__file__).with_name("mqtt_attempt.py")
ROOT = "leadline/v1/default"
KEYS = "/etc/leadline/pki/agent"
BROKER_LOG = "/var/log/mosquitto/mosquitto.log"
READY = "/run/leadline-test-ready"


def attempt(machine: Machine, yard: Yard, part: str = "agent", **asked: object) -> dict[str, Any]:
    """Do at the broker what is asked, on that machine and with its own certificate."""
    asked = {"host": yard.server.address, "keys": f"/etc/leadline/pki/{part}", "id": "try"} | asked
    python = f"/opt/leadline/{part}/current/venv/bin/python"
    command = f"{python} - '{json.dumps(asked)}' <<'END'\n{CLIENT.read_text()}\nEND"
    told: dict[str, Any] = json.loads(machine.run(command, timeout_s=120).stdout)
    return told


@contextmanager
def without_agent(board: Machine) -> Iterator[None]:
    """The broker lets in one client of a name, so the agent is stopped for the time of a block."""
    board.run("systemctl stop leadline-agent")
    try:
        yield
    finally:
        board.run("systemctl start leadline-agent")


@contextmanager
def other_keys(yard: Yard, board: Machine, files: Sequence[Path]) -> Iterator[str]:
    """The board's agent runs with this certificate and key for the time of a block; gives the
    moment since when, for journalctl."""
    board.run(f"cp -a {KEYS} {KEYS}.own")
    try:
        for name, file in zip(("cert", "key"), files, strict=True):
            # Onto its disk from outside: the journal has what sudo is told to do.
            yard.spaces.must("cp", file, f"{board.root}{KEYS}/{name}.pem")
        since = board.run("date +@%s").stdout.strip()
        board.run("systemctl restart --no-block leadline-agent")
        yield since
    finally:
        board.run(f"rm -r {KEYS} && mv {KEYS}.own {KEYS} && systemctl restart leadline-agent")


def refused(board: Machine, since: str, why: str) -> str:
    """Wait until the agent has said why it is refused, and return its log. It goes on."""
    journal = f"journalctl -u leadline-agent --since {since} -o cat --no-pager"
    board.wait_for(f"{journal} | grep -F -e {shlex.quote(why)}", within_s=120)
    board.wait_for("systemctl is-active leadline-agent", within_s=60)
    said = board.run(journal).stdout
    assert "Traceback" not in said
    # A complaint is not repeated for ever: the SD card holds the journal.
    assert 1 <= sum(why in line for line in said.splitlines()) <= 3
    return said


def broker_log(yard: Yard, since_bytes: int) -> str:
    return yard.server.run(f"tail -c +{since_bytes + 1} {BROKER_LOG}").stdout


@contextmanager
def nothing_heard_of(messages: Listener, node: str, witness: str) -> Iterator[None]:
    """In the block, and until the witness has reported some more, the node says nothing."""
    before = len(messages.received(node, Kind.REPORT))
    yield
    messages.wait_for(
        witness, Kind.REPORT, len(messages.received(witness, Kind.REPORT)) + 3, within_s=60
    )
    assert len(messages.received(node, Kind.REPORT)) == before


@pytest.fixture
def log_bytes(deployed: Yard) -> int:
    return int(deployed.server.run(f"stat -c %s {BROKER_LOG}").stdout)


@pytest.fixture
def messages(deployed: Yard) -> Iterator[Listener]:
    with listener(deployed) as messages:
        messages.wait_for("pi-1", Kind.REPORT, 1, within_s=60)
        yield messages


def pair(yard: Yard, host: str) -> list[Path]:
    stem = yard.folder / "pki" / "agent" / host
    return [stem.with_suffix(".pem"), stem.with_suffix(".key")]


def test_a_board_with_anothers_certificate_is_refused_and_both_are_named(
    deployed: Yard, messages: Listener, log_bytes: int, evidence: Evidence
) -> None:
    board = deployed.boards["pi-1"]
    with other_keys(deployed, board, pair(deployed, "pi-2")) as since:
        why = "this node's certificate is pi-2's, but its settings say node = pi-1"
        said = refused(board, since, why)
        with nothing_heard_of(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    # Its address and, after u, the name in its certificate.
    named = [line for line in log.splitlines() if board.address in line and "u'pi-2'" in line]
    assert named
    evidence.say("refused-another.txt", said + named[0])
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def test_a_board_of_an_unknown_authority_is_refused(
    deployed: Yard, messages: Listener, log_bytes: int, evidence: Evidence
) -> None:
    board = deployed.boards["pi-1"]
    strange = Authority(deployed.folder / "strange", "Leadline mqtt CA").client("pi-1")
    with other_keys(deployed, board, [strange.cert_file, strange.key_file]) as since:
        said = refused(board, since, "does not know the authority that signed this node's")
        with nothing_heard_of(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    evidence.say("refused-unknown.txt", said + names_the_failed(log, board))
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def test_a_board_whose_certificate_has_expired_is_refused(
    deployed: Yard, messages: Listener, log_bytes: int, evidence: Evidence, tmp_path: Path
) -> None:
    board = deployed.boards["pi-1"]
    sign(deployed, "agent", "pi-1", -1, tmp_path / "expired.pem")
    with other_keys(
        deployed, board, [tmp_path / "expired.pem", pair(deployed, "pi-1")[1]]
    ) as since:
        said = refused(board, since, "this node's certificate expired on")
        with nothing_heard_of(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    evidence.say("refused-expired.txt", said + names_the_failed(log, board))
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def names_the_failed(log: str, board: Machine) -> str:
    """The broker's lines of a failed handshake, which begin with the board's address."""
    lines = log.splitlines()
    at = next(number for number, line in enumerate(lines) if "certificate verify failed" in line)
    # Others may come and go in between.
    before = next(line for line in reversed(lines[:at]) if "New connection from" in line)
    assert board.address in before
    return f"{before}\n{lines[at]}\n"


def test_without_a_certificate_or_without_tls_nobody_gets_in(deployed: Yard) -> None:
    told = attempt(deployed.boards["pi-1"], deployed, certificate=False, publish=["anything"])
    assert told["failure"]
    assert told["answers"] == {}
    ports = deployed.server.run("ss -ltnH | grep -o ':1883'", check=False).stdout
    assert ports == ""


def test_a_board_can_neither_speak_as_another_nor_take_back_what_it_said(
    deployed: Yard, messages: Listener
) -> None:
    denied = [f"{ROOT}/pi-2/{kind}" for kind in Kind]
    denied += [f"{ROOT}/pi-1/{Kind.LEASE}", f"{ROOT}/pi-1/else", "leadline/v1/other/pi-1/report"]
    denied += ["$SYS/broker/uptime", "$CONTROL/dynamic-security/v1", "anything"]
    allowed = f"{ROOT}/pi-1/{Kind.BANDWIDTH}"
    # Retained: an empty birth would take pi-2's away.
    board = deployed.boards["pi-1"]
    with without_agent(board):
        told = attempt(board, deployed, publish=[*denied, allowed], retain=True, id="x")
    assert {told["answers"][topic] for topic in denied} == {"Not authorized"}
    assert told["answers"][allowed] in ("Success", "No matching subscribers")
    wait_for_an_empty_one(messages, "pi-1")  # it was sent last, so all has come
    assert not [each for each in messages.received("pi-2") if each.is_empty]


def test_a_board_cannot_leave_anothers_will(deployed: Yard, messages: Listener) -> None:
    board = deployed.boards["pi-1"]
    with without_agent(board):
        for node in ("pi-2", "pi-1"):
            attempt(board, deployed, will=f"{ROOT}/{node}/{Kind.BANDWIDTH}")
    wait_for_an_empty_one(messages, "pi-1")  # its own will, left after the other
    assert not [each for each in messages.received("pi-2") if each.is_empty]


def wait_for_an_empty_one(messages: Listener, node: str) -> None:
    wait_until(
        lambda: any(each.is_empty for each in messages.received(node, Kind.BANDWIDTH)),
        f"an empty message of {node}",
        timeout_s=60,
    )


def test_a_board_hears_no_lease_but_its_own(deployed: Yard) -> None:
    board, own = deployed.boards["pi-1"], f"{ROOT}/pi-1/{Kind.LEASE}"
    all_of_them = [own, f"{ROOT}/pi-2/{Kind.LEASE}", f"{ROOT}/+/{Kind.LEASE}", "#", f"{ROOT}/#"]
    board.run(f"rm -f {READY}")
    with without_agent(board), ThreadPoolExecutor(1) as pool:
        told = pool.submit(
            attempt, board, deployed, subscribe=all_of_them, until=f"{own}", ready=READY
        )
        board.wait_for(f"test -e {READY}", within_s=30)
        topics = [f"{ROOT}/{node}/{Kind.LEASE}" for node in ("pi-2", "pi-1")]
        said = attempt(deployed.server, deployed, "controller", publish=topics, id="y")
        assert set(said["answers"].values()) == {"Success"}  # both were heard, each by its own
        heard = told.result(120)["heard"]
    assert set(heard) == {own}

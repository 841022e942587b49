"""The broker refuses clients with a wrong identity, and both logs name them; no client can publish
for another."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_wire.topics import Kind

from tests.rollout.certificates import sign
from tests.rollout.evidence import Evidence
from tests.rollout.listener import Listener, listener
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.support.certificates import Authority
from tests.support.ports import wait_until

CLIENT = Path(__file__).with_name("mqtt_attempt.py")
ROOT = "leadline/v1/default"
KEYS = "/etc/leadline/pki/agent"
BROKER_LOG = "/var/log/mosquitto/mosquitto.log"


def attempt(
    machine: Machine, testbed: NspawnTestbed, part: str = "agent", **fields: object
) -> dict[str, Any]:
    """Run an MqttAttempt on a machine, with its own certificate."""
    request = {
        "host": testbed.server.address,
        "keys": f"/etc/leadline/pki/{part}",
        "id": "try",
    } | fields
    python = f"/opt/leadline/{part}/current/venv/bin/python"
    command = f"{python} - '{json.dumps(request)}' <<'END'\n{CLIENT.read_text()}\nEND"
    result: dict[str, Any] = json.loads(machine.run(command, timeout_s=120).stdout)
    return result


@contextmanager
def without_agent(board: Machine) -> Iterator[None]:
    """Stop the agent during a block, as the broker accepts one client of a name."""
    board.run("systemctl stop leadline-agent")
    try:
        yield
    finally:
        board.run("systemctl start leadline-agent")


@contextmanager
def agent_with_keys(testbed: NspawnTestbed, board: Machine, files: Sequence[Path]) -> Iterator[str]:
    """Run the board's agent with this certificate and key during a block. Yields the start time,
    for journalctl."""
    board.run(f"cp -a {KEYS} {KEYS}.own")
    try:
        for name, file in zip(("cert", "key"), files, strict=True):
            # Copied to its disk from outside, because the journal has the commands of sudo.
            testbed.namespaces.must("cp", file, f"{board.root}{KEYS}/{name}.pem")
        since = board.run("date +@%s").stdout.strip()
        board.run("systemctl restart --no-block leadline-agent")
        yield since
    finally:
        board.run(f"rm -r {KEYS} && mv {KEYS}.own {KEYS} && systemctl restart leadline-agent")


def wait_until_refused(board: Machine, since: str, why: str) -> str:
    """Wait until the agent logs why it is refused, and return its log. It keeps running."""
    journal = f"journalctl -u leadline-agent --since {since} -o cat --no-pager"
    board.wait_for(f"{journal} | grep -F -e {shlex.quote(why)}", within_s=120)
    board.wait_for("systemctl is-active leadline-agent", within_s=60)
    log_text = board.run(journal).stdout
    assert "Traceback" not in log_text
    # The message is repeated only a few times, as the journal is on the SD card.
    assert 1 <= sum(why in line for line in log_text.splitlines()) <= 3
    return log_text


def broker_log(testbed: NspawnTestbed, since_bytes: int) -> str:
    return testbed.server.run(f"tail -c +{since_bytes + 1} {BROKER_LOG}").stdout


@contextmanager
def no_messages_from(messages: Listener, node: str, witness: str) -> Iterator[None]:
    """Assert that the node sends no report during the block and three more of the witness."""
    before = len(messages.received(node, Kind.REPORT))
    yield
    messages.wait_for(
        witness, Kind.REPORT, len(messages.received(witness, Kind.REPORT)) + 3, within_s=60
    )
    assert len(messages.received(node, Kind.REPORT)) == before


@pytest.fixture
def log_bytes(deployed: NspawnTestbed) -> int:
    return int(deployed.server.run(f"stat -c %s {BROKER_LOG}").stdout)


@pytest.fixture
def messages(deployed: NspawnTestbed) -> Iterator[Listener]:
    with listener(deployed) as messages:
        messages.wait_for("pi-1", Kind.REPORT, 1, within_s=60)
        yield messages


def certificate_and_key(testbed: NspawnTestbed, host: str) -> list[Path]:
    stem = testbed.folder / "pki" / "agent" / host
    return [stem.with_suffix(".pem"), stem.with_suffix(".key")]


def test_a_board_with_anothers_certificate_is_refused_and_both_are_named(
    deployed: NspawnTestbed, messages: Listener, log_bytes: int, evidence: Evidence
) -> None:
    board = deployed.boards["pi-1"]
    with agent_with_keys(deployed, board, certificate_and_key(deployed, "pi-2")) as since:
        why = "this node's certificate is pi-2's, but its settings say node = pi-1"
        log_text = wait_until_refused(board, since, why)
        with no_messages_from(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    # The line has its address and, after u, the name in its certificate.
    named = [line for line in log.splitlines() if board.address in line and "u'pi-2'" in line]
    assert named
    evidence.say("refused-another.txt", log_text + named[0])
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def test_a_board_of_an_unknown_authority_is_refused(
    deployed: NspawnTestbed, messages: Listener, log_bytes: int, evidence: Evidence
) -> None:
    board = deployed.boards["pi-1"]
    strange = Authority(deployed.folder / "strange", "Leadline mqtt CA").client("pi-1")
    with agent_with_keys(deployed, board, [strange.cert_file, strange.key_file]) as since:
        log_text = wait_until_refused(
            board, since, "does not know the authority that signed this node's"
        )
        with no_messages_from(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    evidence.say("refused-unknown.txt", log_text + names_the_failed(log, board))
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def test_a_board_whose_certificate_has_expired_is_refused(
    deployed: NspawnTestbed, messages: Listener, log_bytes: int, evidence: Evidence, tmp_path: Path
) -> None:
    board = deployed.boards["pi-1"]
    sign(deployed, "agent", "pi-1", -1, tmp_path / "expired.pem")
    with agent_with_keys(
        deployed, board, [tmp_path / "expired.pem", certificate_and_key(deployed, "pi-1")[1]]
    ) as since:
        log_text = wait_until_refused(board, since, "this node's certificate expired on")
        with no_messages_from(messages, "pi-1", "pi-2"):
            log = broker_log(deployed, log_bytes)
    evidence.say("refused-expired.txt", log_text + names_the_failed(log, board))
    messages.wait_for(
        "pi-1", Kind.REPORT, len(messages.received("pi-1", Kind.REPORT)) + 1, within_s=120
    )


def names_the_failed(log: str, board: Machine) -> str:
    """The broker's log lines of a failed handshake; assert that they have the board's address."""
    lines = log.splitlines()
    failed_at = next(
        number for number, line in enumerate(lines) if "certificate verify failed" in line
    )
    # Lines of other clients may be in between.
    before = next(line for line in reversed(lines[:failed_at]) if "New connection from" in line)
    assert board.address in before
    return f"{before}\n{lines[failed_at]}\n"


def test_without_a_certificate_or_without_tls_nobody_gets_in(deployed: NspawnTestbed) -> None:
    result = attempt(deployed.boards["pi-1"], deployed, certificate=False, publish=["anything"])
    assert result["failure"]
    assert result["answers"] == {}
    ports = deployed.server.run("ss -ltnH | grep -o ':1883'", check=False).stdout
    assert ports == ""


def test_a_board_can_neither_speak_as_another_nor_take_back_what_it_said(
    deployed: NspawnTestbed, messages: Listener
) -> None:
    denied = [f"{ROOT}/pi-2/{kind}" for kind in Kind]
    denied += [f"{ROOT}/pi-1/{Kind.LEASE}", f"{ROOT}/pi-1/else", "leadline/v1/other/pi-1/report"]
    denied += ["$SYS/broker/uptime", "$CONTROL/dynamic-security/v1", "anything"]
    allowed = f"{ROOT}/pi-1/{Kind.BANDWIDTH}"
    # Retained, because an empty retained birth would remove pi-2's.
    board = deployed.boards["pi-1"]
    with without_agent(board):
        result = attempt(board, deployed, publish=[*denied, allowed], retain=True, id="x")
    assert {result["answers"][topic] for topic in denied} == {"Not authorized"}
    assert result["answers"][allowed] in ("Success", "No matching subscribers")
    wait_for_an_empty_message(messages, "pi-1")  # it was sent last, so all others have arrived
    assert not [each for each in messages.received("pi-2") if each.is_empty]


def test_a_board_cannot_leave_anothers_will(deployed: NspawnTestbed, messages: Listener) -> None:
    board = deployed.boards["pi-1"]
    with without_agent(board):
        for node in ("pi-2", "pi-1"):
            attempt(board, deployed, will=f"{ROOT}/{node}/{Kind.BANDWIDTH}")
    wait_for_an_empty_message(messages, "pi-1")  # its own will, which it left after the other
    assert not [each for each in messages.received("pi-2") if each.is_empty]


def wait_for_an_empty_message(messages: Listener, node: str) -> None:
    wait_until(
        lambda: any(each.is_empty for each in messages.received(node, Kind.BANDWIDTH)),
        f"an empty message of {node}",
        timeout_s=60,
    )

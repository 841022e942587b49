"""`leadline status` tells what is so while a real broker and a real API server are frozen: their
processes are stopped by their ids, so that connections stay open and nothing answers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import psutil
import pytest
from leadline_controller.cli.__main__ import run

from tests.system.daemons import eventually
from tests.system.harness import BOARDS, LeadlineSystem, leadline_system

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

HEALTHY, DEGRADED = 0, 1
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeadlineSystem]:
    with leadline_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """Stop a process and its children during the block, without their connections ending."""
    assert pid is not None
    stopped = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    try:
        for process in stopped:
            os.kill(process.pid, signal.SIGSTOP)
        yield
    finally:
        for process in stopped:
            os.kill(process.pid, signal.SIGCONT)


def called(system: LeadlineSystem, *question: str) -> tuple[int, str]:
    """The exit code and the output of a command. In this process, as it is asked often."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*question, "--address", system.address])
    assert err.getvalue() == ""
    return code, out.getvalue()


def status(system: LeadlineSystem) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer of `leadline status`."""
    code, out = called(system, "status", "-o", "json")
    return code, json.loads(out)


def agents(system: LeadlineSystem) -> dict[str, dict[str, Any]]:
    nodes = json.loads(called(system, "nodes", "-o", "json")[1])["nodes"]
    return {each["name"]: each for each in nodes}


def kinds(answer: dict[str, Any]) -> set[str]:
    return {each["kind"] for each in answer["problems"]}


def wait_healthy(system: LeadlineSystem) -> dict[str, Any]:
    _, answer = eventually(
        lambda: status(system), lambda seen: seen[0] == HEALTHY, "it is healthy", PATIENCE_S
    )
    return answer


def wait_problem(system: LeadlineSystem, *expected: str) -> dict[str, Any]:
    """Wait until `leadline status` names one of these problems, with exit code 1."""
    code, answer = eventually(
        lambda: status(system),
        lambda seen: kinds(seen[1]) & set(expected),
        f"{expected} are named",
        PATIENCE_S,
    )
    assert code == DEGRADED
    return answer


def text(system: LeadlineSystem, *question: str) -> str:
    code, out = called(system, *question)
    print(f"$ leadline {' '.join(question)}   # exit code {code}\n{out}")
    return out


@pytest.mark.timeout(600)
def test_a_running_system_is_healthy(system: LeadlineSystem) -> None:
    wait_healthy(system)
    answer = eventually(
        lambda: status(system)[1],
        lambda seen: seen["boards"]["reporting"] == len(BOARDS) and seen["broker"]["rtt_ms"],
        "all boards report, and the broker's round trip is measured",
        PATIENCE_S,
    )
    text(system, "status")
    assert answer["leadership"]["leads"] is True
    assert answer["modes"] == ["standalone"]
    assert answer["api_server"]["listed"] is True
    assert answer["api_server"]["failures"] == []
    assert answer["api_server"]["watched_age_s"] >= 0
    assert answer["database"]["path"].endswith("decisions.db")
    assert answer["database"]["size_bytes"] > 0
    assert {each["setting"] for each in answer["certificates"]} >= {
        "broker.tls.ca_file",
        "broker.tls.cert_file",
    }
    assert all(each["left_s"] > 0 for each in answer["certificates"])
    assert {"broker", "API server", "boards", "certificates"} <= set(answer["fine"])


@pytest.mark.timeout(600)
def test_with_the_broker_frozen_nothing_is_claimed_of_the_boards(system: LeadlineSystem) -> None:
    wait_healthy(system)
    with frozen(system.broker.pid):
        answer = wait_problem(system, "broker-silent", "broker-away")
        assert "API server" in answer["fine"]
        assert answer["boards"]["reporting"] == 0
        shown = text(system, "status")
        assert f"broker 127.0.0.1:{system.broker.port}" in shown
        assert "systemctl status mosquitto" in text(system, "doctor")
        nodes = agents(system)
        assert {each["agent"] for each in nodes.values()} == {"unknown"}
        assert all("the broker does not answer" in each["notes"] for each in nodes.values())
        assert "broker" in text(system, "version")
        wait_problem(system, "broker-away")  # it leaves the dead session, and finds no other
    wait_healthy(system)
    eventually(
        lambda: {each["agent"] for each in agents(system).values()},
        lambda seen: seen == {"online"},
        "all boards are online again",
        PATIENCE_S,
    )


@pytest.mark.timeout(600)
def test_with_the_api_server_frozen_it_does_not_lead(system: LeadlineSystem) -> None:
    wait_healthy(system)
    with frozen(system.plane.pid):
        answer = wait_problem(system, "api-server-away")
        assert "broker" in answer["fine"]
        assert answer["api_server"]["failures"]
        eventually(
            lambda: status(system)[1]["leadership"]["leads"],
            lambda leads: leads is False,
            "the Lease has ended",
            PATIENCE_S,
        )
        assert "API server https://" in text(system, "status")
        assert "kubectl get --raw /readyz" in text(system, "doctor")
        shown = text(system, "version")
        assert "leads" not in shown.replace("does not lead", "")
        assert "API server" in shown
    wait_healthy(system)

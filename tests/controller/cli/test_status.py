"""`leadline status` and `leadline doctor` against a real inspection server."""

import io
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from leadline_controller import __version__
from leadline_controller.cli.__main__ import run
from leadline_controller.cli.status import overview
from leadline_controller.framework.ports import ForbiddenError, UnavailableError
from leadline_controller.history.recording import RecordingStatus
from leadline_controller.history.times import Moment
from leadline_controller.inspect.parts import Delivery
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.rescheduling.journal import Journal, Pause
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.scheduling.queue import QueueStatus
from leadline_controller.serve.certificates import CertificateFile
from leadline_controller.telemetry.session import BrokerStatus
from leadline_wire.v1 import status_pb2 as pb
from rich.console import Console

from tests.controller.cli.calling import Leadline
from tests.controller.inspect.harness import (
    ControllerHarness,
    account,
    example_controller,
)
from tests.support.certificates import Authority
from tests.support.ports import free_port

HEALTHY, DEGRADED, UNREACHABLE = 0, 1, 3


class Parts:
    """The parts of a controller that a test sets."""

    def __init__(self, harness: ControllerHarness) -> None:
        self.harness = harness
        self.source, now_s = harness.source, harness.now_s
        self.source.broker = BrokerStatus("10.0.0.2:8883", True, now_s - 100, now_s - 1, 0.8)
        self.server = ReachabilityLog("https://10.0.0.1:6443", lambda: harness.now_s)
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            self.server.succeeded(path)
        self.certificates: list[CertificateFile] = []
        self.source.api_server, self.source.certificates = self.server, self.certificates


@pytest.fixture
def parts() -> Parts:
    harness = example_controller()
    harness.report("n2")  # with its voltage back
    harness.decisions.set_outcome("default/web-2", "bound")
    return Parts(harness)


@pytest.fixture
def harness(parts: Parts) -> ControllerHarness:
    return parts.harness


async def told(leadline: Leadline) -> tuple[int, Any]:
    answer = await leadline("status", "-o", "json")
    return answer.code, json.loads(answer.out)


async def test_a_healthy_controller(leadline: Leadline) -> None:
    shown = await leadline("status")
    assert (shown.code, shown.err) == (HEALTHY, ""), shown
    for said in (
        __version__,
        "leads",
        "standalone",
        "netsched",
        "10.0.0.2:8883: connected for",
        "round trip 0.8 ms",
        "https://10.0.0.1:6443: answered 0s ago",
        "3 of 4 report",
        "none waits",
        "default/web-2 -> n1 by netsched, bound",
        "kept in memory",
    ):
        assert said in shown.out, shown.out
    assert shown.out.splitlines()[-1] == "healthy"
    assert "\x1b" not in shown.out
    assert "bandwidth=2" in (await leadline("status", "-o", "wide")).out


@pytest.mark.parametrize("command", ["status", "doctor"])
async def test_both_are_the_same_in_json_and_yaml(leadline: Leadline, command: str) -> None:
    as_json = await leadline(command, "-o", "json")
    as_yaml = await leadline(command, "-o", "yaml")
    data = json.loads(as_json.out)
    assert data.keys() == yaml.safe_load(as_yaml.out).keys()
    assert data["healthy"] is True
    assert data["broker"]["rtt_ms"] == pytest.approx(0.8)
    assert data["rescheduling"]["mode"] == "off"
    assert data["database"]["free_bytes"] is None


@pytest.mark.parametrize("command", ["status", "doctor"])
async def test_for_cron_nothing_is_printed_while_all_is_well(
    parts: Parts, leadline: Leadline, command: str
) -> None:
    assert await leadline(command, "--quiet") == (HEALTHY, "", "")
    parts.source.stuck = ["measuring"]
    shown = await leadline(command, "--quiet")
    assert shown.code == DEGRADED
    assert "stuck: measuring" in shown.out


async def test_a_silent_broker_is_named_and_no_board_is_online(
    parts: Parts, leadline: Leadline
) -> None:
    parts.source.broker = replace(parts.source.broker, heard_s=parts.harness.now_s - 65)
    shown = await leadline("status")
    assert shown.code == DEGRADED
    (line,) = [line for line in shown.out.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: broker 10.0.0.2:8883: does not answer for 65 s")
    assert "0 of 4 report" in shown.out
    nodes = json.loads((await leadline("nodes", "-o", "json")).out)["nodes"]
    assert {each["agent"] for each in nodes} == {"unknown"}
    assert f"{__version__}, leads; cannot reach the broker" in (await leadline("version")).out


async def test_what_the_broker_does_not_allow_is_in_its_line(
    parts: Parts, leadline: Leadline
) -> None:
    limit = "it retains nothing, so all is forgotten"
    parts.source.broker = replace(parts.source.broker, limits=(limit,))
    outcome = await leadline("status", "-o", "json")
    assert outcome.code == HEALTHY
    assert json.loads(outcome.out)["broker"]["limits"] == [limit]
    assert limit in " ".join((await leadline("status")).out.split())


async def test_a_broker_without_a_session_says_why(parts: Parts, leadline: Leadline) -> None:
    parts.source.broker = replace(
        parts.source.broker, connected=False, why="Connection refused", rtt_ms=None
    )
    code, answer = await told(leadline)
    assert code == DEGRADED
    assert answer["problems"][0]["kind"] == "broker-away"
    assert "Connection refused" in answer["problems"][0]["what"]
    assert answer["broker"]["rtt_ms"] is None


async def test_an_api_server_that_is_away(parts: Parts, leadline: Leadline) -> None:
    parts.server.failed("/lease", UnavailableError("no answer in time"))
    parts.harness.now_s += 30
    parts.harness.turn.leading = False
    parts.source.broker = replace(parts.source.broker, heard_s=parts.harness.now_s)
    for name in ("n1", "n2", "guest"):
        parts.harness.report(name)
    code, answer = await told(leadline)
    assert code == DEGRADED
    assert [each["kind"] for each in answer["problems"]][:2] == ["api-server-away", "no-leader"]
    shown = (await leadline("version")).out
    assert "does not lead; cannot reach the API server" in shown
    assert "this-one" not in shown
    parts.server.succeeded("/lease")
    parts.harness.turn.leading = True
    assert (await told(leadline))[0] == HEALTHY


async def test_a_refusal_is_no_outage(parts: Parts, leadline: Leadline) -> None:
    parts.server.failed("/api/v1/nodes", ForbiddenError("403: not you"))
    code, answer = await told(leadline)
    assert code == DEGRADED
    assert answer["problems"][0]["kind"] == "api-server-refuses"
    assert "API server" not in (await leadline("version")).out


async def test_a_board_whose_reports_end_is_silent(parts: Parts, leadline: Leadline) -> None:
    parts.harness.now_s += 61
    parts.source.broker = replace(parts.source.broker, heard_s=parts.harness.now_s)
    parts.harness.report("n2")
    nodes = json.loads((await leadline("nodes", "-o", "json")).out)["nodes"]
    assert {each["name"]: each["agent"] for each in nodes} == {
        "guest": "silent",
        "n1": "silent",
        "n2": "online",
        "n3": "unknown",
    }
    code, answer = await told(leadline)
    assert code == DEGRADED
    where = {each["kind"]: each["where"] for each in answer["problems"]}
    assert where == {
        "few-boards-report": "boards",
        "board-silent": "boards guest, n1",
        "board-without-agent": "board n3",
    }


async def test_whether_notifications_arrive(parts: Parts, leadline: Leadline) -> None:
    parts.source.delivery = delivery = Delivery("ntfy at ntfy.lan")
    assert "ntfy at ntfy.lan: none sent yet" in (await leadline("status")).out
    delivery.since_s = parts.harness.now_s - 300
    assert "ntfy at ntfy.lan: the last one arrived 5m ago" in (await leadline("status")).out
    delivery.problem = "no answer within 10 s"
    shown = await leadline("doctor", "-o", "wide")
    assert shown.code == DEGRADED
    for said in (
        "warning: notifications ntfy at ntfy.lan: the last one has not arrived for 5 min: no",
        "ntfy at ntfy.lan: the last one has not arrived for 5m (no answer within 10 s)",
    ):
        assert said in shown.out, shown.out


class Recorded:
    """A recording that is as a test says."""

    problem, missed = "", 0

    def status(self) -> RecordingStatus:
        return RecordingStatus(Path("/d/recordings"), 3 << 20, self.problem, self.missed)


async def test_whether_it_records(parts: Parts, leadline: Leadline) -> None:
    assert "recording" not in (await leadline("status")).out
    parts.source.recording = recorded = Recorded()
    assert "/d/recordings, 3Mi" in (await leadline("status")).out
    recorded.missed = 7
    shown = await leadline("doctor")
    assert shown.code == 0
    assert "note: recording /d/recordings: 7 entries since the start are not in it" in shown.out
    recorded.problem = "No space left on device"
    shown = await leadline("doctor", "-o", "wide")
    assert shown.code == DEGRADED
    assert shown.out.count("recording /d/recordings") == 1
    assert "nothing is recorded: No space left on device" in shown.out
    assert "/d/recordings, 3Mi; off: No space left on device" in shown.out


async def test_the_doctor_spells_out_what_to_do(parts: Parts, leadline: Leadline) -> None:
    parts.harness.report("n2", notes=("under-voltage", "throttled"))
    parts.source.queue = QueueStatus(
        active=1, unschedulable=2, unschedulable_pods=("default/huge",)
    )
    shown = await leadline("doctor")
    assert shown.code == DEGRADED
    for said in (
        "warning: board n2: the supply voltage is too low",
        "vcgencmd get_throttled",
        "warning: pods default/huge and 1 more: 2 pods fit on no node",
        "leadline explain default/huge",
        "docs/troubleshooting.md, pods-unschedulable",
        "checked and fine: controller, broker, API server",
        "degraded: 3 warnings",
    ):
        assert said in shown.out, shown.out


async def test_certificates_that_end(parts: Parts, tmp_path: Path, leadline: Leadline) -> None:
    authority = Authority(tmp_path)
    good, old = authority.client("good"), authority.client("old", days="-1")
    soon = authority.client("soon", days="3")
    (tmp_path / "broken.pem").write_text("no certificate")
    now_s = parts.harness.now_s
    parts.harness.decisions.now = lambda: Moment("boot", now_s, time.time() - now_s)
    parts.certificates.extend(
        [
            CertificateFile("broker.tls.cert_file", good.cert_file),
            CertificateFile("grpc.tls.cert_file", old.cert_file),
            CertificateFile("keda.tls.cert_file", soon.cert_file),
            CertificateFile("extender.tls.cert_file", tmp_path / "broken.pem"),
        ]
    )
    code, answer = await told(leadline)
    assert code == DEGRADED
    problems = {each["kind"]: each["where"] for each in answer["problems"]}
    assert problems.pop("board-without-agent")
    assert {kind: where.split()[0] for kind, where in problems.items()} == {
        "certificate-expired": "grpc.tls.cert_file",
        "certificate-ending": "keda.tls.cert_file",
        "certificate-unreadable": "extender.tls.cert_file",
    }


async def test_a_clock_that_was_never_set_cannot_tell_when_anything_ends(
    parts: Parts, tmp_path: Path, leadline: Leadline
) -> None:
    good = Authority(tmp_path).client("good")
    parts.certificates.append(CertificateFile("broker.tls.cert_file", good.cert_file))
    parts.harness.decisions.now = lambda: Moment("boot", parts.harness.now_s, None)
    journal = Journal.__new__(Journal)
    journal.pause, journal._notes = Pause(1.8e9, 1.9e9), ()
    rescheduler = SimpleNamespace(
        now_unix_s=lambda: None,
        journal=journal,
        settings=ReschedulingSettings(),
        running=None,
    )
    parts.source.rescheduler = rescheduler
    code, answer = await told(leadline)
    assert code == HEALTHY
    assert answer["certificates"] == []
    assert answer["rescheduling"]["paused"] is True
    assert answer["rescheduling"]["pause_left_s"] is None


async def test_the_budget_of_all_boards_is_not_read_in_the_event_loop(
    parts: Parts, leadline: Leadline
) -> None:
    readers = []

    def budget(_now_s: float) -> ProbingStatus:
        readers.append(threading.current_thread())
        return ProbingStatus()

    parts.source.probe_scheduler.budget = budget
    assert (await told(leadline))[0] == HEALTHY
    assert readers
    assert threading.main_thread() not in readers


async def test_an_uplink_whose_next_test_waits_for_hours_is_told(
    parts: Parts, leadline: Leadline
) -> None:
    waits = replace(account("lte"), bytes_wait_s=5 * 3600.0)
    soon = replace(account("n1"), bytes_wait_s=2700.0)
    budget = ProbingStatus(nodes=(soon,), uplinks=(waits,))
    parts.source.probe_scheduler.budget = lambda _now_s: budget
    code, answer = await told(leadline)
    assert code == HEALTHY, "a note"
    (problem,) = (p for p in answer["problems"] if p["kind"] == "probing-budget-spent")
    assert (problem["where"], problem["severity"]) == ("probing of lte", "note")


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_a_controller_that_cannot_be_reached(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run([command, "--quiet", "--address", f"127.0.0.1:{free_port()}"]) == UNREACHABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "systemctl status leadline-controller" in captured.err


async def test_it_tells_whether_the_strategy_is_named_or_kept(
    parts: Parts, leadline: Leadline
) -> None:
    for kept, told_so in ((False, "netsched"), (True, "netsched, kept (strategy.name is not set)")):
        parts.source.keeps_strategy = kept
        (line,) = (
            line for line in (await leadline("status")).out.splitlines() if "strategy" in line
        )
        assert line.split(maxsplit=1) == ["strategy", told_so]
        assert (await told(leadline))[1]["strategy_kept"] is kept


def test_the_line_of_a_part_with_a_problem_is_red() -> None:
    answer = pb.GetStatusResponse()
    answer.leadership.leads = True
    answer.boards.boards.add(name="n1", agent="offline")
    answer.certificates.add(setting="grpc.tls.cert_file", path="/c.pem", left_s=-1)
    on = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
    on.print(next(overview(answer, wide=False)))
    assert isinstance(on.file, io.StringIO)
    lines = on.file.getvalue().splitlines()
    names = [
        line.removeprefix("\x1b[1m").split("\x1b")[0].strip()
        for line in lines
        if "\x1b[31m" in line
    ]
    assert names == ["boards", "certificates"]


async def test_names_of_others_cannot_rewrite_the_screen(parts: Parts, leadline: Leadline) -> None:
    parts.source.broker = replace(parts.source.broker, connected=False, why="\x1b[2J\nhealthy")
    shown = await leadline("status")
    assert "\x1b" not in shown.out
    assert shown.out.splitlines()[-1].startswith("degraded: ")

"""What is wrong, from answers made by hand: one for each kind of problem."""

import pytest
from google.protobuf.text_format import Merge
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.inspect.problem_kinds import KINDS, SEVERITIES
from leadline_controller.inspect.problems import CHECKS, assess, is_bad
from leadline_wire.v1 import status_pb2 as pb

HEALTHY = """
  version: "1.2.3" up_s: 3600 modes: "standalone" strategy: "dacs"
  broker { address: "b:8883" connected: true since_s: 3000 heard_age_s: 1 answers: true rtt_ms: 2 }
  api_server { url: "https://k:6443" listed: true answered_age_s: 1 watched_age_s: 30 }
  leadership { leads: true holder: "me" }
  boards { total: 2 reporting: 2 median_age_s: 4 oldest_age_s: 9 }
  probing { allowed_share: 0.001 }
  queue { }
  last_decision { pod: "default/web" node: "n1" outcome: "bound" age_s: 5 }
  database { path: "/d/decisions.db" size_bytes: 1000 free_bytes: 10000000000 }
  rescheduling { mode: "off" }
  notifications { receiver: "ntfy at h" }
  recording { folder: "/d/recordings" size_bytes: 1000 }
  certificates { setting: "broker.tls.cert_file" path: "/c.pem" left_s: 9000000 }
"""
# Kind of problem -> what makes the healthy one have it.
FAULTS = {
    "broker-away": 'broker { connected: false since_s: 65 why: "refused" answers: false }',
    "broker-silent": "broker { answers: false heard_age_s: 65 }",
    "broker-refuses": 'broker { refused: "report" }',
    "api-server-away": 'api_server { failures { path: "/p" error: "no answer" since_s: 6 } }',
    "api-server-refuses": 'api_server { failures { path: "/p" error: "403" refused: true } }',
    "cluster-unread": "api_server { listed: false }",
    "no-leader": 'leadership { leads: false holder: "" }',
    "loop-stuck": 'stuck: "measuring"',
    "few-boards-report": "boards { total: 9 reporting: 4 }",
    "address-taken": 'unserved { where: "web address h:1" what: "cannot listen there" since_s: 9 }',
    "board-offline": 'boards { boards { name: "n1" agent: "offline" } }',
    "board-silent": 'boards { boards { name: "n1" agent: "silent" report_age_s: 90 } }',
    "board-without-agent": 'boards { boards { name: "n1" agent: "unknown" } }',
    "board-under-voltage": 'boards { boards { name: "n1" states: "under-voltage" agent: "online"}}',
    "board-throttled": 'boards { boards { name: "n1" agent: "online" states: "throttled" } }',
    "board-host-limited": 'boards { boards { name: "n1" agent: "online" states: "host-limited" } }',
    "board-contradicting": 'boards { boards { name: "n1" agent: "online" '
    'states: "round trips contradict" } }',
    "board-collector-failed": 'boards { boards { name: "n1" agent: "online" '
    'states: "cpu failed" } }',
    "board-clock-skewed": 'boards { boards { name: "n1" agent: "online" clock_ahead_s: -600 } }',
    "reports-late": "boards { median_age_s: 45 }",
    "probing-budget-spent": 'probing { spent: "n1" }',
    "pods-unschedulable": 'queue { unschedulable: 1 unschedulable_pods: "default/giant" }',
    "binding-failed": 'last_decision { outcome: "failed: 500: no" }',
    "database-unwritable": 'database { error: "database or disk is full" }',
    "database-hangs": "database { late_s: 40 }",
    "decisions-lost": "database { lost: 3 }",
    "disk-nearly-full": "database { free_bytes: 1000000 }",
    "rescheduling-paused": "rescheduling { paused: true }",
    "notification-lost": 'notifications { receiver: "ntfy at h" error: "no answer" age_s: 9 }',
    "recording-off": 'recording { error: "No space left on device" }',
    "recording-gaps": "recording { missed: 3 }",
    "certificate-expired": 'certificates { setting: "s" path: "/x.pem" left_s: -60 }',
    "certificate-ending": 'certificates { setting: "s" path: "/x.pem" left_s: 86400 }',
    "certificate-unreadable": 'certificates { setting: "s" path: "/x.pem" }',
}


def status_of(*faults: str) -> pb.GetStatusResponse:
    made = pb.GetStatusResponse()
    for text in (HEALTHY, *faults):
        Merge(text, made)
    return made


def kinds(status: pb.GetStatusResponse) -> list[str]:
    return [each.kind for each in assess(status)[0]]


def test_a_healthy_controller_has_no_problem_and_all_parts_are_fine() -> None:
    assert assess(status_of()) == ([], list(CHECKS))


def test_there_is_an_example_of_each_kind() -> None:
    assert FAULTS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_one_problem_of_its_kind(kind: str) -> None:
    problems, fine = assess(status_of(FAULTS[kind]))
    assert [each.kind for each in problems] == [kind]
    (problem,) = problems
    assert problem.severity == KINDS[kind].severity
    assert problem.where
    assert problem.what
    assert problem.remedy
    assert "BOARD" not in "".join(problem.commands)
    assert "POD" not in "".join(problem.commands)
    assert (len(fine) == len(CHECKS)) == (not is_bad(problem))


NOTHING_REPORTS = "boards { total: 400 reporting: 0 }"


def boards(count: int, agent: str) -> str:
    return "".join(
        f'boards {{ boards {{ name: "n{at}" agent: "{agent}" }} }}' for at in range(count)
    )


def without(*fields: str) -> pb.GetStatusResponse:
    made = status_of()
    for field in fields:
        made.ClearField(field)
    return made


@pytest.mark.parametrize("agent", ["offline", "silent", "unknown"])
def test_it_is_an_error_when_no_board_reports(agent: str) -> None:
    status = status_of(NOTHING_REPORTS, boards(400, agent))
    status.boards.ClearField("median_age_s")
    problems, fine = assess(status)
    assert (problems[0].kind, problems[0].severity) == ("few-boards-report", "error")
    assert problems[0].what == "none reports, of 400"
    assert not {"boards", "reports"} & set(fine)


@pytest.mark.parametrize(
    ("agents", "reporting", "is_error"), [(400, 199, True), (400, 200, False), (2, 1, False)]
)
def test_a_large_share_of_boards_without_reports_is_an_error(
    agents: int, reporting: int, is_error: bool
) -> None:
    counts = f"boards {{ total: {agents + 50} reporting: {reporting} }}"
    found = kinds(status_of(counts, boards(50, "unknown")))  # the 50 may be meant to have no agent
    assert ("few-boards-report" in found) == is_error


@pytest.mark.parametrize("state", ["throttled", "under-voltage", "round trips contradict"])
@pytest.mark.parametrize(
    ("total", "affected", "severity"),
    [(9, 4, "warning"), (9, 5, "error"), (2, 2, "error"), (1, 1, "warning")],
)
def test_a_warning_about_most_boards_is_an_error(
    state: str, total: int, affected: int, severity: str
) -> None:
    status = status_of(f"boards {{ total: {total} reporting: {total} }}")
    for at in range(affected):
        status.boards.boards.add(name=f"n{at}", agent="online", states=[state])
    assert [each.severity for each in assess(status)[0]] == [severity]


def test_a_note_stays_a_note_on_all_boards() -> None:
    assert {each.severity for each in assess(status_of(boards(2, "unknown")))[0]} == {"note"}


@pytest.mark.parametrize("since", ["up_s: {}", "broker {{ since_s: {} }}"])
def test_boards_have_time_to_report_after_a_start(since: str) -> None:
    late = "boards { report_ttl_s: 60 }"
    assert "few-boards-report" not in kinds(status_of(NOTHING_REPORTS, late, since.format(59)))
    assert "few-boards-report" in kinds(status_of(NOTHING_REPORTS, late, since.format(60)))


@pytest.mark.parametrize(
    ("field", "part"),
    [
        *(("broker", "broker"), ("api_server", "API server"), ("boards", "boards")),
        *(("boards", "reports"), ("probing", "probing"), ("database", "database")),
        *(("rescheduling", "rescheduling"), ("certificates", "certificates")),
    ],
)
def test_nothing_is_fine_that_was_not_there_to_check(field: str, part: str) -> None:
    problems, fine = assess(without(field))
    assert part not in fine
    assert problems == []


@pytest.mark.parametrize(
    ("fault", "unknown"), [("cluster-unread", {"pods"}), ("broker-away", {"boards", "reports"})]
)
def test_nothing_is_fine_that_cannot_be_known(fault: str, unknown: set[str]) -> None:
    assert not unknown & set(assess(status_of(FAULTS[fault]))[1])


def test_of_nothing_only_the_loops_are_fine() -> None:
    assert set(assess(pb.GetStatusResponse())[1]) == {"controller"}


def test_the_worst_comes_first() -> None:
    found = assess(status_of(*FAULTS.values()))[0]
    ranks = [SEVERITIES.index(each.severity) for each in found]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert ranks[-1] == 2


@pytest.mark.parametrize("kind", ["broker-away", "broker-silent"])
def test_without_a_broker_nothing_is_said_of_silent_boards(kind: str) -> None:
    silent = 'boards { boards { name: "n1" agent: "unknown" } boards { name: "n2" agent: "silent"}}'
    assert kinds(status_of(FAULTS[kind], silent)) == [kind]


@pytest.mark.parametrize(
    "healthy",
    [
        # A request that has just failed, a standby, and a binding that failed long ago.
        'api_server { failures { path: "/p" error: "reset" since_s: 1 } }',
        'leadership { leads: false holder: "the-other" }',
        'last_decision { outcome: "failed: the pod is on n2" age_s: 900 }',
        "boards { median_age_s: 45 report_ttl_s: 180 }",  # they report seldom
    ],
)
def test_what_is_no_problem_or_not_yet(healthy: str) -> None:
    assert kinds(status_of(healthy)) == []


def test_boards_that_report_seldom_are_late_as_well() -> None:
    assert kinds(status_of("boards { median_age_s: 95 report_ttl_s: 180 }")) == ["reports-late"]


def test_a_standby_that_cannot_read_the_lease_does_not_know_who_leads() -> None:
    standby = 'leadership { leads: false holder: "the-other" }'
    problems, _ = assess(status_of(standby, FAULTS["api-server-away"]))
    assert [each.kind for each in problems] == ["api-server-away", "no-leader"]
    assert "the last one known is the-other" in problems[1].what


def test_boards_of_one_kind_are_one_line() -> None:
    boards = "".join(
        f'boards {{ boards {{ name: "n{at}" agent: "silent" }} }}' for at in range(300)
    )
    (problem,) = assess(status_of(boards))[0]
    assert problem.where == "boards n0, n1, n2, n3, n4, n5, n6, n7 and 292 more"


def test_clocks_that_differ_are_one_line_with_the_largest_difference() -> None:
    clocks = "".join(
        f'boards {{ boards {{ name: "n{s}" agent: "online" clock_ahead_s: {s} }} }}'
        for s in (3, 600, -7200)
    )
    (problem,) = assess(status_of(clocks))[0]
    assert problem.where == "boards n600, n-7200"
    assert "by up to 2 h" in problem.what


def test_the_commands_name_the_pod() -> None:
    (problem,) = assess(status_of(FAULTS["pods-unschedulable"]))[0]
    assert list(problem.commands) == [
        "leadline explain default/giant",
        "kubectl -n default describe pod giant",
    ]


@given(st.text(max_size=2000))
def test_what_others_wrote_stays_one_short_line(text: str) -> None:
    status = status_of()
    status.api_server.failures.add(path="/p", error=text, since_s=60)
    (problem,) = assess(status)[0]
    assert len(problem.what) < 400
    assert len(problem.what.splitlines()) <= 1


def test_an_empty_reading_is_no_error() -> None:
    """As of a controller in the lab, which has no API server and no database."""
    assert kinds(pb.GetStatusResponse()) == ["no-leader"]

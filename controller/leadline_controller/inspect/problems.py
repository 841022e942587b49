"""What is wrong with a controller, from the answer of GetStatus. Pure.

Each check looks at one part.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leadline_wire.v1 import status_pb2 as pb

from leadline_controller.inspect.problem_kinds import KINDS, SEVERITIES

# What a controller reaches, as its answers call it. The commands import this module: it imports
# nothing of the controller's but the kinds.
BROKER, API_SERVER = "broker", "API server"

FAILING_S = 5.0  # a single request that fails is repeated at once
LATE_S = 30.0
RECENT_S = 600.0  # a pod whose binding failed is tried again within seconds
ENDING_S = 14 * 86_400.0
LEAST_FREE_BYTES = 100 * 2**20
SKEWED_S = 10.0
_MOST_NAMES = 8
_MOST_TEXT = 300


def assess(status: pb.GetStatusResponse) -> tuple[list[pb.Problem], list[str]]:
    """The problems, the worst first, and the parts that were checked and are fine,
    `status.problems` aside."""
    found: list[pb.Problem] = []
    fine: list[str] = []
    for part, check in CHECKS.items():
        problems = list(check.problems(status))
        found += problems
        if check.applies(status) and not any(is_bad(each) for each in problems):
            fine.append(part)
    ranks: dict[str, int] = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    return sorted(found, key=lambda each: ranks[each.severity]), fine


def bad_parts(status: pb.GetStatusResponse) -> list[str]:
    """The parts with a problem that is worse than a note."""
    return [part for part, check in CHECKS.items() if any(map(is_bad, check.problems(status)))]


def is_bad(problem: pb.Problem) -> bool:
    """Whether it makes a controller unhealthy."""
    return problem.severity != "note"


def _problem(
    kind: str,
    where: str,
    what: str,
    *,
    subjects: Sequence[str] = (),
    is_wide: bool = False,
    **names: str,
) -> pb.Problem:
    """subjects: `where`, if there are none. is_wide: it affects so much that a warning is an error.
    names: what stands for BOARD, POD, NAMESPACE and NAME in the commands."""
    how = KINDS[kind]
    commands = list(how.commands)
    for name, value in names.items():
        commands = [each.replace(name, value) for each in commands]
    text = " ".join(what.split())
    if len(text) > _MOST_TEXT:
        text = f"{text[:_MOST_TEXT]} ..."
    return pb.Problem(
        kind=kind,
        severity="error" if is_wide and how.severity == "warning" else how.severity,
        where=where,
        what=text,
        remedy=how.remedy,
        commands=commands,
        subjects=subjects or [where],
    )


def _broker(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    if not status.HasField("broker"):
        return
    broker = status.broker
    where = f"{BROKER} {broker.address}"
    unknown = "so nothing is known of the boards"
    if not broker.connected:
        why = f" ({broker.why})" if broker.why else ""
        what = f"no session for {duration(broker.since_s)}{why}, {unknown}"
        yield _problem("broker-away", where, what)
    elif not broker.answers:
        silent_s = broker.heard_age_s if broker.HasField("heard_age_s") else broker.since_s
        what = f"does not answer for {duration(silent_s)}, {unknown}"
        yield _problem("broker-silent", where, what)
    elif broker.refused:
        what = f"does not let the controller read {', '.join(broker.refused)}"
        yield _problem("broker-refuses", where, what)


def _api_server(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    if not status.HasField("api_server"):
        return
    server = status.api_server
    where = f"{API_SERVER} {server.url}"
    away = [each for each in server.failures if _is_away(each)]
    if away:
        longest = max(away, key=lambda each: each.since_s)
        what = f"cannot be reached for {duration(longest.since_s)}: {longest.error}"
        yield _problem("api-server-away", where, what)
    for each in [each for each in server.failures if each.refused][:_MOST_NAMES]:
        yield _problem("api-server-refuses", where, f"refuses {each.path}: {each.error}")
    if not away and not server.listed:
        what = f"nodes and pods are not read yet, {duration(status.up_s)} after the start"
        yield _problem("cluster-unread", where, what)


def _is_away(failure: pb.RequestFailure) -> bool:
    return not failure.refused and failure.since_s >= FAILING_S


def _leadership(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    leadership = status.leadership
    away = any(_is_away(each) for each in status.api_server.failures)
    if leadership.leads or (leadership.holder and not away):
        return
    last = f"; the last one known is {leadership.holder}" if leadership.holder else ""
    what = f"this controller does not lead, and it is not known that another one does{last}"
    yield _problem("no-leader", "leadership", what)


def _stuck(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    if status.stuck:
        yield _problem("loop-stuck", "controller", f"stuck: {', '.join(status.stuck)}")


def _servers(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    for each in status.unserved:
        yield _problem("address-taken", each.where, f"{each.what}, for {duration(each.since_s)}")


FAILED = " failed"  # the end of the state of a board whose collector or probe failed
_STATES = {
    "under-voltage": ("board-under-voltage", "the supply voltage is too low"),
    "throttled": ("board-throttled", "throttled"),
    "host-limited": ("board-host-limited", "busy in the last bandwidth test"),
}


def _of_state(state: str) -> tuple[str, str]:
    """Kind of problem, and what is wrong."""
    if state.endswith(FAILED):
        return "board-collector-failed", f"{state}, so what it reads is unknown"
    return _STATES.get(state, ("board-contradicting", f"{state} its peers'"))


def _broker_answers(status: pb.GetStatusResponse) -> bool:
    """Whether reports can arrive."""
    return not status.HasField("broker") or status.broker.answers


def _few_report(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    """That fewer than half of the boards report, once each has had the time to."""
    boards = status.boards
    time_s = min(status.up_s, status.broker.since_s) if status.HasField("broker") else status.up_s
    if not boards.total or not _broker_answers(status) or time_s < max(LATE_S, boards.report_ttl_s):
        return
    # A board without an agent may be meant to have none, but not all of them.
    agents = boards.total - sum(each.agent == "unknown" for each in boards.boards)
    if not boards.reporting:
        yield _problem("few-boards-report", "boards", f"none reports, of {boards.total}")
    elif boards.reporting < agents / 2:
        what = f"{boards.reporting} of the {agents} that have an agent report"
        yield _problem("few-boards-report", "boards", what)


_AGENTS = {
    "offline": ("board-offline", "the agent is offline"),
    "silent": ("board-silent", "online by their last word, but reports have ended"),
    "unknown": ("board-without-agent", "no agent was ever heard"),
}


def of_boards(status: pb.GetStatusResponse) -> Iterator[tuple[str, str, str]]:
    """What is wrong with each board: its name, the kind of problem, and what in words that are the
    same for all boards."""
    skewed = [
        board
        for board in status.boards.boards
        if board.HasField("clock_ahead_s") and abs(board.clock_ahead_s) >= SKEWED_S
    ]
    for board in status.boards.boards:
        if _broker_answers(status) and board.agent in _AGENTS:
            yield (board.name, *_AGENTS[board.agent])
        for state in board.states:
            yield (board.name, *_of_state(state))
    for board in skewed:
        most = duration(max(abs(each.clock_ahead_s) for each in skewed))
        what = f"the clock differs from the controller's by up to {most}"
        yield board.name, "board-clock-skewed", what


def _boards(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    yield from _few_report(status)
    names: dict[tuple[str, str], list[str]] = {}
    for board, kind, what in of_boards(status):
        names.setdefault((kind, what), []).append(board)
    for (name, what), boards in names.items():
        where = f"board{'s' if len(boards) > 1 else ''} {listed(boards)}"
        is_wide = len(boards) > max(1, status.boards.total / 2)
        yield _problem(name, where, what, subjects=boards, is_wide=is_wide, BOARD=boards[0])


def _reports(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    boards = status.boards
    # Agents may report seldom, with a longer time to live.
    if boards.HasField("median_age_s") and boards.median_age_s > max(
        LATE_S, boards.report_ttl_s / 2
    ):
        what = f"half of the boards' newest reports are older than {duration(boards.median_age_s)}"
        yield _problem("reports-late", "reports", what)


def _probing(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    if status.probing.spent:
        what = "the bytes of the day are spent: the next bandwidth test waits for an hour or more"
        where = f"probing of {listed(status.probing.spent)}"
        yield _problem("probing-budget-spent", where, what)


def _pods(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    queue = status.queue
    if queue.unschedulable:
        pods = list(queue.unschedulable_pods)
        count = queue.unschedulable
        what = f"{count} pod{' fits' if count == 1 else 's fit'} on no node"
        where = f"pods {listed(pods, count)}"
        pod = pods[0] if pods else "NAMESPACE/NAME"
        namespace, _, name = pod.partition("/")
        yield _problem(
            "pods-unschedulable",
            where,
            what,
            subjects=["pods"],
            POD=pod,
            NAMESPACE=namespace,
            NAME=name,
        )
    last = status.last_decision
    if last.outcome.startswith("failed") and last.age_s < RECENT_S:
        what = f"the last binding {last.outcome}"
        where = f"pod {last.pod}"
        yield _problem("binding-failed", where, what, subjects=["pods"], POD=last.pod)


def can_end(kind: str, status: pb.GetStatusResponse) -> bool:
    """Whether a problem of this kind that is not there is over. Without a broker nothing is known
    of the boards."""
    return _broker_answers(status) or not kind.startswith(("board-", "few-boards-", "reports-"))


def _knows_pods(status: pb.GetStatusResponse) -> bool:
    is_read = status.api_server.listed or not status.HasField("api_server")
    return is_read and (status.HasField("queue") or status.HasField("last_decision"))


def _database(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    database = status.database
    where = f"database {database.path}"
    if not database.path:
        return
    if database.error:
        yield _problem("database-unwritable", where, database.error)
    if database.late_s > LATE_S:
        what = f"the disk has not answered for {duration(database.late_s)}"
        yield _problem("database-hangs", where, what)
    if database.lost:
        what = f"{database.lost} changes of decisions are lost since the start"
        yield _problem("decisions-lost", where, what)
    if database.HasField("free_bytes") and database.free_bytes < LEAST_FREE_BYTES:
        what = f"{database.free_bytes // 2**20} MiB are free on its disk"
        yield _problem("disk-nearly-full", where, what)


def _recording(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    recording = status.recording
    where = f"recording {recording.folder}"
    if recording.error:
        yield _problem("recording-off", where, f"nothing is recorded: {recording.error}")
    elif recording.missed:
        what = f"{recording.missed} entries since the start are not in it"
        yield _problem("recording-gaps", where, what)


def _rescheduling(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    moves = status.rescheduling
    if moves.paused:
        left = f"{duration(moves.pause_left_s)} more" if moves.HasField("pause_left_s") else ""
        what = f"paused for {left}" if left else "paused until somebody resumes"
        yield _problem("rescheduling-paused", "rescheduling", what)


def _certificates(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    for each in status.certificates:
        where = f"{each.setting} {each.path}"
        if not each.HasField("left_s"):
            yield _problem("certificate-unreadable", where, "cannot be read as a certificate")
        elif each.left_s <= 0:
            yield _problem("certificate-expired", where, f"expired {duration(-each.left_s)} ago")
        elif each.left_s < ENDING_S:
            yield _problem("certificate-ending", where, f"ends in {duration(each.left_s)}")


def _notifications(status: pb.GetStatusResponse) -> Iterator[pb.Problem]:
    told = status.notifications
    if told.error:
        what = f"the last one has not arrived for {duration(told.age_s)}: {told.error}"
        yield _problem("notification-lost", f"notifications {told.receiver}", what)


@dataclass(frozen=True, slots=True)
class Check:
    """What looks at one part."""

    problems: Callable[[pb.GetStatusResponse], Iterable[pb.Problem]]
    # Whether there is anything to look at; without it, nothing was checked and nothing is said to
    # be fine.
    applies: Callable[[pb.GetStatusResponse], bool] = lambda _: True


CHECKS: Mapping[str, Check] = {
    "controller": Check(_stuck),
    BROKER: Check(_broker, lambda x: x.HasField("broker")),
    API_SERVER: Check(_api_server, lambda x: x.HasField("api_server")),
    "leadership": Check(_leadership),
    "boards": Check(_boards, lambda x: x.boards.reporting > 0 and _broker_answers(x)),
    "reports": Check(_reports, lambda x: x.boards.reporting > 0 and _broker_answers(x)),
    "probing": Check(_probing, lambda x: x.probing.allowed_share > 0),
    "pods": Check(_pods, _knows_pods),
    "database": Check(_database, lambda x: bool(x.database.path)),
    "recording": Check(_recording, lambda x: x.HasField("recording")),
    "rescheduling": Check(_rescheduling, lambda x: x.HasField("rescheduling")),
    "certificates": Check(_certificates, lambda x: len(x.certificates) > 0),
    "notifications": Check(_notifications, lambda x: x.HasField("notifications")),
    "servers": Check(_servers, lambda x: bool(x.version)),
}


def listed(names: Sequence[str], count: int | None = None) -> str:
    """Some of the names, and how many more there are of `count`."""
    shown = names[:_MOST_NAMES]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def duration(seconds: float) -> str:
    """65 s, 12 min, 5 h or 3 days: the largest unit of which there are at least two."""
    for unit, size_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds // size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"

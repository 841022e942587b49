"""How the controller is, as plain data for JSON and YAML, and as lines."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from leadline_wire.v1 import status_pb2 as pb
from leadline_wire.v1.status_pb2_grpc import DiagnosisStub
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import Endpoint, ask, optional, plain
from leadline_controller.cli.output import DIM, Format, cell, clean, emit, table
from leadline_controller.inspect.problems import CHECKS, bad_parts

_STYLE = {"error": "red", "warning": "yellow", "note": DIM}
_BAD = frozenset(("error", "warning"))
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print nothing when all is well, for cron."
)


def answer(endpoint: Endpoint) -> pb.GetStatusResponse:
    """How the controller is. Raises as `ask` does."""
    found: pb.GetStatusResponse = ask(
        endpoint, lambda stub: stub.GetStatus, pb.GetStatusRequest, service=DiagnosisStub
    )
    return found


def is_healthy(status: pb.GetStatusResponse) -> bool:
    """Whether nothing is worse than a note."""
    return not any(each.severity in _BAD for each in status.problems)


def print_and_exit_code(
    status: pb.GetStatusResponse, output: Format, *, quiet: bool, doctor: bool = False
) -> int:
    """Print it, and return 0 when all is well and 1 when not."""
    healthy = is_healthy(status)
    if not (quiet and healthy):
        lines = diagnosis if doctor else overview
        emit(output, lambda: document(status), lambda wide: lines(status, wide=wide))
    return 0 if healthy else 1


def document(status: pb.GetStatusResponse) -> dict[str, Any]:
    """Everything; what is unknown is None. Ages are in seconds."""
    return {"healthy": is_healthy(status)} | plain(status)


def overview(status: pb.GetStatusResponse, *, wide: bool) -> Iterator[RenderableType]:
    """A line for each part, then one for each problem."""
    bad = bad_parts(status)
    rows = [
        (cell(name, "bold"), cell(text, "red" if name in bad else ""))
        for name, text in _parts(status, wide=wide)
    ]
    yield table(("", ""), rows)
    yield Text()
    for each in status.problems:
        text = f"{each.severity}: {each.where}: {each.what}; {each.remedy}"
        yield cell(text, _STYLE.get(each.severity, ""))
    yield _verdict(status)


def diagnosis(status: pb.GetStatusResponse, *, wide: bool) -> Iterator[RenderableType]:
    """Each problem with what to do, then what was checked and is fine. wide: the parts as well."""
    for number, each in enumerate(status.problems, start=1):
        style = _STYLE.get(each.severity, "")
        yield cell(f"{number}. {each.severity}: {each.where}: {each.what}", style)
        yield cell(f"   to do: {each.remedy}")
        for at, command in enumerate(each.commands):
            yield cell(f"   {'run:  ' if at == 0 else '      '} {command}")
        yield cell(f"   about it: docs/troubleshooting.md, {each.kind}", DIM)
        yield Text()
    yield cell(f"checked and fine: {', '.join(status.fine) or 'nothing'}")
    bad = bad_parts(status)
    if unknown := [each for each in CHECKS if each not in status.fine and each not in bad]:
        yield cell(f"nothing to check: {', '.join(unknown)}", DIM)
    if wide:
        for name, said in _parts(status, wide=True):
            yield cell(f"  {name}: {said}", DIM)
    yield _verdict(status)


def _verdict(status: pb.GetStatusResponse) -> Text:
    bad = [each.severity for each in status.problems if each.severity in _BAD]
    if not bad:
        return cell("healthy", "green")
    errors, warnings = bad.count("error"), bad.count("warning")
    counts = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for count, name in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    return cell(f"degraded: {' and '.join(counts)}; see leadline doctor", "red")


def _parts(status: pb.GetStatusResponse, *, wide: bool) -> Iterator[tuple[str, str]]:
    up = human.age(status.up_s)
    yield "controller", f"{status.version}, up {up}, cluster {status.cluster}"
    yield "leadership", _leadership(status)
    options = ", ".join(f"{name}={value}" for name, value in sorted(status.options.items()))
    yield "mode", " and ".join(status.modes)
    named = ", kept (strategy.name is not set)" if status.strategy_kept else ""
    yield "strategy", status.strategy + (f" ({options})" if options and wide else "") + named
    if status.HasField("broker"):
        yield "broker", _broker(status.broker, wide=wide)
    if status.HasField("api_server"):
        yield "API server", _api_server(status.api_server)
    yield "boards", _boards(status, wide=wide)
    yield "probing", _probing(status.probing)
    if status.HasField("queue"):
        yield "pods", _queue(status.queue)
    last = status.last_decision
    if status.HasField("last_decision"):
        node = last.node or "no node"
        yield (
            "last decision",
            f"{last.pod} -> {node} by {last.strategy}, {last.outcome}, {human.age(last.age_s)} ago",
        )
    else:
        yield "last decision", "none"
    yield "database", _database(status.database)
    if status.HasField("recording"):
        yield "recording", _recording(status.recording)
    if status.HasField("rescheduling"):
        yield "rescheduling", _rescheduling(status.rescheduling)
    if status.HasField("notifications"):
        yield "notifications", _notifications(status.notifications)
    if status.certificates:
        yield "certificates", _certificates(status.certificates, wide=wide)


def _leadership(status: pb.GetStatusResponse) -> str:
    leadership = status.leadership
    if leadership.leads:
        return "leads"
    if any(not each.refused for each in status.api_server.failures):
        last = f"; the last leader known is {leadership.holder}" if leadership.holder else ""
        return f"does not lead: the Lease cannot be renewed{last}"
    return f"stands by; {leadership.holder or 'nobody'} leads"


def _broker(broker: pb.BrokerCondition, *, wide: bool) -> str:
    since, heard = human.age(broker.since_s), human.age(optional(broker, "heard_age_s"))
    if not broker.connected:
        said = f"{broker.address}: no session for {since}"
        said += f" ({broker.why})" if broker.why else ""
    elif not broker.answers:
        said = f"{broker.address}: does not answer, last heard {heard} ago"
    else:
        rtt = human.number(optional(broker, "rtt_ms"))
        said = f"{broker.address}: connected for {since}, heard {heard} ago, round trip {rtt} ms"
        said += "".join(f"; {limit}" for limit in broker.limits)
    if wide:
        refused = ", ".join(f"{kind} {n}" for kind, n in sorted(broker.not_accepted.items()))
        said += f"; {human.amount(broker.accepted)} messages, refused: {refused or 'none'}"
    return said


def _api_server(server: pb.ApiServerCondition) -> str:
    answered = human.age(optional(server, "answered_age_s"))
    watched = human.age(optional(server, "watched_age_s"))
    if server.failures:
        longest = max(server.failures, key=lambda each: each.since_s)
        how = "refuses" if longest.refused else "not reached"
        return f"{server.url}: {how} for {human.age(longest.since_s)}, last answer {answered} ago"
    return f"{server.url}: answered {answered} ago, watches heard {watched} ago"


def _boards(status: pb.GetStatusResponse, *, wide: bool) -> str:
    boards = status.boards
    said = f"{boards.reporting} of {boards.total} report"
    if boards.HasField("median_age_s"):
        median, oldest = human.age(boards.median_age_s), human.age(boards.oldest_age_s)
        said += f", newest reports {median} old (median), {oldest} at most"
    if status.HasField("broker") and not status.broker.answers:
        said += "; unknown until the broker answers"
    elif wide and boards.boards:
        each = (f"{x.name} {', '.join((x.agent, *x.states))}" for x in boards.boards)
        said += f"; {'; '.join(each)}"
    return said


def _probing(probing: pb.ProbingCondition) -> str:
    spent, allowed = (
        human.number(100 * share, 2) for share in (probing.hour_share, probing.allowed_share)
    )
    return f"{spent} % of a link's time in the last hour, {allowed} % allowed"


def _queue(queue: pb.QueueCondition) -> str:
    counts = {
        "active": queue.active,
        "in progress": queue.in_progress,
        "backing off": queue.backoff,
        "unschedulable": queue.unschedulable,
        "waiting for moves": queue.held,
    }
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return said or "none waits"


def _database(database: pb.DatabaseCondition) -> str:
    if not database.path:
        return "none: decisions are kept in memory"
    free = optional(database, "free_bytes")
    said = f"{database.path}, {human.size(database.size_bytes)}, {human.size(free)} free"
    return f"{said}; {database.error}" if database.error else said


def _recording(recording: pb.RecordingCondition) -> str:
    said = f"{recording.folder}, {human.size(recording.size_bytes)}"
    return f"{said}; off: {recording.error}" if recording.error else said


def _rescheduling(moves: pb.MovesCondition) -> str:
    said = moves.mode
    if moves.paused:
        left = optional(moves, "pause_left_s")
        said += ", paused" + ("" if left is None else f" for {human.age(left)} more")
    if moves.running:
        said += f", plan {moves.running} is being carried out"
    return f"{said}, {moves.moves_in_hour} moves in the last hour"


def _notifications(told: pb.NotificationCondition) -> str:
    age = human.age(optional(told, "age_s"))
    if told.error:
        return f"{told.receiver}: the last one has not arrived for {age} ({told.error})"
    sent = f"the last one arrived {age} ago" if told.HasField("age_s") else "none sent yet"
    return f"{told.receiver}: {sent}"


def _certificates(certificates: Sequence[pb.CertificateCondition], *, wide: bool) -> str:
    known = [each for each in certificates if each.HasField("left_s")]
    if wide:
        return "; ".join(
            f"{each.setting} {human.age(optional(each, 'left_s'))} left" for each in certificates
        )
    if not known:
        return "not read"
    first = min(known, key=lambda each: each.left_s)
    left = "has ended" if first.left_s <= 0 else f"ends in {human.age(first.left_s)}"
    return f"{len(certificates)}, the first ({clean(first.setting)}) {left}"

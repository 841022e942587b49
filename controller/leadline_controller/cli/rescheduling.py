"""Plans of moves and what became of them, as plain data for JSON and YAML, and as tables."""

from collections.abc import Iterator
from typing import Any

from leadline_wire.v1 import rescheduling_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional, plain
from leadline_controller.cli.output import DIM, cell, table


def plan_document(answer: pb.GetPlanResponse) -> dict[str, Any]:
    """A plan: its moves, the pods that stay, and the state."""
    shown = plain(answer, "id strategy better moves stays")
    return shown | {"state": state_document(answer.state)}


def state_document(state: pb.ReschedulingState) -> dict[str, Any]:
    """Whether pods are moved, and how the last plan went."""
    pause = {"reason": state.pause_reason, "left_s": optional(state, "pause_left_s")}
    return {
        **plain(state, "mode paused"),
        "pause": pause if state.paused else None,
        **plain(state, "leader running? last?"),
        "outcomes": [
            plain(each.move) | {"ending": each.ending, "ending_why": each.why}
            for each in state.outcomes
        ],
        **plain(state, "moves_in_hour moves_per_hour"),
    }


def plan_tables(answer: pb.GetPlanResponse, *, wide: bool) -> Iterator[RenderableType]:
    """The moves, then the pods that stay."""
    yield from state_lines(answer.state)
    if answer.moves:
        yield cell(f"plan {answer.id}, by {answer.strategy} ({answer.better} is better)", "bold")
        columns = ("POD", "FROM", "TO", "GAIN", "DISRUPTION", "WHY")
        rows = (
            (m.pod, m.source, m.target, _percent(optional(m, "gain")), m.disruption, m.why)
            for m in answer.moves
        )
        yield table(columns, rows, numbers=("GAIN",))
        yield cell(f"carry it out: leadline reschedule --apply {answer.id}", DIM)
    else:
        yield cell(f"no pod would be moved by {answer.strategy}")
    if answer.stays:
        yield Text()
        shown = answer.stays if wide else answer.stays[:_MOST_STAYS]
        stays = ((each.pod, each.node, each.why) for each in shown)
        yield table(("STAYS", "ON", "WHY"), stays)
        if left := len(answer.stays) - len(shown):
            yield cell(f"and {left} more; -o wide shows all", DIM)


_MOST_STAYS = 40


def state_lines(state: pb.ReschedulingState) -> Iterator[RenderableType]:
    """What holds moves back, and what goes on."""
    if state.paused:
        left = optional(state, "pause_left_s")
        until = "until `leadline resume`" if left is None else f"for {human.age(left)} more"
        reason = f": {state.pause_reason}" if state.pause_reason else ""
        yield cell(f"paused {until}{reason}", "yellow")
    if not state.leader:
        yield cell(f"this controller stands by; leader: {state.lease_holder or 'none'}", "yellow")
    if state.mode == "off":
        yield cell("rescheduling is off: plans are shown and not carried out", DIM)
    if state.running:
        yield cell(f"plan {state.running} is being carried out")
    yield cell(f"{state.moves_in_hour} of {state.moves_per_hour} moves in the last hour", DIM)


def outcome_tables(state: pb.ReschedulingState) -> Iterator[RenderableType]:
    """How the last plan went."""
    yield from state_lines(state)
    if state.outcomes:
        rows = (
            (each.move.pod, each.move.source, each.move.target, each.ending, each.why)
            for each in state.outcomes
        )
        columns = ("POD", "FROM", "TO", "ENDED", "WHY")
        yield table(columns, rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"

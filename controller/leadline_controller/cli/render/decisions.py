"""Where pods went and why, as people read it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli.render import human
from leadline_controller.cli.render.tables import DIM, FirstThatFits, cell, table

Thing = TypeVar("Thing")
_SHOWN = 15
_NOWHERE = "none"
_WINNER = "*"


def placements_table(placements: Iterable[pb.Placement], *, wide: bool) -> RenderableType:
    """One line a decision, oldest first."""
    columns = ("POD", "NODE", *(("STRATEGY",) if wide else ()), "OUTCOME", "AGE", "WHY")
    made = table(*columns, numbers=("AGE",), folding=("POD", "OUTCOME", "WHY"))
    for told in placements:
        made.add_row(
            cell(told.pod),
            cell(told.node or _NOWHERE, "" if told.node else "yellow"),
            *((cell(told.strategy),) if wide else ()),
            cell(told.outcome, _outcome_style(told.outcome)),
            cell(human.age(told.age_s)),
            cell(told.why),
        )
    return made if made.row_count else Text("no decisions are remembered")


def explanation_tables(response: pb.ExplainPodResponse, *, wide: bool) -> Iterator[RenderableType]:
    """One decision: where and why, every score with its parts, every refusal. Long lists
    are cut unless `wide`."""
    told = response.placement
    heading = Text("", style="bold")
    heading.append_text(cell(told.pod)).append(" -> ").append_text(cell(told.node or _NOWHERE))
    yield heading
    yield cell(f"{told.outcome}, decided {human.age(told.age_s)} ago by {_by(response)}")
    yield cell(told.why)
    if response.scores:
        yield Text()
        yield _scores(response, wide=wide)
    if response.rejected:
        yield Text()
        yield from _rejected(response.rejected, wide=wide)


def summary(told: pb.Placement) -> str:
    """One decision in one line of prose."""
    return f"{told.pod} -> {told.node or _NOWHERE} ({told.outcome}): {told.why}"


def by_merit(response: pb.ExplainPodResponse) -> list[pb.NodeScore]:
    """The scores from the best to the worst, the unknown last; the chosen one before equals,
    which else keep their order."""
    sign = 1 if response.better == "lower" else -1

    def rank(score: pb.NodeScore) -> tuple[bool, float, bool]:
        known = score.HasField("total")
        chosen = score.node == response.placement.node
        return not known, sign * score.total if known else 0.0, not chosen

    return sorted(response.scores, key=rank)


def _by(response: pb.ExplainPodResponse) -> str:
    options = ", ".join(f"{name} {value}" for name, value in sorted(response.options.items()))
    return f"{response.placement.strategy}{f' ({options})' if options else ''}"


def _scores(response: pb.ExplainPodResponse, *, wide: bool) -> RenderableType:
    scores = by_merit(response)
    parts = sorted({part for score in scores for part in score.parts})
    variants: list[Sequence[RenderableType]] = [
        tuple(_score_table(response, scores, parts, wide=wide)),
        tuple(_score_list(response, scores, wide=wide)),
    ]
    return FirstThatFits(variants)


def _score_table(
    response: pb.ExplainPodResponse, scores: Sequence[pb.NodeScore], parts: list[str], *, wide: bool
) -> Iterator[RenderableType]:
    """A column for each part."""
    headers = [part.replace("_per_s", "/s").replace("_", "\n") for part in parts]
    total = f"TOTAL\n{response.better}\nis better"
    made = table("", "NODE", total, *headers, numbers=(total, *headers))
    for score in _few(scores, wide=wide):
        won = score.node == response.placement.node
        values = (
            human.number(score.parts[p]) if p in score.parts else human.UNKNOWN for p in parts
        )
        made.add_row(
            *(cell(x, "bold green" if won else "") for x in (_mark(won), score.node)),
            *(cell(x, "bold" if won else "") for x in (_total(score), *values)),
        )
    yield made
    yield from _left_out(scores, wide=wide)


def _score_list(
    response: pb.ExplainPodResponse, scores: Sequence[pb.NodeScore], *, wide: bool
) -> Iterator[RenderableType]:
    """The parts in one cell, which may fold: for narrow terminals."""
    made = table("", "NODE", "TOTAL", "PARTS", numbers=("TOTAL",), folding=("NODE", "PARTS"))
    for score in _few(scores, wide=wide):
        won = score.node == response.placement.node
        parts = ", ".join(f"{name} {human.number(x)}" for name, x in sorted(score.parts.items()))
        made.add_row(*map(cell, (_mark(won), score.node, _total(score), parts)))
    yield made
    yield from _left_out(scores, wide=wide)


def _rejected(rejected: Sequence[pb.NodeRejection], *, wide: bool) -> Iterator[RenderableType]:
    made = table("REJECTED", "WHY", folding=("REJECTED", "WHY"))
    for each in _few(rejected, wide=wide):
        made.add_row(cell(each.node), cell("; ".join(each.reasons)))
    yield made
    yield from _left_out(rejected, wide=wide)


def _few(things: Sequence[Thing], *, wide: bool) -> Sequence[Thing]:
    return things if wide else things[:_SHOWN]


def _left_out(things: Sequence[object], *, wide: bool) -> Iterator[RenderableType]:
    left = len(things) - _SHOWN
    if left > 0 and not wide:
        yield Text(f"and {left} more; -o wide shows all", style=DIM)


def _total(score: pb.NodeScore) -> str:
    return human.number(score.total if score.HasField("total") else None)


def _mark(won: bool) -> str:
    return _WINNER if won else ""


def _outcome_style(outcome: str) -> str:
    if outcome == "bound":
        return "green"
    return "red" if outcome.startswith("failed") else "yellow"

"""Tables of decisions: one line each, or everything about one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli.render import human
from leadline_controller.cli.render.tables import DIM, FirstThatFits, cell, table

Item = TypeVar("Item")
_SHOWN = 15
_NOWHERE = "none"
_WINNER = "*"
_AGES: dict[str, Literal["report_age_s", "bandwidth_age_s", "rtt_age_s"]] = {
    "report": "report_age_s",
    "bandwidth": "bandwidth_age_s",
    "round trips": "rtt_age_s",
}


def placements_table(placements: Iterable[pb.Placement], *, wide: bool) -> RenderableType:
    """One line a decision, oldest first."""
    extra = ("STRATEGY", "DECIDED", "TIMES") if wide else ()
    columns = ("POD", "NODE", *extra, "OUTCOME", "AGE", "WHY")
    made = table(*columns, numbers=("TIMES", "AGE"), folding=("POD", "OUTCOME", "WHY"))
    for told in placements:
        made.add_row(
            cell(told.pod),
            cell(told.node or _NOWHERE, "" if told.node else "yellow"),
            *(map(cell, (told.strategy, _when(told), max(1, told.times))) if wide else ()),
            cell(told.outcome, _outcome_style(told.outcome)),
            cell(human.age(told.age_s)),
            cell(told.why),
        )
    return made if made.row_count else Text("there are no decisions")


def placements_tables(
    response: pb.ListPlacementsResponse, *, wide: bool
) -> Iterator[RenderableType]:
    """The decisions, and a line if the answer leaves older ones out."""
    if response.truncated:
        yield Text("older decisions are left out, as one answer cannot hold them all", style=DIM)
    yield placements_table(response.placements, wide=wide)


def explanation_tables(response: pb.ExplainPodResponse, *, wide: bool) -> Iterator[RenderableType]:
    """One decision: its node and reason, the scores with their parts, the rejected nodes, and
    the decisions before it. Long lists are cut unless `wide`."""
    told = response.placement
    heading = Text("", style="bold")
    heading.append_text(cell(told.pod)).append(" -> ").append_text(cell(told.node or _NOWHERE))
    yield heading
    yield cell(f"{told.outcome}, decided {_ago(told)} by {_by(response)}")
    yield cell(told.why)
    yield from _inputs(response)
    if response.scores:
        yield Text()
        yield _scores(response, wide=wide)
    if response.rejected:
        yield Text()
        yield from _rejected(response, wide=wide)
    if response.earlier:
        yield Text()
        yield _earlier(response.earlier)


def summary(told: pb.Placement) -> str:
    """One decision in one line."""
    return f"{told.pod} -> {told.node or _NOWHERE} ({told.outcome}): {told.why}"


def by_merit(response: pb.ExplainPodResponse) -> list[pb.NodeScore]:
    """The scores from the best to the worst, the unknown ones last. The chosen node comes before
    its equals, which keep their order."""
    sign = 1 if response.better == "lower" else -1

    def rank(score: pb.NodeScore) -> tuple[bool, float, bool]:
        known = score.HasField("total")
        chosen = score.node == response.placement.node
        return not known, sign * score.total if known else 0.0, not chosen

    return sorted(response.scores, key=rank)


def _when(told: pb.Placement) -> str:
    return human.moment(told.unix_s) if told.HasField("unix_s") else human.UNKNOWN


def _ago(told: pb.Placement) -> str:
    """3m ago (2026-03-01 14:05:09), or 12 times from 2h to 3m ago (...)."""
    when = f" ({_when(told)})" if told.HasField("unix_s") else ""
    if told.times <= 1:
        return f"{human.age(told.age_s)} ago{when}"
    first = human.age(told.first_age_s)
    return f"{told.times} times from {first} to {human.age(told.age_s)} ago{when}"


def _inputs(response: pb.ExplainPodResponse) -> Iterator[RenderableType]:
    """The ages of the chosen node's measurements at the time of the decision."""
    for score in response.scores:
        ages = [f"{shown} {human.age(age_s)}" for shown, age_s in _ages(score) if age_s is not None]
        if score.node == response.placement.node and ages:
            yield cell(f"measured on {score.node}, age at the decision: {', '.join(ages)}")


def _ages(score: pb.NodeScore) -> list[tuple[str, float | None]]:
    return [
        (shown, getattr(score, field) if score.HasField(field) else None)
        for shown, field in _AGES.items()
    ]


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
    """The scores with a column for each part."""
    headers = [part.replace("_per_s", "/s").replace("_", "\n") for part in parts]
    headers += [f"{shown}\nage" for shown in _AGES if wide]
    total = f"TOTAL\n{response.better}\nis better"
    made = table("", "NODE", total, *headers, numbers=(total, *headers))
    for score in _few(scores, wide=wide):
        won = score.node == response.placement.node
        values = [
            human.number(score.parts[p]) if p in score.parts else human.UNKNOWN for p in parts
        ]
        values += [human.age(age_s) for _, age_s in _ages(score) if wide]
        made.add_row(
            *(cell(x, "bold green" if won else "") for x in (_mark(won), score.node)),
            *(cell(x, "bold" if won else "") for x in (_total(score), *values)),
        )
    yield made
    yield from _left_out(scores, response.scored_nodes, wide=wide)


def _score_list(
    response: pb.ExplainPodResponse, scores: Sequence[pb.NodeScore], *, wide: bool
) -> Iterator[RenderableType]:
    """The scores with all parts in one cell that may fold, for narrow terminals."""
    made = table("", "NODE", "TOTAL", "PARTS", numbers=("TOTAL",), folding=("NODE", "PARTS"))
    for score in _few(scores, wide=wide):
        won = score.node == response.placement.node
        parts = ", ".join(f"{name} {human.number(x)}" for name, x in sorted(score.parts.items()))
        made.add_row(*map(cell, (_mark(won), score.node, _total(score), parts)))
    yield made
    yield from _left_out(scores, response.scored_nodes, wide=wide)


def _rejected(response: pb.ExplainPodResponse, *, wide: bool) -> Iterator[RenderableType]:
    made = table("REJECTED", "WHY", folding=("REJECTED", "WHY"))
    for each in _few(response.rejected, wide=wide):
        made.add_row(cell(each.node), cell("; ".join(each.reasons)))
    yield made
    yield from _left_out(response.rejected, response.rejected_nodes, wide=wide)
    if response.rejected_nodes > len(_few(response.rejected, wide=wide)):
        counts = sorted(response.rejected_by_filter.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {count}" for name, count in counts)
        yield cell(f"of {response.rejected_nodes} nodes rejected, by filter: {told}", DIM)


def _earlier(placements: Iterable[pb.Placement]) -> RenderableType:
    made = table("EARLIER", "NODE", "AGE", "WHY", numbers=("AGE",), folding=("EARLIER", "WHY"))
    for told in placements:
        outcome = told.outcome if told.times <= 1 else f"{told.outcome}, {told.times} times"
        row = (outcome, told.node or _NOWHERE, human.age(told.age_s), told.why)
        made.add_row(*map(cell, row))
    return made


def _few(items: Sequence[Item], *, wide: bool) -> Sequence[Item]:
    return items if wide else items[:_SHOWN]


def _left_out(items: Sequence[object], count: int, *, wide: bool) -> Iterator[RenderableType]:
    """Lines on what is missing of `count`: not shown, or not kept."""
    left, dropped = len(items) - _SHOWN, count - len(items)
    if left > 0 and not wide:
        yield Text(f"and {left} more; -o wide shows all", style=DIM)
    if dropped > 0:
        yield Text(f"and {dropped} more; only their number was kept", style=DIM)


def _total(score: pb.NodeScore) -> str:
    return human.number(score.total if score.HasField("total") else None)


def _mark(won: bool) -> str:
    return _WINNER if won else ""


def _outcome_style(outcome: str) -> str:
    if outcome == "bound":
        return "green"
    return "red" if outcome.startswith("failed") else "yellow"

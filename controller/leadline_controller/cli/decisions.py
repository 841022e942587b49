"""Decisions as plain data for JSON and YAML, and as tables: one line each, or everything about
one. An explanation has the shape of a decision in the output of `leadline score`."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional, plain
from leadline_controller.cli.output import DIM, FirstThatFits, Table, cell, table
from leadline_controller.framework.options import value_of_text

_SHOWN = 15
_NOWHERE = "none"
# The measurements whose ages an explanation shows, and the words for them in tables.
_PULL = ("missing_mb", "shared_mb", "queue_mb", "expected_s")
_AGES = {"report": "report", "bandwidth": "bandwidth", "rtt": "round trips"}


def document(placement: pb.Placement) -> dict[str, Any]:
    """One decision. The node is None if the pod fits on none, the time if the clock was not set."""
    unix_s = optional(placement, "unix_s")
    return {
        **plain(placement, "pod node? why strategy outcome age_s"),
        "time": None
        if unix_s is None
        else datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds"),
        "times": max(1, placement.times),
        "first_age_s": placement.first_age_s,
    }


def explanation(response: pb.ExplainPodResponse) -> dict[str, Any]:
    """One decision with its scores, its rejected nodes and the decisions before it."""
    return {
        **document(response.placement),
        "better": response.better,
        "options": {name: value_of_text(value) for name, value in sorted(response.options.items())},
        "rejected": {each.node: list(each.reasons) for each in response.rejected},
        "scores": {each.node: _score(each) for each in response.scores},
        "scored_nodes": response.scored_nodes,
        "rejected_nodes": response.rejected_nodes,
        "rejected_by_filter": dict(sorted(response.rejected_by_filter.items())),
        "earlier": [document(each) for each in response.earlier],
        "removed_as": response.removed_as,
        "removed_of": response.removed_of,
    }


def _score(score: pb.NodeScore) -> dict[str, Any]:
    """One node's score, with what the strategy read of it ("measured", "assumed", "sum", "ages_s")
    if it used measured values, and "pull" if layers of the pod's images were known."""
    fields: dict[str, Any] = {
        "total": optional(score, "total"),
        "parts": dict(sorted(score.parts.items())),
    }
    if score.measured:
        from leadline_controller.history.explanation import load_document  # with numpy, 0.2 s

        fields |= load_document(score.measured, score.assumed)
        fields |= plain(score, "recently_placed rates_unknown")
    known = {kind: age_s for kind, age_s in _ages_s(score).items() if age_s is not None}
    if known:
        fields["ages_s"] = known
    if score.HasField("pull"):
        fields["pull"] = plain(score.pull)
    return fields


def _ages_s(score: pb.NodeScore) -> dict[str, float | None]:
    return {kind: optional(score, f"{kind}_age_s") for kind in _AGES}


def placements_table(placements: Iterable[pb.Placement], *, wide: bool = False) -> RenderableType:
    """One line a decision, oldest first."""
    extra = ("STRATEGY", "DECIDED", "TIMES") if wide else ()
    columns = ("POD", "NODE", *extra, "OUTCOME", "AGE", "WHY")
    rows = [
        (
            placement.pod,
            cell(placement.node or _NOWHERE, "" if placement.node else "yellow"),
            *((placement.strategy, _when(placement), max(1, placement.times)) if wide else ()),
            cell(placement.outcome, _outcome_style(placement.outcome)),
            human.age(placement.age_s),
            placement.why,
        )
        for placement in placements
    ]
    if not rows:
        return Text("there are no decisions")
    return table(columns, rows, numbers=("TIMES", "AGE"))


def explanation_tables(
    response: pb.ExplainPodResponse, *, wide: bool = False
) -> Iterator[RenderableType]:
    """One decision: its node and reason, the scores with their parts, the rejected nodes, and
    the decisions before it. Long lists are cut unless `wide`."""
    placement = response.placement
    yield cell(f"{placement.pod} -> {placement.node or _NOWHERE}", "bold")
    options = ", ".join(f"{name} {value}" for name, value in sorted(response.options.items()))
    by = f"{placement.strategy}{f' ({options})' if options else ''}"
    yield cell(f"{placement.outcome}, decided {_ago(placement)} by {by}")
    yield cell(placement.why)
    if response.removed_of:
        yield cell(f"a scale-down removes it as {response.removed_as} of {response.removed_of}")
    for score in response.scores:
        ages = [
            f"{_AGES[kind]} {human.age(age_s)}"
            for kind, age_s in _ages_s(score).items()
            if age_s is not None
        ]
        if score.node == placement.node and ages:
            yield cell(f"measured on {score.node}, age at the decision: {', '.join(ages)}")
        if score.node == placement.node and score.recently_placed:
            yield cell(_recent(score))
        if score.node == placement.node and score.HasField("pull"):
            yield cell(_pull(score))
    if response.scores:
        scores = by_merit(response)
        few = scores if wide else scores[:_SHOWN]
        left_out = tuple(_left_out(scores, response.scored_nodes, wide=wide))
        by_part, in_one_cell = _score_table(response, few, wide=wide), _score_list(response, few)
        yield Text()
        yield FirstThatFits([(by_part, *left_out), (in_one_cell, *left_out)])
        if measured := sorted({name for score in few for name in score.measured}):
            yield Text()
            yield _measured(few, measured)
    if response.rejected:
        yield Text()
        yield from _rejected(response, wide=wide)
    if response.earlier:
        yield Text()
        yield _earlier(response.earlier)


def summary(placement: pb.Placement) -> str:
    """One decision in one line."""
    return f"{placement.pod} -> {placement.node or _NOWHERE} ({placement.outcome}): {placement.why}"


def by_merit(response: pb.ExplainPodResponse) -> list[pb.NodeScore]:
    """The scores from the best to the worst, the unknown ones last. The chosen node comes before
    its equals, which keep their order."""
    sign = 1 if response.better == "lower" else -1

    def rank(score: pb.NodeScore) -> tuple[bool, float, bool]:
        known = score.HasField("total")
        chosen = score.node == response.placement.node
        return not known, sign * score.total if known else 0.0, not chosen

    return sorted(response.scores, key=rank)


def _when(placement: pb.Placement) -> str:
    return human.moment(placement.unix_s) if placement.HasField("unix_s") else human.UNKNOWN


def _ago(placement: pb.Placement) -> str:
    """3m ago (2026-03-01 14:05:09), or 12 times from 2h to 3m ago (...)."""
    when = f" ({_when(placement)})" if placement.HasField("unix_s") else ""
    times = (
        f"{placement.times} times from {human.age(placement.first_age_s)} to "
        if placement.times > 1
        else ""
    )
    return f"{times}{human.age(placement.age_s)} ago{when}"


def _recent(score: pb.NodeScore) -> str:
    """assumed on n1: what 3 pods use, which its last report did not contain; nothing tells packets
    and disk of 2."""
    number = score.recently_placed
    pods = "1 pod uses" if number == 1 else f"{number} pods use"
    unknown = f"; nothing tells packets and disk of {score.rates_unknown}"
    return (
        f"assumed on {score.node}: what {pods}, which its last report did not contain"
        f"{unknown if score.rates_unknown else ''}"
    )


def _pull(score: pb.NodeScore) -> str:
    """images on n1: 40 MB to pull, 60 MB are there, 5 MB are before it; 4.2 s expected."""
    missing, shared, queue, expected_s = (
        human.number(optional(score.pull, name)) for name in _PULL
    )
    expected = f"; {expected_s} s expected" if score.pull.HasField("expected_s") else ""
    return (
        f"images on {score.node}: {missing} MB to pull, {shared} MB are there, {queue} MB are "
        f"pulled before{expected}"
    )


def _score_table(
    response: pb.ExplainPodResponse, scores: Sequence[pb.NodeScore], *, wide: bool
) -> Table:
    """The scores with a column for each part."""
    parts = sorted({part for score in response.scores for part in score.parts})
    headers = _headers(parts)
    pulls = wide and any(score.HasField("pull") for score in scores)
    headers += [f"{shown}\nage" for shown in _AGES.values() if wide]
    headers += [f"pull\n{name}" for name in _PULL if pulls]
    total = f"TOTAL\n{response.better}\nis better"
    rows = []
    for score in scores:
        won = score.node == response.placement.node
        values = [human.number(optional(score, "total"))]
        values += [human.number(score.parts.get(part)) for part in parts]
        values += [human.age(age_s) for age_s in _ages_s(score).values() if wide]
        values += [human.number(optional(score.pull, name)) for name in _PULL if pulls]
        names = (cell(x, "bold green" if won else "") for x in ("*" if won else "", score.node))
        rows.append((*names, *(cell(x, "bold" if won else "") for x in values)))
    return table(("", "NODE", total, *headers), rows, numbers=(total, *headers), keys=2)


def _score_list(response: pb.ExplainPodResponse, scores: Sequence[pb.NodeScore]) -> Table:
    """The scores with all parts in one cell that may fold, for narrow terminals."""
    rows = (
        (
            "*" if score.node == response.placement.node else "",
            score.node,
            human.number(optional(score, "total")),
            ", ".join(f"{name} {human.number(x)}" for name, x in sorted(score.parts.items())),
        )
        for score in scores
    )
    return table(("", "NODE", "TOTAL", "PARTS"), rows, numbers=("TOTAL",), keys=2)


def _measured(scores: Sequence[pb.NodeScore], names: Sequence[str]) -> FirstThatFits:
    """What was measured on each node at the decision, and what was assumed beside it, as in 12.5 +
    2.5: a column for each value, or all in a cell."""
    headers = _headers(names)
    by_name = ((score.node, *(_with_assumed(score, name) for name in names)) for score in scores)
    in_one = (
        (score.node, ", ".join(f"{name} {_with_assumed(score, name)}" for name in names))
        for score in scores
    )
    return FirstThatFits(
        (
            (table(("MEASURED", *headers), by_name, numbers=headers),),
            (table(("MEASURED", "VALUES"), in_one),),
        )
    )


def _with_assumed(score: pb.NodeScore, name: str) -> str:
    more = score.assumed.get(name, 0.0)
    sign = "" if not more else f" {'-' if more < 0 else '+'} {human.number(abs(more))}"
    return human.number(score.measured.get(name)) + sign


def _headers(names: Iterable[str]) -> list[str]:
    return [name.replace("_per_s", "/s").replace("_", "\n") for name in names]


def _rejected(response: pb.ExplainPodResponse, *, wide: bool) -> Iterator[RenderableType]:
    few = response.rejected if wide else response.rejected[:_SHOWN]
    yield table(("REJECTED", "WHY"), ((each.node, "; ".join(each.reasons)) for each in few))
    yield from _left_out(response.rejected, response.rejected_nodes, wide=wide)
    if response.rejected_nodes > len(few):
        counts = sorted(response.rejected_by_filter.items(), key=lambda item: -item[1])
        by_filter = ", ".join(f"{name} {count}" for name, count in counts)
        yield cell(f"of {response.rejected_nodes} nodes rejected, by filter: {by_filter}", DIM)


def _earlier(placements: Iterable[pb.Placement]) -> Table:
    rows = (
        (
            each.outcome if each.times <= 1 else f"{each.outcome}, {each.times} times",
            *(each.node or _NOWHERE, human.age(each.age_s), each.why),
        )
        for each in placements
    )
    return table(("EARLIER", "NODE", "AGE", "WHY"), rows, numbers=("AGE",))


def _left_out(items: Sequence[object], count: int, *, wide: bool) -> Iterator[RenderableType]:
    """Lines on what is missing of `count`: not shown, or not kept."""
    left, dropped = len(items) - _SHOWN, count - len(items)
    if left > 0 and not wide:
        yield Text(f"and {left} more; -o wide shows all", style=DIM)
    if dropped > 0:
        yield Text(f"and {dropped} more; only their number was kept", style=DIM)


def _outcome_style(outcome: str) -> str:
    if outcome == "bound":
        return "green"
    if outcome in ("gone", "deleted"):
        return DIM
    return "red" if outcome.startswith("failed") else "yellow"

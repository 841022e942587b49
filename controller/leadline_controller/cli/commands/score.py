"""Place the pods of a snapshot file, without a server."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import click

from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.output import (
    Format,
    output_option,
    show,
    stream,
    table,
    track,
    working,
)
from leadline_controller.framework.cycle import Decision, Rule
from leadline_controller.framework.options import OptionError, build
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.parsing.fields import FieldError, quoted
from leadline_controller.snapshot.score import Scoring, rule_of, start_scoring, to_document
from leadline_controller.snapshot.snapshot import load_snapshot
from leadline_controller.snapshot.stated import StatedRule
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES

_SHOWN = 3
_SHOWN_COUNTS = 12


@click.command(
    epilog="Example: leadline score --snapshot docs/examples/dacs-fig2.yaml --strategy dacs "
    "--option beta_cs=0.1 --option beta_rc=0 -o wide"
)
@click.option(
    "--snapshot",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A ClusterSnapshot, YAML or JSON; - is standard input.",
)
@click.option(
    "--strategy",
    "name",
    type=click.Choice(list(STRATEGIES)),
    show_default=f"the snapshot's, else {DEFAULT_STRATEGY}",
    help="How to choose among the nodes that fit.",
)
@click.option(
    "--option",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an option of the strategy; repeatable. See 'leadline strategies'.",
)
@click.option(
    "--seed",
    type=int,
    show_default="the snapshot's, else 0",
    help="Seed of the random choice between equal nodes.",
)
@click.option(
    "--preferences",
    show_default="the snapshot's, else off",
    metavar="on|off|NUMBER",
    help="Whether preferences decide between nearly equal nodes; a number is the tolerance.",
)
@click.option(
    "--assumed-load",
    type=click.Choice(["on", "off"]),
    show_default="the snapshot's, else on",
    help="Whether a pod that is placed adds what it is expected to use to what was measured.",
)
@click.option(
    "--letter/--no-letter",
    default=None,
    show_default="the snapshot's, else --no-letter",
    help="Compare to the letter of the papers: values differ within their errors, too, and ties go "
    "by chance alone.",
)
@output_option
@click.pass_context
def score(
    ctx: click.Context,
    path: Path,
    name: str | None,
    given: tuple[str, ...],
    seed: int | None,
    preferences: str | None,
    assumed_load: str | None,
    letter: bool | None,
    output: Format,
) -> None:
    """Place the pods of a snapshot file and print why. Each pod sees what the pods before it
    took; a strategy that plans batches gets all pods at once. Exit code 1 when a pod fits on no
    node."""
    explicit: dict[str, Any] = {
        "strategy": name,
        "seed": seed,
        "letter": letter,
        "assumed_load": None if assumed_load is None else assumed_load == "on",
    }
    try:
        explicit["preferences"] = None if preferences is None else _tolerance(preferences)
        options = dict(_option(text) for text in given)
        if name is not None:  # so that what is wrong here is said before a large file is read
            build(STRATEGIES[name], options)
        with working("reading the snapshot"):
            snapshot = load_snapshot(path)
        stated, by = _rule(snapshot.rule or StatedRule(), explicit, options)
    except (FieldError, OptionError, PluginError) as error:
        raise BadInput(str(error)) from None
    in_table = output in ("table", "wide")
    # Decisions that appear on a terminal one by one need no progress bar.
    counted = in_table or not sys.stdout.isatty()
    pods = track(snapshot.pods, "placing pods") if counted else snapshot.pods
    scoring = start_scoring(snapshot, by, pods, assumes_load=stated.assumed_load)
    placed: Counter[str | None] = Counter()
    if not in_table:
        decisions = map(to_document, _counted(scoring.decisions, placed))
        stream(output, scoring.head, "decisions", decisions, scoring.tail)
    else:
        show(*_tables(scoring, placed, wide=output == "wide"))
    if placed[None]:
        ctx.exit(1)


def _rule(
    stated: StatedRule, explicit: Mapping[str, Any], options: Mapping[str, str]
) -> tuple[StatedRule, Rule]:
    """The snapshot's rule with what the caller says instead. Raises OptionError."""
    before = stated.strategy
    stated = replace(stated, **{key: each for key, each in explicit.items() if each is not None})
    name = stated.strategy or DEFAULT_STRATEGY
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise OptionError(f"rule.strategy: no strategy {quoted(name)} here; --strategy: {known}")
    kept = stated.options if name == before else {}  # those of another strategy mean nothing
    return stated, rule_of(stated, build(STRATEGIES[name], {**kept, **options}))


def _counted(decisions: Iterable[Decision], placed: Counter[str | None]) -> Iterator[Decision]:
    """The decisions. Counts their nodes in `placed`."""
    for decision in decisions:
        placed[decision.node] += 1
        yield decision


def _tolerance(text: str) -> str | float:
    with suppress(ValueError):
        if text in ("on", "off") or 0 <= float(text) < inf:
            return text
    raise OptionError(
        f"--preferences: expected on, off or a number of 0 or more, got {quoted(text)}"
    )


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"option {quoted(text)}: expected KEY=VALUE")
    return key, value


def _tables(scoring: Scoring, placed: Counter[str | None], *, wide: bool) -> Iterable[Any]:
    columns = ("POD", "NODE", "WHY", *(("TOTALS", "REJECTED") if wide else ()))
    yield table(
        columns,
        (
            (d.pod.key, d.node or "none", d.why, *(_more(to_document(d), d.better) if wide else ()))
            for d in _counted(scoring.decisions, placed)
        ),
    )
    if scoring.tail.get("migrations"):
        yield ""
        moves = [(m["pod"], m["from"], m["to"], m["why"]) for m in scoring.tail["migrations"]]
        yield table(("MIGRATION", "FROM", "TO", "WHY"), moves)
    nodes = [(-number, node) for node, number in placed.items() if node is not None]
    counts = [f"{node} {-number}" for number, node in sorted(nodes)]
    few = _few(counts, ", ", _SHOWN_COUNTS)
    bound = placed.total() - placed[None]
    yield f"\n{bound} of {placed.total()} pods placed{': ' if few else ''}{few}"


def _more(decision: dict[str, Any], better: str) -> tuple[str, str]:
    known = {n: s["total"] for n, s in decision["scores"].items() if s["total"] is not None}
    ordered = sorted(known, key=lambda node: known[node], reverse=better == "higher")
    totals = [f"{node} {known[node]:.6g}" for node in ordered]
    totals += [f"{node} unknown" for node in decision["scores"] if node not in known]
    nodes_of: dict[str, list[str]] = {}
    for node, why in decision["rejected"].items():
        nodes_of.setdefault("; ".join(why), []).append(node)
    rejected = [f"{_few(nodes, ', ')}: {why}" for why, nodes in nodes_of.items()]
    return _few(totals, ", "), _few(rejected, " | ")


def _few(texts: Sequence[str], separator: str, most: int = _SHOWN) -> str:
    left = len(texts) - most
    return separator.join(texts[:most]) + (f" and {left} more" if left > 0 else "")

"""`leadline lab sounding`: what Leadline would know about a network that a file describes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from leadline_controller.cli import human
from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.output import Format, emit, output_option, progress, table
from leadline_controller.parsing.documents import read_document
from leadline_controller.parsing.fields import FieldError

if TYPE_CHECKING:
    from rich.console import RenderableType

_WORST_PAIRS = 10


@click.command(
    epilog="Example: leadline lab sounding --truth docs/networks/two-halls.yaml --minutes 5"
)
@click.option(
    "--truth",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Nodes, true round trips and link speeds, YAML or JSON.",
)
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True, max=10_080),
    help="Simulated time.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
@output_option
def sounding(path: Path, minutes: float, seed: int, output: Format) -> None:
    """Measure a network that a file describes, without sending a packet.

    The planner and the estimates are the controller's own. Shows what they believe beside the
    truth, and what the measurements cost.
    """
    from leadline_lab.sounding.simulated_network import read_network
    from leadline_lab.sounding.simulation import Sounding

    try:
        network = read_network(read_document(path))
    except FieldError as error:
        raise BadInput(f"{path}: {error}") from None
    run = Sounding(network, seed)
    with progress("measuring") as report:
        run.run(minutes, lambda now_s: report(now_s / (minutes * 60)))
        found = run.document()
    emit(output, lambda: found, lambda _: _tables(found))


def _tables(found: dict[str, Any]) -> Iterator["RenderableType"]:
    columns = ("NODE", "BANDWIDTH Mbit/s", "TRUE", "PINGS/min", "TEST MB", "LINK TIME %")
    yield table(
        columns,
        (
            (
                node["name"],
                (">= " if node["bound"] == "at-least" else "")
                + human.number(node["bandwidth_mbps"]),
                human.number(node["true_mbps"]),
                human.number(node["pings_per_minute"]),
                human.number(node["test_bytes"] / 1e6),
                human.number(node["link_time_share"] * 100),
            )
            for node in found["nodes"]
        ),
        numbers=columns[1:],
    )
    pairs = [pair for pair in found["pairs"] if pair["rtt_ms"] is not None]
    pairs.sort(key=lambda x: abs(x["rtt_ms"] - x["true_rtt_ms"]) / x["true_rtt_ms"], reverse=True)
    yield f"\nThe {min(_WORST_PAIRS, len(pairs))} pairs that are known worst:"
    columns = ("NODE", "NODE ", "RTT ms", "ERROR ms", "TRUE", "SOURCE")
    yield table(
        columns,
        (
            (
                pair["a"],
                pair["b"],
                human.number(pair["rtt_ms"]),
                human.number(pair["error_ms"]),
                human.number(pair["true_rtt_ms"]),
                pair["source"],
            )
            for pair in pairs[:_WORST_PAIRS]
        ),
        numbers=columns[2:5],
        keys=2,
    )
    for change in found["changes"]:
        after_s = change["noticed_after_s"]
        noticed = "was not noticed" if after_s is None else f"was noticed after {after_s:g} s"
        yield f"the change at {change['at_s']:g} s {noticed}"
    summary = found["summary"]
    sources = ", ".join(f"{count} {source}" for source, count in summary["pairs_by_source"].items())
    yield f"\n{summary['pairs']} pairs: {sources}"
    if pairs:
        yield (
            f"relative error: median {summary['median_relative_error']:.1%}, "
            f"90th percentile {summary['p90_relative_error']:.1%}; "
            f"{summary['within_error_share']:.1%} of the pairs are within their error"
        )
        yield (
            "the nodes believed nearest are "
            f"{summary['nearest_rtt_ratio']:.2f} times as far as the nearest ones"
        )

"""Show what probing costs each link, and what is left of its budget."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import (
    Endpoint,
    ask,
    connection_options,
    optional,
    plain,
    selected,
)
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import DIM, Table, cell, table

_COLUMNS = (
    *("LINK TIME %\nlast hour", "\nallowed", "BYTES\nlast 24 h", "\nleft"),
    *("TESTS", "PINGS\n/min"),
)
_WIDE = ("LINK TIME %\nlast 24 h", "\nin all", "BYTES\nin all", "COUNTED\nfor")


@click.command(epilog="Example: leadline budget -o wide")
@listing(
    {
        **{"node": "name", "hour": "link_time_share.hour", "allowed": "link_time_share.allowed"},
        **{"bytes": "bytes.day", "left": "bytes.day_left", "tests": "tests"},
        **{"pings": "pings_per_minute"},
    },
    selects=True,
)
@connection_options
def budget(selector: str, endpoint: Endpoint) -> Listed[pb.BudgetStatus]:
    """Show what bandwidth tests cost each node and uplink: the share of the link's time, the bytes
    of the last 24 hours and what is left of them, the tests, and those that run now."""
    answer = ask(endpoint, lambda stub: stub.GetBudget, pb.GetBudgetRequest)
    is_selected = selected(endpoint, selector)

    def whole(documents: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "leader": answer.leader,
            "nodes": documents,
            "uplinks": [document(status) for status in answer.uplinks],
            "running": [plain(test) for test in answer.running],
        }

    return Listed(
        "node",
        [node for node in answer.nodes if is_selected(node.name)],
        key=lambda status: status.name,
        document=document,
        whole=whole,
        tables=lambda nodes, wide: tables(answer, nodes, wide=wide),
    )


def document(status: pb.BudgetStatus) -> dict[str, Any]:
    """One budget. Shares are of the link's time: 0.001 is 0.1 %."""
    return {
        "name": status.name,
        "link_time_share": {
            "allowed": status.allowed_share,
            "hour": status.hour_share,
            "day": status.day_share,
            "all": status.share,
        },
        "bytes": {
            "allowed_per_day": status.bytes_per_day,
            "day": status.day_bytes,
            "day_left": status.day_bytes_left,
            "all": status.bytes,
        },
        "tests": status.tests,
        "age_s": status.age_s,
        "pings_per_minute": optional(status, "pings_per_minute"),
    }


def tables(
    answer: pb.GetBudgetResponse, nodes: Sequence[pb.BudgetStatus], *, wide: bool
) -> Iterator[RenderableType]:
    """The nodes, the uplinks if there are any, and the tests that run now."""
    if not answer.leader:
        leader = answer.lease_holder or "none"
        yield cell(f"this controller stands by and runs no tests; leader: {leader}", "yellow")
    if not nodes:
        yield Text("no such node was probed yet" if answer.nodes else "no node was probed yet")
        return
    yield _table("NODE", nodes, wide=wide)
    if answer.uplinks:
        yield Text()
        yield _table("UPLINK", answer.uplinks, wide=wide)
    for test in answer.running:
        over = f" over {', '.join(test.uplinks)}" if test.uplinks else ""
        size = f"{human.amount(test.max_bytes)}B"
        yield cell(f"running: {test.client} -> {test.server}{over}, at most {size}", DIM)


def _table(title: str, statuses: Iterable[pb.BudgetStatus], *, wide: bool) -> Table:
    columns = _COLUMNS + (_WIDE if wide else ())
    rows = ((status.name, *_row(status, wide=wide)) for status in statuses)
    return table((title, *columns), rows, numbers=columns)


def _row(status: pb.BudgetStatus, *, wide: bool) -> Iterator[object]:
    yield _percent(status.hour_share)
    yield _percent(status.allowed_share)
    yield human.amount(status.day_bytes)
    yield human.amount(status.day_bytes_left)
    yield status.tests
    yield human.number(optional(status, "pings_per_minute"))
    if wide:
        yield _percent(status.day_share)
        yield _percent(status.share)
        yield human.amount(status.bytes)
        yield human.age(status.age_s)


def _percent(share: float) -> str:
    return human.number(100 * share, 2)

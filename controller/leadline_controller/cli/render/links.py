"""Tables of links: a matrix if it fits the console, else a list of the pairs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from leadline_controller.cli.render import human
from leadline_controller.cli.render.tables import DIM, FirstThatFits, cell, table

Kind = Literal["rtt", "bandwidth"]
KINDS: tuple[Kind, ...] = ("rtt", "bandwidth")
_SELF = "·"
_MARKS = {"triangulated": "~", "estimated": "~", "stale": "?"}
_MATRIX_AT_MOST = 64


class _Cell(NamedTuple):
    value: str
    how: str


_UNKNOWN = _Cell(human.UNKNOWN, human.UNKNOWN)
_FAINT = (_SELF, human.UNKNOWN)


def matrix_of(response: pb.GetMatrixResponse, kind: Kind, *, wide: bool) -> RenderableType:
    """One kind of measurement between all nodes. wide: each with its age and method."""
    known = {
        frozenset((link.a, link.b)): value
        for link in response.links
        if (value := _CELLS[kind](link)) is not None
    }
    if not response.nodes:
        return Text("no nodes: the cluster has none, and no agent has sent a message")
    pairs = tuple(_pairs(response, known))
    if len(response.nodes) > _MATRIX_AT_MOST:
        return FirstThatFits([pairs])
    return FirstThatFits([(_matrix(response.nodes, known, wide=wide),), pairs])


def links_of(name: str, links: Iterable[pb.LinkStatus]) -> Table:
    """The links of one node, one line for each other end."""
    columns = ("RTT ms", "BANDWIDTH Mbit/s")
    made = table("LINK TO", columns[0], "AGE", columns[1], "AGE", numbers=(*columns, "AGE"))
    for link in links:
        rtt, bandwidth = (
            _CELLS[kind](link) or _Cell(human.UNKNOWN, human.UNKNOWN) for kind in KINDS
        )
        other = link.b if link.a == name else link.a
        made.add_row(*map(cell, (other, *rtt, *bandwidth)))
    return made


def _matrix(nodes: Iterable[str], known: Mapping[frozenset[str], _Cell], *, wide: bool) -> Table:
    names = list(nodes)
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    made.add_column("", style="bold", no_wrap=True)
    for name in names:
        made.add_column(cell(name), justify="right", no_wrap=True)
    for row in names:
        cells = (
            _SELF if row == at else _shown(known.get(frozenset((row, at))), wide) for at in names
        )
        made.add_row(
            cell(row), *(cell(x, DIM if x in (_SELF, human.UNKNOWN) else "") for x in cells)
        )
    return made


def _shown(value: _Cell | None, wide: bool) -> str:
    if value is None:
        return human.UNKNOWN
    return f"{value.value} ({value.how})" if wide else value.value


def _pairs(
    response: pb.GetMatrixResponse, known: Mapping[frozenset[str], _Cell]
) -> Iterator[RenderableType]:
    made = table("NODE", "NODE ", "VALUE", "HOW", numbers=("VALUE",), folding=("NODE", "NODE "))
    for link in response.links:
        value = known.get(frozenset((link.a, link.b)))
        if value is not None:
            made.add_row(*map(cell, (link.a, link.b, *value)))
    yield made
    count = len(response.nodes)
    yield Text(f"{len(known)} of {count * (count - 1) // 2} pairs are known", style=DIM)


def _rtt(link: pb.LinkStatus) -> _Cell | None:
    if not link.HasField("rtt_ms"):
        return None
    # A round trip through the broker is an upper bound.
    mark = "<= " if link.rtt_method == "mqtt" else _MARKS.get(link.rtt_source, "")
    error = f" ±{human.number(link.rtt_error_ms)}" if link.rtt_source in _MARKS else ""
    age = f" {human.age(link.rtt_age_s)}" if link.HasField("rtt_age_s") else ""
    how = f"{link.rtt_method or link.rtt_source}{error}{age}"
    return _Cell(f"{mark}{human.number(link.rtt_ms)}", how.strip())


def _bandwidth(link: pb.LinkStatus) -> _Cell | None:
    if not link.HasField("bandwidth_mbps"):
        return None
    bound = ">= " if link.bandwidth_is_lower_bound else ""
    return _Cell(f"{bound}{human.number(link.bandwidth_mbps)}", human.age(link.bandwidth_age_s))


_CELLS: Mapping[Kind, Callable[[pb.LinkStatus], _Cell | None]] = {
    "rtt": _rtt,
    "bandwidth": _bandwidth,
}

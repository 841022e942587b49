"""Links between nodes as plain data for JSON and YAML, and as tables: a matrix if it fits the
console, else a list of the pairs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional, plain
from leadline_controller.cli.output import DIM, FirstThatFits, Table, cell, table

Kind = Literal["rtt", "bandwidth"]
KINDS: tuple[Kind, ...] = ("rtt", "bandwidth")
_FIELDS: dict[Kind, str] = {
    "rtt": "rtt_ms rtt_age_s rtt_method? rtt_source? rtt_error_ms loss jitter_ms flapping",
    "bandwidth": "bandwidth_mbps bandwidth_age_s bandwidth_is_lower_bound "
    "bandwidth_is_host_limited bandwidth_confidence",
}
_COLUMNS: dict[Kind, tuple[str, ...]] = {
    "rtt": ("RTT\nms", "RTT\nage", "JITTER\nms", "LOSS\n%"),
    "bandwidth": ("BANDWIDTH\nMbit/s", "BANDWIDTH\nage"),
}
_MATRIX_AT_MOST = 64
_LISTED_AT_MOST = 250  # pairs: more are no answer to anybody
_WORST = 20
# Of more nodes the controller tells no estimates; see GetMatrixResponse.
_ESTIMATED_AT_MOST = 200
# Column -> path in the document of a pair.
SORTED_BY = {
    **{"node": "a", "rtt": "rtt_ms", "jitter": "jitter_ms", "loss": "loss"},
    **{"bandwidth": "bandwidth_mbps", "age": "rtt_age_s"},
}
_UNREACHABLE = "unreachable"
# Smaller ones are usual and would fill the matrix.
_SHOWN_JITTER, _SHOWN_LOSS = 0.1, 0.005
_UNKNOWN = (human.UNKNOWN, human.UNKNOWN)
_HOST_LIMITED = "*>= "
_FOOTNOTE = "* at least this: a board was busy, throttled or under voltage in the test"
_MARKS = {"triangulated": "~", "estimated": "~", "stale": "?"}


def document(link: pb.LinkStatus, kinds: Iterable[Kind] = KINDS) -> dict[str, Any]:
    """One pair of nodes. Unknown is None."""
    wanted = (names for kind, names in _FIELDS.items() if kind in kinds)
    fields = plain(link, " ".join(("a b", *wanted)))
    if (confidence := fields.get("bandwidth_confidence")) is not None:
        fields["bandwidth_confidence"] = round(confidence, 3)
    return fields


def matrix_of(
    response: pb.GetMatrixResponse, kind: Kind, *, wide: bool = False, every: bool = False
) -> RenderableType:
    """One kind of measurement between all nodes: the matrix if it fits, else the pairs, and if they
    are too many to be read, the worst ones. wide: each with its age and method. every: all pairs,
    however many."""
    if not response.nodes:
        return Text("no nodes: the cluster has none, and no agent has sent a message")
    shown = known(response.links, kind)
    if len(shown) > _LISTED_AT_MOST and not every:
        shown = worst(shown, kind, _WORST)
    variants = [pairs_of(response, kind, shown, wide=wide)]
    if len(response.nodes) <= _MATRIX_AT_MOST:
        values = {frozenset((x.a, x.b)): _value(x, kind, wide=wide) for x in response.links}
        made = _matrix(list(response.nodes), values, wide=wide)
        variants.insert(0, (made, *_footnote(response.links, kind)))
    return FirstThatFits(variants)


def pairs_of(
    response: pb.GetMatrixResponse, kind: Kind, shown: Sequence[pb.LinkStatus], *, wide: bool
) -> tuple[RenderableType, ...]:
    """These pairs, and how many there are of which this kind is known."""
    count, nodes = len(known(response.links, kind)), len(response.nodes)
    rows = ((link.a, link.b, *_value(link, kind, wide=wide)) for link in shown)
    how = "known" if nodes <= _ESTIMATED_AT_MOST else "measured"
    said = f"{count} of {nodes * (nodes - 1) // 2} pairs are {how}"
    if len(shown) < count:
        said += f"; these are the {len(shown)} worst. All: leadline matrix --all; of one node: "
        said += "leadline matrix NODE"
    return (
        table(("NODE", "NODE ", "VALUE", "HOW"), rows, numbers=("VALUE",), keys=2),
        Text(said, style=DIM),
        *_footnote(shown, kind),
    )


def worst(links: Iterable[pb.LinkStatus], kind: Kind, count: int) -> list[pb.LinkStatus]:
    """So many of the pairs: those that lose all packets and those with the longest round trips, or
    those with the least bandwidth."""

    def rank(link: pb.LinkStatus) -> float:
        if kind == "bandwidth":
            return link.bandwidth_mbps
        return -math.inf if link.rtt_source == _UNREACHABLE else -link.rtt_ms

    return sorted(known(links, kind), key=rank)[:count]


def known(links: Iterable[pb.LinkStatus], kind: Kind) -> list[pb.LinkStatus]:
    """The pairs of which this is known."""
    if kind == "bandwidth":
        return [link for link in links if link.HasField("bandwidth_mbps")]
    return [x for x in links if x.HasField("rtt_ms") or x.rtt_source == _UNREACHABLE]


def _footnote(links: Iterable[pb.LinkStatus], kind: Kind) -> tuple[Text, ...]:
    is_noted = kind == "bandwidth" and any(link.bandwidth_is_host_limited for link in links)
    return (Text(_FOOTNOTE, style=DIM),) if is_noted else ()


def links_of(name: str, links: Iterable[pb.LinkStatus], kinds: Iterable[Kind] = KINDS) -> Table:
    """The links of one node, one line for each other end."""
    columns = ("LINK TO", *(column for kind in kinds for column in _COLUMNS[kind]))
    rows = (
        (
            link.b if link.a == name else link.a,
            *(value for kind in kinds for value in _of_link(link, kind)),
        )
        for link in links
    )
    return table(columns, rows, numbers=columns[1:])


def _of_link(link: pb.LinkStatus, kind: Kind) -> Iterator[str]:
    yield from _value(link, kind)
    if kind == "rtt":
        yield human.number(optional(link, "jitter_ms"))
        yield human.number(100 * link.loss) if link.HasField("loss") else human.UNKNOWN


def _matrix(
    names: Sequence[str], values: Mapping[frozenset[str], tuple[str, str]], *, wide: bool
) -> Table:
    rows = []
    for row in names:
        cells = [cell(row, "bold")]
        for column in names:
            value, how = values.get(frozenset((row, column)), _UNKNOWN)
            if row == column or value == human.UNKNOWN:
                cells.append(cell("·" if row == column else value, DIM))
            else:
                cells.append(cell(f"{value} ({how})" if wide else value))
        rows.append(cells)
    return table(("", *names), rows, numbers=names)


def _value(link: pb.LinkStatus, kind: Kind, *, wide: bool = False) -> tuple[str, str]:
    """What a table shows of a measurement: its value, and its method and age. wide: and jitter and
    loss, if there is any."""
    if kind == "rtt" and link.rtt_source == _UNREACHABLE:
        return "lost", _UNREACHABLE
    if not link.HasField("rtt_ms" if kind == "rtt" else "bandwidth_mbps"):
        return _UNKNOWN
    if kind == "rtt":
        # A round trip through the broker is an upper bound.
        mark = "<= " if link.rtt_method == "mqtt" else _MARKS.get(link.rtt_source, "")
        mark = "!" if link.flapping else mark
        how = [link.rtt_method or link.rtt_source]
        if link.rtt_source in _MARKS:
            how.append(f"±{human.number(link.rtt_error_ms)}")
        if link.HasField("rtt_age_s"):
            how.append(human.age(link.rtt_age_s))
        if link.flapping:
            how.append("flapping")
        if wide and link.jitter_ms >= _SHOWN_JITTER * link.rtt_ms:
            how.append(f"jitter {human.number(link.jitter_ms)}")
        if wide and link.loss >= _SHOWN_LOSS:
            how.append(f"loss {human.number(100 * link.loss)} %")
        return f"{mark}{human.number(link.rtt_ms)}", " ".join(how).strip()
    mark = ">= " if link.bandwidth_is_lower_bound else ""
    mark = _HOST_LIMITED if link.bandwidth_is_host_limited else mark
    age = human.age(link.bandwidth_age_s)
    why = ", a board was busy" if wide and link.bandwidth_is_host_limited else ""
    return f"{mark}{human.number(link.bandwidth_mbps)}", age + why

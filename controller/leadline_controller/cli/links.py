"""Links between nodes as plain data for JSON and YAML, and as tables: a matrix if it fits the
console, else a list of the pairs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from leadline_wire.v1 import control_pb2 as pb
from rich.console import Group, RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional
from leadline_controller.cli.output import DIM, FirstThatFits, Table, cell, table

Kind = Literal["rtt", "bandwidth"]
KINDS: tuple[Kind, ...] = ("rtt", "bandwidth")
_MATRIX_AT_MOST = 64
_UNREACHABLE = "unreachable"
# Smaller ones are usual and would fill the matrix.
_SHOWN_JITTER, _SHOWN_LOSS = 0.1, 0.005
_UNKNOWN = (human.UNKNOWN, human.UNKNOWN)
_HOST_LIMITED = "*>= "
_FOOTNOTE = "* host-limited: a board was too busy, throttled or under voltage in the test"
_MARKS = {"triangulated": "~", "estimated": "~", "stale": "?"}


def document(link: pb.LinkStatus, kinds: Iterable[Kind] = KINDS) -> dict[str, Any]:
    """One pair of nodes. Unknown is None."""
    fields: dict[str, Any] = {"a": link.a, "b": link.b}
    if "rtt" in kinds:
        fields["rtt_ms"] = optional(link, "rtt_ms")
        fields["rtt_age_s"] = optional(link, "rtt_age_s")
        fields["rtt_method"] = link.rtt_method or None
        fields["rtt_source"] = link.rtt_source or None
        fields["rtt_error_ms"] = optional(link, "rtt_error_ms")
        fields["loss"] = optional(link, "loss")
        fields["jitter_ms"] = optional(link, "jitter_ms")
        fields["flapping"] = link.flapping
    if "bandwidth" in kinds:
        fields["bandwidth_mbps"] = optional(link, "bandwidth_mbps")
        fields["bandwidth_age_s"] = optional(link, "bandwidth_age_s")
        fields["bandwidth_is_lower_bound"] = link.bandwidth_is_lower_bound
        fields["bandwidth_is_host_limited"] = link.bandwidth_is_host_limited
        confidence = optional(link, "bandwidth_confidence")
        fields["bandwidth_confidence"] = None if confidence is None else round(confidence, 3)
    return fields


def matrix_of(response: pb.GetMatrixResponse, kind: Kind, *, wide: bool = False) -> RenderableType:
    """One kind of measurement between all nodes. wide: each with its age and method."""
    if not response.nodes:
        return Text("no nodes: the cluster has none, and no agent has sent a message")
    values = {frozenset((x.a, x.b)): _value(x, kind, wide=wide) for x in response.links}
    known = [
        (link.a, link.b, *value)
        for link in response.links
        if (value := values[frozenset((link.a, link.b))]) != _UNKNOWN
    ]
    columns, count = ("NODE", "NODE ", "VALUE", "HOW"), len(response.nodes)
    pairs = (
        table(columns, known, numbers=("VALUE",), keys=2),
        Text(f"{len(known)} of {count * (count - 1) // 2} pairs are known", style=DIM),
    )
    variants: list[tuple[RenderableType, ...]] = [pairs]
    if count <= _MATRIX_AT_MOST:
        variants = [(_matrix(list(response.nodes), values, wide=wide),), pairs]
    made = FirstThatFits(variants)
    is_noted = kind == "bandwidth" and any(x.bandwidth_is_host_limited for x in response.links)
    return Group(made, Text(_FOOTNOTE, style=DIM)) if is_noted else made


def links_of(name: str, links: Iterable[pb.LinkStatus]) -> Table:
    """The links of one node, one line for each other end."""
    columns = (
        *("LINK TO", "RTT\nms", "RTT\nage", "JITTER\nms", "LOSS\n%"),
        *("BANDWIDTH\nMbit/s", "BANDWIDTH\nage"),
    )
    rows = (
        (
            link.b if link.a == name else link.a,
            *_value(link, "rtt"),
            human.number(optional(link, "jitter_ms")),
            human.number(100 * link.loss) if link.HasField("loss") else human.UNKNOWN,
            *_value(link, "bandwidth"),
        )
        for link in links
    )
    return table(columns, rows, numbers=columns[1:])


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
    return f"{mark}{human.number(link.bandwidth_mbps)}", human.age(link.bandwidth_age_s)

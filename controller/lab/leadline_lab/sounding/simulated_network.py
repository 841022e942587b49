"""Reads a network for a sounding: true round trips and link speeds, and how they change.

The units are milliseconds, Mbit/s (10^6 bits) and seconds since the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from leadline_controller.framework.view import Floats
from leadline_controller.parsing.fields import FieldError, Fields

_MAX_NODES = 2000  # a full matrix of true round trips has 4 million values
_MAX_RTT_MS, _MAX_MBPS = 60_000.0, 1e6
_MAX_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on the link of node `a` has another speed, or the pair another round trip."""

    at_s: float
    a: int
    b: int | None
    value: float


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link of `mbps` Mbit/s that some nodes, by index, share on their way to all others."""

    name: str
    nodes: frozenset[int]
    mbps: float


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedNetwork:
    """A network."""

    names: tuple[str, ...]
    rtt_ms: Floats  # true round trips, shape (n, n), symmetric
    link_mbps: Floats  # speed of each node's link, shape (n,)
    uplinks: tuple[Uplink, ...] = ()
    noise: float = 0.0  # relative standard deviation of one ping
    loss: float = 0.0  # share of lost pings
    changes: tuple[Change, ...] = ()


def read_network(document: object) -> SimulatedNetwork:
    """The network in this document. Raises FieldError with the field and what was expected."""
    root = Fields(document, "")
    root.only("nodes", "rtt_ms", "links", "uplinks", "noise", "loss", "changes")
    entries = list(root.objects("nodes"))
    if not 2 <= len(entries) <= _MAX_NODES:
        raise FieldError(f"nodes: expected 2 to {_MAX_NODES} nodes, got {len(entries)}")
    index: dict[str, int] = {}
    link_mbps = np.zeros(len(entries))
    for at, entry in enumerate(entries):
        entry.only("name", "link_mbps", "segment")
        entry.text("segment", "")
        name = entry.name("name")
        if not name or name in index:
            raise entry.error("name", "a name that no other node has")
        index[name] = at
        link_mbps[at] = _positive(entry, "link_mbps", _MAX_MBPS)
    return SimulatedNetwork(
        names=tuple(index),
        rtt_ms=_round_trips(root, index),
        link_mbps=link_mbps,
        uplinks=tuple(_uplink(entry, index) for entry in root.objects("uplinks")),
        noise=root.number("noise", 10.0) or 0.0,
        loss=root.number("loss", 1.0) or 0.0,
        changes=tuple(_change(entry, index) for entry in root.objects("changes")),
    )


def _round_trips(root: Fields, index: Mapping[str, int]) -> Floats:
    count = len(index)
    if root.has("rtt_ms") == root.has("links"):
        raise FieldError("rtt_ms: expected a matrix here or a list in links, and not both")
    if root.has("links"):
        rtt_ms = np.full((count, count), np.nan)
        for link in root.objects("links"):
            link.only("a", "b", "rtt_ms", "bandwidth_mbps")
            a, b = _place(link, "a", index), _place(link, "b", index)
            rtt_ms[a, b] = rtt_ms[b, a] = _positive(link, "rtt_ms", _MAX_RTT_MS)
    else:
        rows = root.raw("rtt_ms")
        try:
            rtt_ms = np.array(rows, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            raise FieldError("rtt_ms: expected a list of lists of numbers") from None
        if rtt_ms.shape != (count, count):
            raise FieldError(
                f"rtt_ms: expected {count} lists of {count} numbers, one for each node, "
                f"got the shape {' x '.join(map(str, rtt_ms.shape))}"
            )
    np.fill_diagonal(rtt_ms, 0.0)
    names = list(index)
    for a, b in combinations(range(count), 2):
        value, other = rtt_ms[a, b], rtt_ms[b, a]
        if not 0 < value <= _MAX_RTT_MS or value != other:
            shown = "nothing" if np.isnan(value) else f"{value:g} and {other:g}"
            raise FieldError(
                f"rtt_ms: expected one number above 0 up to {_MAX_RTT_MS:g} for {names[a]} and "
                f"{names[b]} in both directions, got {shown}"
            )
    return rtt_ms


def _uplink(entry: Fields, index: Mapping[str, int]) -> Uplink:
    entry.only("name", "nodes", "mbps")
    members = []
    for name in entry.texts("nodes"):
        if name not in index:
            raise entry.error("nodes", f"names of nodes; {name!r} is none")
        members.append(index[name])
    return Uplink(entry.name("name"), frozenset(members), _positive(entry, "mbps", _MAX_MBPS))


def _change(entry: Fields, index: Mapping[str, int]) -> Change:
    at_s = entry.number("at_s", _MAX_SECONDS)
    if at_s is None:
        raise entry.error("at_s", "seconds since the start")
    if entry.has("node"):
        entry.only("at_s", "node", "link_mbps")
        node = _place(entry, "node", index)
        return Change(at_s, node, None, _positive(entry, "link_mbps", _MAX_MBPS))
    entry.only("at_s", "a", "b", "rtt_ms")
    a, b = _place(entry, "a", index), _place(entry, "b", index)
    return Change(at_s, a, b, _positive(entry, "rtt_ms", _MAX_RTT_MS))


def _place(entry: Fields, field_name: str, index: Mapping[str, int]) -> int:
    name = entry.text(field_name)
    if name not in index:
        raise entry.error(field_name, "the name of a node")
    return index[name]


def _positive(entry: Fields, name: str, highest: float) -> float:
    value = entry.number(name, highest)
    if not value:
        raise entry.error(name, f"a number above 0, up to {highest:g}")
    return value

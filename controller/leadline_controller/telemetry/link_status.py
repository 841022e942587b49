"""What is read of pairs of nodes: one by one, for people, and in columns, for the metrics and the
map. Times are seconds on the controller's monotonic clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.telemetry.coordinates import SOURCES, RttEstimates
from leadline_controller.telemetry.paths import LOST_ROUNDS, Path

Pair = tuple[str, str]
UNREACHABLE = "unreachable"
# A measurement is stale in the last part of its time to live.
STALE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The known values of one pair of nodes, and when each was measured."""

    a: str
    b: str
    rtt_ms: float | None = None
    rtt_at_s: float = 0.0
    # "icmp", or "mqtt" for a bound made of both boards' round trips to the broker; "" for an
    # estimate.
    rtt_method: str = ""
    # "measured"; "stale" in the second half of the time to live; "triangulated" from near nodes, or
    # "estimated" from the coordinates of both; "unreachable", without a value, when no ping of
    # several rounds came back.
    rtt_source: str = ""
    # The true round trip is within this of rtt_ms in 90 % of the pairs.
    rtt_error_ms: float | None = None
    loss: float | None = None  # the share of packets lost
    jitter_ms: float | None = None  # the mean deviation of rounds
    # The path changed several times, and rtt_ms is the higher one of its levels (paths.py).
    flapping: bool = False
    bandwidth_mbps: float | None = None  # of the last bandwidth test
    bandwidth_at_s: float = 0.0
    # That was too short, or a board was hindered; the pair can do at least this.
    lower_bound: bool = False
    is_host_limited: bool = False  # a board was hindered


class PairTable(NamedTuple):
    """m pairs of the boards `names` whose round trip is known, or whose pings get no reply."""

    names: tuple[str, ...]
    # Indexes of both, shape (m, 2), each pair once. The columns from rtt_ms to is_stale have shape
    # (m,).
    ends: Ints
    rtt_ms: Floats  # infinite without a reply
    error_ms: Floats  # as LinkStatus says, NaN without a reply
    near_ms: Floats  # the last round trip, NaN if there was none
    loss: Floats  # NaN if unknown
    is_stale: Bools
    # The pairs of names with a bandwidth test, the newest first -> Mbit/s.
    tested: Mapping[tuple[str, str], float]
    estimates: RttEstimates | None  # of the other pairs, None before the first fit
    # So many of the last pairs have an upper bound instead, made of both nodes' round trips to the
    # broker.
    bounds: int = 0

    def with_bounds(self, bounds: Sequence[tuple[str, str, float]]) -> "PairTable":
        """These pairs and others of which only upper bounds are known: both nodes, and ms."""
        numbers = {name: number for number, name in enumerate(self.names)}
        ends = [[numbers.setdefault(end, len(numbers)) for end in (a, b)] for a, b, _ in bounds]
        most_ms, unknown = [each[2] for each in bounds], [np.nan] * len(bounds)
        return self._replace(
            names=tuple(numbers),
            ends=np.concatenate((self.ends, ends)),
            rtt_ms=np.concatenate((self.rtt_ms, most_ms)),
            error_ms=np.concatenate((self.error_ms, most_ms)),
            near_ms=np.concatenate((self.near_ms, unknown)),
            loss=np.concatenate((self.loss, unknown)),
            is_stale=np.concatenate((self.is_stale, np.zeros(len(bounds), dtype=np.bool_))),
            bounds=len(bounds),
        )


def pair_of(node: str, peer: str) -> Pair:
    """The pair of these two, sorted."""
    return (node, peer) if node < peer else (peer, node)


def measured(bare: LinkStatus, path: Path, rtt_ms: float, noise: float, age: float) -> LinkStatus:
    """This status with what pings measured. rtt_ms: to be shown. noise: the relative deviation of
    90 % of all rounds. age: of the measurement, as a share of its time to live."""
    if path.lost_rounds == LOST_ROUNDS:
        return replace(bare, rtt_source=UNREACHABLE, loss=1.0)
    return replace(
        bare,
        rtt_ms=rtt_ms,
        rtt_at_s=path.at_s,
        rtt_method="icmp",
        rtt_source="stale" if age > STALE_SHARE else "measured",
        rtt_error_ms=max(rtt_ms * noise * (1 + max(age, 0.0)), rtt_ms - path.rtt_ms),
        loss=1 - path.received / path.sent if path.sent else None,
        jitter_ms=None if isnan(path.jitter_ms) else path.jitter_ms,
    )


def add_estimates(
    estimates: RttEstimates,
    node: str,
    statuses: dict[Pair, LinkStatus],
    only: str | None = None,
) -> None:
    """Add the estimated round trips of a node that were not measured, to `only` if it is given."""
    if node not in estimates.index or (only is not None and only not in estimates.index):
        return
    if only is not None and (known := statuses.get(pair_of(node, only))) and known.rtt_source:
        return
    rtt_ms, triangulated = estimates.rtt_ms_from(estimates.index[node])
    errors = {source: estimates.trials.error(source) for source in SOURCES}
    peers = slice(None) if only is None else slice(at := estimates.index[only], at + 1)
    columns = zip(
        estimates.names[peers], rtt_ms[peers].tolist(), triangulated[peers].tolist(), strict=True
    )
    for peer, value, near in columns:
        pair = pair_of(node, peer)
        status = statuses.get(pair)
        if peer == node or isnan(value) or (status and status.rtt_source):
            continue
        source = SOURCES[0] if near else SOURCES[1]
        statuses[pair] = replace(
            status or LinkStatus(*pair),
            rtt_ms=value,
            rtt_source=source,
            rtt_error_ms=value * errors[source],
        )

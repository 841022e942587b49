"""netsched: six metrics, each of which gives points to its best node.

"Network-aware scheduler (NetSched) for containerized applications in an multilevel
edge/fog/cloud distributed environment", Algorithm 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_metrics import deviations_off
from leadline_controller.framework.options import option
from leadline_controller.framework.peers import peers_of
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.peers import filled_waits_s
from leadline_controller.strategies.shared.unknowns import fill, left_unknown, unknown_option


class _Metric(NamedTuple):
    column: str
    weight: str
    sign: int  # -1: the more the better
    shown: str
    unit: str


# Algorithm 1, lines 3-27, in the order of its comparisons.
_METRICS = (
    _Metric("cpu_percent", "cpu", 1, "CPU", "%"),
    _Metric("memory_percent", "memory", 1, "memory", "%"),
    _Metric("packets_received_per_s", "packets_received", 1, "packets received", "/s"),
    _Metric("packets_sent_per_s", "packets_sent", 1, "packets sent", "/s"),
    _Metric("bandwidth_mbps", "bandwidth", -1, "bandwidth", "Mbit/s"),
    _Metric("disk_bytes_per_s", "disk", 1, "disk I/O", "bytes/s"),
)


_PEERS = _Metric("peers", "peers", 1, "wait for peers", "s")
_WAIT_ERROR = 0.1


class _Waits(NamedTuple):
    """For all peers, s each second, and which are known, shapes (len(candidates),)."""

    filled: Floats
    known: Bools


@dataclass(frozen=True, slots=True)
class NetSched(Strategy):
    """The node with the most points for CPU, memory, bandwidth, packets and disk.

    Points per metric (Algorithm 1): CPU 3, memory 2, bandwidth 2, packets received 1,
    packets sent 1, disk input and output together 1. The most points win.

    Nodes within their own error of a metric's best all get its points, since a value that differs
    by less says nothing. Where errors are not known, and with `strategy.letter`, comparisons are
    strict as in the paper: of equal nodes the first one gets the points. The points are options,
    and 0 leaves a metric out: boards that share one machine, as in the lab, share its CPU, memory
    and disk.

    Unknown: an unknown metric counts as that of boards like it (strategies/shared/unknowns.py), but
    gets no points where a measured one does; with `unknown=worst` it never gets any. A node without
    any metric has no total and is chosen only if no node has one.

    The option `peers` adds a seventh metric that the paper does not have: the least wait for the
    pod's peers (framework/peers.py). A wait's error is a tenth of it, as that of a bandwidth.
    """

    name = "netsched"
    better = "higher"
    paper = "NetSched, Algorithm 1"
    needs = tuple(metric.column for metric in _METRICS)

    cpu: float = option(3, unit="points", maximum=1e6, help="least CPU in use")
    memory: float = option(2, unit="points", maximum=1e6, help="least memory in use")
    packets_received: float = option(1, unit="points", maximum=1e6, help="fewest packets received")
    packets_sent: float = option(1, unit="points", maximum=1e6, help="fewest packets sent")
    bandwidth: float = option(2, unit="points", maximum=1e6, help="most bandwidth measured")
    disk: float = option(1, unit="points", maximum=1e6, help="least disk input and output")
    unknown: str = unknown_option()
    peers: float = option(0, unit="points", maximum=1e6, help="least wait for the pod's peers")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The sum of each candidate's points; parts are the points of each metric."""
        used = [m for m in _METRICS if getattr(self, m.weight) > 0]
        weights = np.array([float(getattr(self, m.weight)) for m in used])
        columns = [getattr(view.metrics, m.column) for m in used]
        values = np.array([each[candidates] for each in columns])
        values = values.reshape(len(used), candidates.size)
        known = ~np.isnan(values)
        waits = self._waits_s(view, pod, candidates)
        silent: Bools = np.logical_not(known.any(axis=0))
        if waits is not None:
            silent &= ~waits.known
        filled = []
        if not known.all():
            how = candidates, self.unknown, left_unknown
            filled = [
                fill(view, column, *how, m.shown, m.unit)
                for m, column in zip(used, columns, strict=True)
            ]
            values = np.array([each.values for each in filled])
            values[:, silent] = np.nan
        values *= np.array([[m.sign] for m in used]).reshape(-1, 1)  # the less the better
        margins = view.metrics.margins_of([m.column for m in used], candidates)
        if waits is not None:
            used, weights = [*used, _PEERS], np.append(weights, self.peers)
            values = np.vstack((values, np.where(silent, np.nan, waits.filled)))
            known = np.vstack((known, waits.known))
            if margins is not None:
                margin_s = _WAIT_ERROR * waits.filled * deviations_off(candidates.size)
                margins = np.vstack((margins, margin_s))
        won = _wins(values, margins, known)
        points = won * weights[:, np.newaxis]
        total = np.where(silent, np.nan, points.sum(axis=0))
        points[np.isnan(values)] = np.nan
        parts = dict(zip([m.column for m in used], points, strict=True))

        def why(at: int) -> str:
            if silent[at]:
                return "no candidate's metrics are known"
            best_in = [m.shown for m, is_best in zip(used, won[:, at], strict=True) if is_best]
            text = f"{total[at]:g} of {weights.sum():g} points"
            text = f"best in {', '.join(best_in)}: {text}" if best_in else "0 points"
            text += "".join(each.note(at) for each in filled)
            return text if waits is None else f"{text}; waits {waits.filled[at]:.3g} s for peers"

        # The points of the least metric are nearly nothing.
        least = float(weights.min()) if used else 0.0
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(least))

    def _waits_s(self, view: ClusterView, pod: Pod, nodes: Ints) -> "_Waits | None":
        """None if the pod has no peers, or they give no points."""
        peers = peers_of(view, pod) if self.peers > 0 else ()
        if not peers:
            return None
        return _Waits(*filled_waits_s(view, pod, peers, nodes, self.unknown))


def _wins(values: Floats, margins: Floats | None, known: Bools) -> Bools:
    """Which values get the points of their row, the less the better, NaN unknown, shape (m, n);
    margins: see NodeMetrics, same shape. known: those that are measured; where one of them gets the
    points, no other value does."""
    least = np.fmin.reduce(values, axis=1, keepdims=True) if values.size else values
    near: Bools = values == least if margins is None else values - least <= margins
    if not known.all():
        measured = near & known
        near = np.where(measured.any(axis=1, keepdims=True), measured, near)
    if margins is not None:
        return near
    # The first of equals, as strict comparisons do.
    first = np.zeros_like(near)
    first[np.arange(len(values)), near.argmax(axis=1)] = True
    won: Bools = first & near
    return won

"""netsched: six metrics, each of which gives points to its best node.

"Network-aware scheduler (NetSched) for containerized applications in an multilevel
edge/fog/cloud distributed environment", Algorithm 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Floats, Ints


class _Metric(NamedTuple):
    column: str
    weight: str
    better: Better
    shown: str


# Algorithm 1, lines 3-27, in the order of its comparisons.
_METRICS = (
    _Metric("cpu_percent", "cpu", "lower", "CPU"),
    _Metric("memory_percent", "memory", "lower", "memory"),
    _Metric("packets_received_per_s", "packets_received", "lower", "packets received"),
    _Metric("packets_sent_per_s", "packets_sent", "lower", "packets sent"),
    _Metric("bandwidth_mbps", "bandwidth", "higher", "bandwidth"),
    _Metric("disk_bytes_per_s", "disk", "lower", "disk I/O"),
)


@dataclass(frozen=True, slots=True)
class NetSched(Strategy):
    """Points per metric (Algorithm 1): CPU 3, memory 2, bandwidth 2, packets received 1,
    packets sent 1, disk input and output together 1. The most points win.

    Comparisons are strict, so of equal nodes the first one gets a metric's points; a tie in the
    sum is broken at random. The points are options, and 0 leaves a metric out: boards that share
    one machine, as in the lab, share its CPU, memory and disk.

    Unknown: a node without a metric gets no points for it. A node without any metric has no total
    and is chosen only if no node has one.
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

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        """The sum of each candidate's points; parts are the points of each metric."""
        weights = {m.column: float(getattr(self, m.weight)) for m in _METRICS}
        parts = {
            m.column: _points(view, m, weights[m.column], candidates)
            for m in _METRICS
            if weights[m.column] > 0
        }
        columns = np.array([np.full(candidates.size, np.nan), *parts.values()])
        total = np.where(np.isnan(columns).all(axis=0), np.nan, np.nansum(columns, axis=0))

        def why(at: int) -> str:
            won = [m.shown for m in _METRICS if m.column in parts and parts[m.column][at] > 0]
            if not won:
                return "no candidate's metrics are known" if np.isnan(total[at]) else "0 points"
            return f"best in {', '.join(won)}: {total[at]:g} of {sum(weights.values()):g} points"

        # The points of the least metric are nearly nothing.
        least = min((weight for weight in weights.values() if weight > 0), default=0.0)
        return Scores(candidates, total, best(total, self.better), why, parts, least)


def _points(view: ClusterView, metric: _Metric, weight: float, candidates: Ints) -> Floats:
    values: Floats = getattr(view.metrics, metric.column)[candidates]
    points = np.where(np.isnan(values), np.nan, 0.0)
    if not np.isnan(values).all():
        # argmin and argmax return the first of equals, as strict comparisons do.
        pick = np.nanargmin if metric.better == "lower" else np.nanargmax
        points[pick(values)] = weight
    return points

"""What the agents measured of n nodes in one moment, a column for each metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from math import log, sqrt

import numpy as np

from leadline_controller.framework.node_table import Bools, Floats, Ints


def deviations_off(count: int) -> float:
    """How many standard deviations another one of `count` readings of the same may be from the best
    of these. That lies at most sqrt(2 ln n) deviations off on average (the maximum of n Gaussian
    variables); and the other one may lie one off to the other side."""
    return 1.0 + sqrt(2.0 * log(count))


@dataclass(frozen=True, slots=True, eq=False)
class NodeMetrics:
    """The agents' measurements, one column each, shape (n,), NaN if unknown or too old."""

    cpu_percent: Floats
    memory_percent: Floats
    packets_sent_per_s: Floats
    packets_received_per_s: Floats
    disk_bytes_per_s: Floats
    bandwidth_mbps: Floats
    # The time of each measurement, shape (n, m) with a column for each of METRICS, seconds on the
    # clock of the decision; shape (0, 0) without times, as in a snapshot.
    measured_at_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    # What the link can do at most; where only a lower bound is measured, the interface's speed, inf
    # if unknown. Shape (0,) if no bandwidth is a bound, as in a snapshot.
    bandwidth_most_mbps: Floats = field(default_factory=lambda: np.zeros(0))
    # Whether a board was too busy, throttled or under voltage in the test, so that the link may do
    # more. Shape (0,) in a snapshot.
    bandwidth_host_limited: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    # The standard deviation of one reading, in the metric's unit, shape (n, m) with a column for
    # each of METRICS, 0 where unknown; shape (0, 0) if none is known, as in most snapshots.
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    # How many times as long work takes on a board because it is throttled, 1 where it is not or
    # nothing tells, and the standard deviation. Shape (0,) if no board is.
    throttling: Floats = field(default_factory=lambda: np.zeros(0))
    throttling_error: Floats = field(default_factory=lambda: np.zeros(0))
    # What a request waits on average because the board goes away again and again, ms, 0 where it
    # does not or nothing tells. Shape (0,) if no board does.
    absence_ms: Floats = field(default_factory=lambda: np.zeros(0))

    def margins_of(self, metrics: Sequence[str], nodes: Ints) -> Floats | None:
        """How much worse than the best of `nodes` each of them may read in m metrics and still be
        as good, shape (m, len(nodes)); None where errors are not known."""
        if not self.errors.size:
            return None
        columns = self.errors[nodes].T[[METRICS.index(metric) for metric in metrics]]
        return columns * deviations_off(nodes.size)

    def with_values(self, columns: Iterable[Floats]) -> "NodeMetrics":
        """With other values, in the order of METRICS; the rest stays."""
        # dataclasses.replace takes twice as long, for each pod that is placed.
        cpu, memory, sent, received, disk, bandwidth = columns
        return NodeMetrics(
            *(cpu, memory, sent, received, disk, bandwidth),
            *(self.measured_at_s, self.bandwidth_most_mbps),
            *(self.bandwidth_host_limited, self.errors),
            *(self.throttling, self.throttling_error, self.absence_ms),
        )

    @classmethod
    def unknown(cls, count: int) -> "NodeMetrics":
        """No measurements for `count` nodes."""
        return cls.of({name: np.full(count, np.nan) for name in METRICS})

    @classmethod
    def of(cls, columns: Mapping[str, Floats]) -> "NodeMetrics":
        """Of one column for each of METRICS."""
        return cls(**columns, bandwidth_host_limited=np.zeros(0, dtype=np.bool_))


METRICS: tuple[str, ...] = tuple(
    f.name for f in fields(NodeMetrics) if f.default is MISSING and f.default_factory is MISSING
)

"""The pods that the boards' reports do not contain yet, and what is assumed of them.

A pod counts in full from its binding, and less as reports contain it: a report's CPU, packets and
disk are means over its interval, its memory is a reading. A pod that has ended is taken off in the
same way. All of it follows from the API server's objects and the reports, so that each controller
that sees them assumes the same.

What a workload's pods use is learned from the boards on which nothing else changed: each of the
last arrivals gives one value, and their median counts.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isnan
from operator import add, sub

import numpy as np

from leadline_controller.cluster.pod_lives import PodLives
from leadline_controller.cluster.pod_starts import PodStarts
from leadline_controller.framework.assumed_load import (
    BoardSize,
    Expectations,
    PodUse,
    contained_share,
    workload_of,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.services import Service
from leadline_controller.framework.view import Floats, NodeTable
from leadline_controller.telemetry.state import TelemetryState

_MEMORY = METRICS.index("memory_percent")
_REPORTED = METRICS.index("bandwidth_mbps")  # the columns before it come with reports
# A pod that has not started for so long uses nothing; a board without reports has no values.
_LONGEST_S = 600.0
# A collector that is silent for so long beside the others will not show the pod.
_SILENT_S = 60.0
# Times of the API server's objects are whole seconds, cut off.
_HALF_S = 0.5
_SWEEP_S = 10.0  # between looks at all recent pods, also on boards that do not report
_MOST_CAME = 128  # pods to a board, without a time between in which reports contain all
_MOST_STARTED = 32_768
_NOTHING = (0.0,) * _REPORTED
_SAMPLES, _ENOUGH_SAMPLES, _MOST_WORKLOADS = 5, 3, 1024


@dataclass(slots=True)
class _Recent:
    """A pod on a board."""

    pod: Pod
    seen_s: float  # when it was first seen there, seconds on the clock of the decisions
    is_gone: bool = False
    came_s: float = inf  # when it was bound, or seen there; infinite before the first look
    # runs_s, ended_s: when it was first seen running, and gone; infinite before.
    runs_s: float = inf
    ended_s: float = inf

    def look(self, offset_s: float | None, ahead_s: float) -> tuple[float, float]:
        """When it began to run, and ended, as it is known now. offset_s: from the clock of the
        decisions to the wall clock, None if unknown. ahead_s: of that, the board's wall clock. One
        that is wrong makes no pod younger than it was seen to be."""

        def here_s(unix_s: float | None, ahead_s: float = ahead_s) -> float:
            return inf if unix_s is None or offset_s is None else unix_s - ahead_s - offset_s

        pod = self.pod
        if self.came_s == inf:
            self.came_s = min(self.seen_s, here_s(pod.bound_s, 0.0))
        start_s, end_s = here_s(pod.runs_s) + _HALF_S, here_s(pod.ended_s) + _HALF_S
        return min(self.runs_s, start_s), min(self.ended_s, end_s)


@dataclass(slots=True)
class _Growth:
    """By how much a board's values grow until its reports contain all pods that came."""

    before: list[float]  # its values without them, as METRICS
    came: list[Pod] = field(default_factory=list)
    is_clear: bool = True  # whether nothing else changed


class RecentPods:
    """Used by the thread of the cluster's state. unix_offset_s: from the clock of the decisions to
    the wall clock, None while that is not set. now_s: the clock of the decisions, so that nothing
    depends on when somebody looks.

    expected: what pods are expected to use. measured: at the last look. metrics: the sum of that
    and what is assumed. counts: pods on each node that its reports do not contain, and of these,
    those whose packets or disk nothing tells, shape (2, n). Views share these arrays, which do not
    change.
    """

    def __init__(
        self, unix_offset_s: Callable[[], float | None], now_s: Callable[[], float]
    ) -> None:
        self._now_s = now_s
        self.expected = Expectations()
        self.metrics = self.measured = NodeMetrics.unknown(0)
        self.counts = np.zeros((2, 0), dtype=np.int64)
        self._unix_offset_s = unix_offset_s
        self._pods: dict[str, dict[str, _Recent]] = {}  # by node and uid
        self._growths: dict[str, _Growth] = {}
        self._lives = PodLives()
        self._starts = PodStarts()
        # Since the last sweep, each with its node.
        self._started: deque[tuple[Pod, str]] = deque(maxlen=_MOST_STARTED)
        self._samples: dict[Service, deque[PodUse]] = {}
        self._dirty: set[str] = set()  # nodes to count again
        self._placed: list[tuple[str, _Recent]] = []  # pods to add, on nodes that else stay
        self._swept_s = -inf
        self._names: tuple[str, ...] = ()
        self._assumed: dict[int, list[float]] = {}  # by index of the node, as METRICS
        # A column for each of METRICS.
        self._values = self._sums = [np.zeros(0)] * len(METRICS)
        self._at_s = np.zeros((0, len(METRICS)))
        self._earlier: dict[int, list[float]] = {}  # by index, the values of the report before

    def put(self, pod: Pod, node: str) -> None:
        """The pod is on the node, as its binding, the assumption of that, or the start of its
        containers shows."""
        self._lives.run(pod)
        pods = self._pods.setdefault(node, {})
        known = pods.get(pod.uid)
        if known is None and pod.runs_s is None:
            known = pods[pod.uid] = _Recent(pod, self._now_s())
            self._placed.append((node, known))
            return
        known = pods.setdefault(pod.uid, _Recent(pod, self._now_s()))
        known.pod = pod
        if pod.runs_s is not None:
            known.runs_s = min(known.runs_s, self._now_s())
        self._dirty.add(node)

    def end(self, pod: Pod, node: str) -> None:
        """The pod is not on the node any more. One that never ran there has used nothing."""
        pods = self._pods.setdefault(node, {})
        if pod.runs_s is None:
            pods.pop(pod.uid, None)
        else:
            now_s = self._now_s()
            known = pods.setdefault(pod.uid, _Recent(pod, now_s))
            known.pod, known.is_gone = pod, True
            known.runs_s, known.ended_s = min(known.runs_s, now_s), min(known.ended_s, now_s)
            if (offset_s := self._unix_offset_s()) is not None:
                self._lives.end(pod, now_s + offset_s)
        self._spoil(node)
        self._dirty.add(node)

    def started(self, pod: Pod, node: str) -> None:
        """The pod is ready on the node, or was restarted there."""
        self._started.append((pod, node))

    def use_usage(self, usage: Mapping[Service, tuple[float, float]]) -> None:
        """Expect of CPU and memory what the metrics API says: by workload (see workload_of), the
        cores and the bytes of memory that one of its running pods uses."""
        self.expected = replace(self.expected, usage=usage)
        self._dirty.update(self._pods)

    def look(
        self, table: NodeTable, telemetry: TelemetryState, now_s: float, requested_mbps: Floats
    ) -> None:
        """Take in the reports that came since the last look, at least as often as boards report:
        else nobody learns what pods use. requested_mbps: of each node's link, shape (n,).

        What pods request of a link is taken off as long as they are there: a bandwidth test adds
        what flows of it to its value (telemetry/bandwidth.py).
        """
        measured, names = telemetry.metrics(table, now_s), table.names
        if names is not self._names and names != self._names:
            self._assumed.clear()
            self._earlier.clear()
            self.counts = np.zeros((2, len(table)), dtype=np.int64)
            self._at_s = np.zeros((len(table), len(METRICS)))
            self._dirty.update(self._pods)
        self._names = names
        if now_s - self._swept_s >= _SWEEP_S:
            self._dirty.update(self._pods)
            self._swept_s = now_s
            self._expect_lives(now_s)
            self._expect_starts(table)
        is_new = measured is not self.measured
        if is_new:
            self._take_in(measured)
        elif not (self._dirty or self._placed):
            return
        again = self._count_again(table, telemetry, now_s)
        if is_new:
            added = np.zeros((len(METRICS), len(table)))
            added[_REPORTED] = -requested_mbps
            if self._assumed:
                added[:_REPORTED, [*self._assumed]] = np.array([*self._assumed.values()]).T
            self._sums = [*np.maximum(np.array(self._values) + added, 0.0)]
        else:
            self._sums = [*self._sums]
            for at in again:
                more = (*self._assumed.get(at, _NOTHING), -float(requested_mbps[at]))
                for column, each in enumerate(more):
                    total = self._values[column][at] + each
                    total = 0.0 if total < 0.0 else total  # unknown stays unknown
                    if self._sums[column][at] != total:
                        self._sums[column] = self._sums[column].copy()
                        self._sums[column][at] = total
        self.metrics = measured.with_values(self._sums)

    def _expect_lives(self, now_s: float) -> None:
        if (offset_s := self._unix_offset_s()) is None:
            return
        lives = self._lives.lives(now_s + offset_s, self.expected.lives)
        if lives is not self.expected.lives:
            self.expected = replace(self.expected, lives=lives)

    def _expect_starts(self, table: NodeTable) -> None:
        for pod, node in self._started:
            if (board_class := table.class_of(node)) is not None:
                self._starts.put(pod, board_class)
        self._started.clear()
        starts = self._starts.look()
        if starts is not self.expected.starts:
            self.expected = replace(self.expected, starts=starts)

    def _take_in(self, measured: NodeMetrics) -> None:
        changed = np.flatnonzero((measured.measured_at_s != self._at_s).any(axis=1)).tolist()
        if len(self._values[0]) == len(self._names):
            self._earlier.update((at, self._values_of(at)) for at in changed)
        self.measured = measured
        self._values = [getattr(measured, name) for name in METRICS]
        self._at_s = measured.measured_at_s
        self._dirty.update(self._names[at] for at in changed)

    def _count_again(self, table: NodeTable, telemetry: TelemetryState, now_s: float) -> list[int]:
        """Count what has changed. Returns the indexes of its nodes."""
        self.counts = self.counts.copy()
        offset_s = self._unix_offset_s()
        again = []
        self._dirty.update(node for node, _ in self._placed if node not in table.index)
        for node in self._dirty:
            if node not in table.index:  # it is gone
                self._pods.pop(node, None)
                self._growths.pop(node, None)
                continue
            again.append(table.index[node])
            if node in self._pods:
                self._count(table, node, telemetry, now_s, offset_s)
        for node, each in self._placed:
            if node in self._dirty:
                continue
            at = table.index[node]
            again.append(at)
            each.look(offset_s, 0.0)
            self._came(node, at, each, is_contained=False)
            use = self.expected.of(each.pod)
            more = BoardSize.of(table, at).added_by(use)
            self._assumed[at] = [*map(add, self._assumed.get(at, _NOTHING), more)]
            self.counts[0, at] += 1
            self.counts[1, at] += use.lacks_rates
        self._dirty.clear()
        self._placed.clear()
        return again

    def _count(
        self,
        table: NodeTable,
        node: str,
        telemetry: TelemetryState,
        now_s: float,
        offset_s: float | None,
    ) -> None:
        """Count the node's pods again, without those that its reports contain, or are free of."""
        at, pods = table.index[node], self._pods[node]
        board = BoardSize.of(table, at)
        interval_s, ahead_s = telemetry.report_timing(node)
        at_s = self._at_s[at, :_REPORTED].tolist()
        newest_s = max(at_s)
        at_s = [each if newest_s - each < _SILENT_S else newest_s for each in at_s]
        added, recent, without_rates = [*_NOTHING], 0, 0
        for uid, each in list(pods.items()):
            is_new = each.came_s == inf
            start_s, end_s = each.look(offset_s, ahead_s)
            if is_new and not each.is_gone:
                self._came(node, at, each, is_contained=start_s <= newest_s)
            changed_s = end_s if each.is_gone else start_s
            if changed_s <= min(at_s) - interval_s:
                del pods[uid]
                continue
            if now_s - (each.came_s if changed_s == inf else changed_s) > _LONGEST_S:
                self._spoil(node)
                del pods[uid]
                continue
            use = self.expected.of(each.pod)
            for column, more in enumerate(board.added_by(use)):
                over_s = 0.0 if column == _MEMORY else interval_s
                contained = contained_share(start_s, end_s, at_s[column], over_s)
                added[column] += ((not each.is_gone) - contained) * more
            recent += not each.is_gone
            without_rates += not each.is_gone and use.lacks_rates
        self._assumed[at] = added
        self.counts[:, at] = recent, without_rates
        if not pods:
            del self._pods[node], self._assumed[at]
            self._learn(node, board, self._values_of(at))

    def _values_of(self, at: int) -> list[float]:
        return [float(column[at]) for column in self._values[:_REPORTED]]

    def _came(self, node: str, at: int, each: _Recent, *, is_contained: bool) -> None:
        """A pod came to a board, whose values contain some of it already or do not."""
        growth = self._growths.get(node)
        if growth is None:
            before = self._values_of(at)
            if self._at_s[at, :_REPORTED].max() > each.came_s:  # since then it has reported
                before = self._earlier.get(at, before)
            growth = self._growths[node] = _Growth(before)
            growth.is_clear = not any(each.is_gone for each in self._pods[node].values())
        if growth.is_clear:
            growth.came.append(each.pod)
        if is_contained or len(growth.came) > _MOST_CAME:
            self._spoil(node)

    def _spoil(self, node: str) -> None:
        """Not only what comes to the node changes it now, or that takes too long."""
        if (growth := self._growths.get(node)) is not None:
            growth.is_clear = False
            growth.came.clear()

    def _learn(self, node: str, board: BoardSize, values: list[float]) -> None:
        """The board's values contain all pods that came, from which something is learned if they
        are of one workload."""
        growth = self._growths.pop(node, None)
        if growth is None or not growth.is_clear:
            return
        workload, *others = {workload_of(pod) for pod in growth.came}
        grown = map(sub, values, growth.before)
        each = board.use_of([more / len(growth.came) for more in grown])
        if others or isnan(each.cpu_cores + each.memory_bytes):
            return
        samples = self._samples.pop(workload, deque(maxlen=_SAMPLES))
        samples.append(each)
        self._samples[workload] = samples  # as the newest
        learned = dict(self.expected.learned)
        if len(self._samples) > _MOST_WORKLOADS:
            oldest = next(iter(self._samples))
            del self._samples[oldest]
            learned.pop(oldest, None)
        if len(samples) >= _ENOUGH_SAMPLES:
            middle = np.maximum(np.median(np.array(samples), axis=0), 0.0)
            learned[workload] = PodUse(*middle.tolist())
        self.expected = replace(self.expected, learned=learned)

"""Counters and histograms that other rooms tell of events, with the official client library. All
other metrics are read when Prometheus asks."""

from collections import OrderedDict

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from leadline_controller.framework.cycle import Decision
from leadline_controller.history.log import BOUND, GONE, PENDING
from leadline_controller.history.record import Change, DecisionRecord

# They would double the series of counters; Prometheus sees a reset without them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's

PHASES = ("queue", "decide", "preempt", "plan", "bind")
VERBS = ("filter", "prioritize", "bind")
_MAX_AWAITED = 4096
UNSCHEDULABLE, FAILED = "unschedulable", "failed"
_BUCKETS_PODS = (1, 2, 4, 8, 16, 32, 64)
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Instruments:
    """What is counted from the start of this controller. For use in the event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._awaited: OrderedDict[str, str] = OrderedDict()  # pod -> strategy
        ProcessCollector(registry=self.registry)
        self._decisions = Counter(
            "leadline_decisions",
            "Decisions about pods, by how they ended.",
            ["strategy", "outcome", "reason"],
            registry=self.registry,
        )
        scheduling = Histogram(
            "leadline_scheduling_duration_seconds",
            "How long pods took in each phase of scheduling.",
            ["phase"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._phases = {phase: scheduling.labels(phase) for phase in PHASES}
        self._victims = Histogram(
            "leadline_preemption_victims",
            "How many pods a preemption evicted.",
            buckets=_BUCKETS_PODS,
            registry=self.registry,
        )
        extender = Histogram(
            "leadline_extender_request_duration_seconds",
            "How long kube-scheduler waited for answers.",
            ["verb"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        errors = Counter(
            "leadline_extender_errors",
            "Answers to kube-scheduler that were an error.",
            ["verb"],
            registry=self.registry,
        )
        self._verbs = {verb: (extender.labels(verb), errors.labels(verb)) for verb in VERBS}

    def scheduled(self, phase: str, took_s: float) -> None:
        """A pod took so long in one of PHASES."""
        self._phases[phase].observe(took_s)

    def preempted(self, victims: int) -> None:
        """So many pods had to make room for another one."""
        self._victims.observe(victims)

    def answered(self, verb: str, took_s: float, failed: bool) -> None:
        """kube-scheduler got an answer."""
        duration, errors = self._verbs[verb]
        duration.observe(took_s)
        errors.inc(failed)

    def count(self, change: Change) -> None:
        """Count a change of the log of decisions: each attempt that found no node, and once how a
        pod that has one ended."""
        if isinstance(change, DecisionRecord):
            self._awaited.pop(change.pod, None)
            if change.node is None:
                self._count(change.strategy, UNSCHEDULABLE, why_unschedulable(change.decision))
            elif change.outcome != PENDING:
                self._count(change.strategy, change.outcome)
            else:
                self._awaited[change.pod] = change.strategy
                if len(self._awaited) > _MAX_AWAITED:
                    self._awaited.popitem(last=False)
        elif change.pod in self._awaited:
            self._count(self._awaited.pop(change.pod), change.outcome)

    def _count(self, strategy: str, outcome: str, reason: str = "") -> None:
        outcome = outcome if outcome in (BOUND, GONE, UNSCHEDULABLE) else FAILED
        self._decisions.labels(strategy, outcome, reason).inc()


def why_unschedulable(decision: Decision | None) -> str:
    """The filter that no node can pass, else the one that refused the most nodes."""
    view, results, _ = decision.basis() if decision else (None, {}, None)
    if view is None:
        return "PreFilter"
    if not len(view):
        return "NoNodes"
    for name, result in results.items():
        if result.unresolvable:
            return name
    return max(results, key=lambda name: int(np.count_nonzero(~results[name].passes)), default="")

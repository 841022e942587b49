"""The decision step that the scheduler and the extender service share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import PENDING, DecisionLog
from leadline_controller.framework.cycle import Decision, Filter, FilterResult, Strategy, decide
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import Clock
from leadline_controller.framework.view import ClusterView
from leadline_controller.scheduling.service_profiles import ServiceProfiles
from leadline_controller.telemetry.state import TelemetryState

_RUN_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class DecisionProfile:
    """How to decide. random: breaks ties. profiles: for pods without an annotation of
    theirs. warm_up_s: how long the first decision may wait for the metrics of every ready node,
    since a controller that has just started knows none."""

    strategy: Strategy
    filters: Mapping[str, Filter]
    random: Random
    profiles: ServiceProfiles = field(default_factory=ServiceProfiles, kw_only=True)
    warm_up_s: float = field(default=0.0, kw_only=True)


class DecisionStep:
    """Filters and scores the nodes for one pod at a time, and records each decision in the log."""

    def __init__(
        self,
        state: ClusterState,
        telemetry: TelemetryState,
        decisions: DecisionLog,
        profile: DecisionProfile,
        clock: Clock,
    ) -> None:
        self._state = state
        self._telemetry = telemetry
        self._decisions = decisions
        self._profile = profile
        self._options = values_of(profile.strategy)
        self._clock = clock
        self._warm_by_s: float | None = None
        self._last_view_s = float("-inf")

    def not_ready_reason(self) -> str | None:
        """Why there can be no decisions yet, in one sentence; None when there can."""
        if not self._state.listed:
            return "the API server has not listed its nodes and pods yet"
        now_s = self._clock.now_s()
        if self._warm_by_s is None:
            self._warm_by_s = now_s + self._profile.warm_up_s
        if now_s >= self._warm_by_s:
            return None
        nodes = [n.name for n in self._state.nodes().values() if n.ready and not n.unschedulable]
        silent = [name for name in nodes if not self._telemetry.measurements(name, now_s)]
        if not silent and nodes:
            self._warm_by_s = now_s
            return None
        return (
            f"this controller has just started and waits for the agents of {len(silent)} nodes, "
            f"for {self._warm_by_s - now_s:.0f} s at most"
        )

    def view(self) -> ClusterView:
        """The cluster as it is. Decisions less than a second apart belong to one run."""
        now_s = self._clock.now_s()
        if now_s - self._last_view_s > _RUN_GAP_S:
            self._state.begin_run()
        self._last_view_s = now_s
        return self._state.view(self._telemetry, now_s)

    def filter(self, view: ClusterView, pod: Pod) -> dict[str, FilterResult]:
        """Run the profile's filters."""
        pod = self._profile.profiles.applied(pod)
        return {name: run(view, pod) for name, run in self._profile.filters.items()}

    def decide(
        self, view: ClusterView, pod: Pod, results: Mapping[str, FilterResult] | None = None
    ) -> Decision:
        """Decide, and do not record it. results: of the filters, if they ran already."""
        profile, filters = self._profile, self._profile.filters
        pod = profile.profiles.applied(pod)
        if results is not None:
            filters = {name: _returning(result) for name, result in results.items()}
        return decide(view, pod, filters, profile.strategy, profile.random)

    def record(self, decision: Decision, outcome: str = PENDING) -> None:
        """Record a decision made now."""
        self._decisions.add(decision, self._clock.now_s(), outcome, self._options)


def _returning(result: FilterResult) -> Filter:
    return lambda _view, _pod: result

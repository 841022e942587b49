"""The decision step that the scheduler and the extender service share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import PENDING, DecisionLog
from leadline_controller.framework.batch import BatchPlan, decide_as_planned
from leadline_controller.framework.cycle import (
    Decision,
    Filter,
    FilterResult,
    Prefer,
    Strategy,
    decide,
    filters_with,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import Clock, Event
from leadline_controller.framework.view import Bools, ClusterView, Ints
from leadline_controller.scheduling.service_profiles import ServiceProfiles
from leadline_controller.telemetry.state import TelemetryState

_RUN_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class DecisionProfile:
    """How to decide. random: breaks ties. profiles: for pods without an annotation of theirs.
    prefer: by which rule preferences join the strategy, None for none. warm_up_s: how long the
    first decision may wait for the metrics of every ready node, since a controller that has just
    started knows none."""

    strategy: Strategy
    filters: Mapping[str, Filter]
    random: Random
    profiles: ServiceProfiles = field(default_factory=ServiceProfiles, kw_only=True)
    prefer: Prefer | None = field(default=None, kw_only=True)
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

    def view(self, pod: Pod | None = None) -> ClusterView:
        """The cluster as it is for this pod. Decisions no more than a second apart belong
        to one run."""
        now_s = self._clock.now_s()
        if now_s - self._last_view_s > _RUN_GAP_S:
            self._state.begin_run()
        self._last_view_s = now_s
        return self._state.view(self._telemetry, now_s, pod)

    def filter(self, view: ClusterView, pod: Pod) -> dict[str, FilterResult]:
        """Run the profile's filters."""
        pod = self._profile.profiles.applied(pod)
        return {name: run(view, pod) for name, run in self._profile.filters.items()}

    def decide(
        self, view: ClusterView, pod: Pod, results: Mapping[str, FilterResult] | None = None
    ) -> Decision:
        """Decide, and do not record it. results: of the filters, if they ran already.

        The replacement of a moved pod goes where room is reserved for it; if it does not fit there
        any more, anywhere but where it came from; and back only if nothing else is left. A pod for
        which others were preempted goes where that was, if it fits there.
        """
        profile, filters = self._profile, self._profile.filters
        pod = profile.profiles.applied(pod)
        if results is not None:
            filters = {name: _returning(result) for name, result in results.items()}
        kept = self._state.reservation_of(pod)
        if kept is not None:
            allowed = [_named(view, kept.node)]
            if kept.source is not None:
                allowed.append(~_named(view, kept.source))
            for nodes in allowed:
                only = FilterResult(nodes, lambda _: "room is reserved on another node")
                decision = self._decide_among(view, pod, filters, "Reservation", only)
                if decision.node is not None:
                    came = f"moved from {kept.source}: " if kept.source else ""
                    more = "" if decision.why in kept.why else f"; {decision.why}"
                    return replace(decision, why=f"{came}{kept.why}{more}")
        nominated = self._state.nominated_node(pod.uid)
        if nominated is not None:
            only = FilterResult(_named(view, nominated), lambda _: "nominated for another node")
            decision = self._decide_among(view, pod, filters, "NominatedNode", only)
            if decision.node is not None:
                return replace(decision, why=f"it is nominated for this node; {decision.why}")
        return decide(view, pod, filters, profile.strategy, profile.random, profile.prefer)

    def decide_after_preemption(self, decision: Decision, view: ClusterView, nodes: Ints) -> int:
        """Which of these nodes the strategy prefers for a pod that fits nowhere yet. view: without
        the victims on them. Returns its index."""
        mask = view.table.none()
        mask[nodes] = True
        only = FilterResult(mask, lambda _: "others take its victims more easily")
        found = self._decide_among(view, decision.pod, self._profile.filters, "Preemption", only)
        return int(nodes[0]) if found.node is None else view.table.index[found.node]

    def filters(self) -> Mapping[str, Filter]:
        """The profile's filters, and the strategy's own."""
        return filters_with(self._profile.filters, self._profile.strategy)

    def _decide_among(
        self,
        view: ClusterView,
        pod: Pod,
        filters: Mapping[str, Filter],
        name: str,
        nodes: FilterResult,
    ) -> Decision:
        """Decide among the nodes that also pass one more filter of this name and result."""
        profile, among = self._profile, {**filters, name: _returning(nodes)}
        return decide(view, pod, among, profile.strategy, profile.random, profile.prefer)

    def decide_as_planned(self, view: ClusterView, pod: Pod, node: str, why: str) -> Decision:
        """Decide as a batch was planned, or on the pod alone where that node does not fit now."""
        at = view.table.index.get(node)
        has_room = self._state.reservation_of(pod) or self._state.nominated_node(pod.uid)
        if at is None or has_room is not None:
            return self.decide(view, pod)
        plan, profile = BatchPlan({pod.key: at}, why={pod.key: why}), self._profile
        filters = filters_with(profile.filters, profile.strategy)
        return decide_as_planned(
            view, pod, plan, filters, profile.strategy, profile.random, profile.prefer
        )

    def charge(self, decision: Decision) -> Mapping[str, int] | None:
        """What the strategy charges the pod on its node within this run; None without a node."""
        view, _, _ = decision.basis()
        if view is None or decision.node is None:
            return None
        return self.charge_on(view, decision.pod, decision.node)

    def charge_on(self, view: ClusterView, pod: Pod, node: str) -> Mapping[str, int]:
        """What the strategy charges the pod on this node of the view within this run."""
        return self._profile.strategy.charge(view, pod, view.table.index[node])

    def record(self, decision: Decision, outcome: str = PENDING) -> None:
        """Record a decision made now."""
        self._decisions.add(decision, self._clock.now_s(), outcome, self._options)


def warnings_about(decision: Decision) -> list[Event]:
    """Events about what the pod asks for and does not get."""
    warnings = [
        Event("Warning", "UnknownAnnotation", each, once=True) for each in decision.pod.warnings
    ]
    if decision.warning:
        warnings.append(Event("Warning", "UnknownUserNode", decision.warning))
    return warnings


def _named(view: ClusterView, node: str) -> Bools:
    """The node of this name, shape (n,)."""
    mask = view.table.none()
    if node in view.table.index:
        mask[view.table.index[node]] = True
    return mask


def _returning(result: FilterResult) -> Filter:
    return lambda _view, _pod: result

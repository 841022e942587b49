"""The decision step that the scheduler and the extender service share."""

from collections.abc import Callable, Mapping

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.batch import BatchPlan, decide_as_planned
from leadline_controller.framework.cycle import Decision, FilterResult, Rule, decide, filtered
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import Clock, Event
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.scheduling.kept_room import decide_in_room
from leadline_controller.telemetry.state import TelemetryState


class DecisionStep:
    """Filters and scores the nodes for one pod at a time, and records each decision in the log.
    warm_up_s: how long the first decision may wait for the metrics of every ready node, since a
    controller that has just started knows none. on_decision: called after a decision is recorded.

    With the rule's seed, a pod and a view give the same decision whenever it is made, so that it
    can be made again."""

    def __init__(
        self,
        state: ClusterState,
        telemetry: TelemetryState,
        decisions: DecisionLog,
        rule: Rule,
        clock: Clock,
        warm_up_s: float = 0.0,
        on_decision: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self.state = state
        self.telemetry = telemetry
        self.decisions = decisions
        self.rule = rule
        self.clock = clock
        self.seed = rule.seed or 0
        self._warm_up_s = warm_up_s
        self._options = values_of(rule.strategy)
        self._on_decision = on_decision
        self._warm_by_s: float | None = None

    def not_ready_reason(self) -> str | None:
        """Why there can be no decisions yet, in one sentence; None when there can."""
        if not self.state.listed:
            return "the API server has not listed its nodes and pods yet"
        now_s = self.clock.now_s()
        if self._warm_by_s is None:
            self._warm_by_s = now_s + self._warm_up_s
        if now_s >= self._warm_by_s:
            return None
        nodes = [n.name for n in self.state.nodes().values() if n.ready and not n.unschedulable]
        silent = [name for name in nodes if not self.telemetry.board(name, now_s).values]
        if not silent and nodes:
            self._warm_by_s = now_s
            return None
        return (
            f"this controller has just started and waits for the agents of {len(silent)} nodes, "
            f"for {self._warm_by_s - now_s:.0f} s at most"
        )

    def view(self, pod: Pod | None = None) -> ClusterView:
        """The cluster as it is for this pod."""
        return self.state.view(self.telemetry, self.clock.now_s(), pod)

    def view_in_run(self, pod: Pod | None = None) -> ClusterView:
        """The view for a decision that is made now. Decisions no more than a second apart belong
        to one run."""
        now_s = self.clock.now_s()
        if self.state.run.is_over(now_s):
            self.state.run.begin()
        self.state.run.seen_s = now_s
        return self.view(pod)

    def decide(
        self, view: ClusterView, pod: Pod, results: Mapping[str, FilterResult] | None = None
    ) -> Decision:
        """Decide, and do not record it; see decide_in_room. results: of the filters, if they ran
        already."""
        self.rule.draw_for(pod, self.seed)
        kept, nominated = self.state.reservations.of(pod), self.state.nominations.of(pod.uid)
        return decide_in_room(view, pod, self.rule, kept, nominated, results)

    def decide_after_preemption(self, decision: Decision, view: ClusterView, nodes: Ints) -> int:
        """Which of these nodes the strategy prefers for a pod that fits nowhere yet. view: without
        the victims on them. Returns its index."""
        pod, mask = decision.pod, view.table.none()
        mask[nodes] = True
        only = FilterResult(mask, lambda _: "others take its victims more easily")
        results = filtered(view, pod, self.rule.filters)
        self.rule.draw_for(pod, self.seed)
        found = decide(view, pod, self.rule, {**results, "Preemption": only})
        return int(nodes[0]) if found.node is None else view.table.index[found.node]

    def decide_as_planned(self, view: ClusterView, pod: Pod, node: str, why: str) -> Decision:
        """Decide as a batch was planned, or on the pod alone where that node does not fit now."""
        at = view.table.index.get(node)
        has_room = self.state.reservations.of(pod) or self.state.nominations.of(pod.uid)
        if at is None or has_room is not None:
            return self.decide(view, pod)
        self.rule.draw_for(pod, self.seed)
        plan = BatchPlan({pod.key: at}, why={pod.key: why})
        return decide_as_planned(view, pod, plan, self.rule)

    def charge(self, view: ClusterView, pod: Pod, node: str) -> Mapping[str, int]:
        """What the strategy charges the pod on this node of the view within this run."""
        return self.rule.strategy.charge(view, pod, view.table.index[node])

    def record(self, decision: Decision, outcome: str = PENDING) -> None:
        """Record a decision made now."""
        self.decisions.add(decision, self.clock.now_s(), outcome, self._options)
        if outcome == PENDING:  # not the same decision again, as kube-scheduler carried it out
            self._on_decision(decision)


def warnings_about(decision: Decision) -> list[Event]:
    """Events about what the pod asks for and does not get."""
    warnings = [
        Event("Warning", "UnknownAnnotation", each, once=True) for each in decision.pod.warnings
    ]
    if decision.warning:
        warnings.append(Event("Warning", "UnknownUserNode", decision.warning))
    return warnings

"""Leadline's answers to kube-scheduler: which nodes fit a pod, how good they are, and why.

kube-scheduler calls twice for a pod (filter, then prioritize unless one node is left), then chooses
a node, which may be another than Leadline's choice. Until the watch or a call to bind shows the
node, the pod counts as assumed on Leadline's choice, so that a burst of pods does not pile up
there. A pod that needs bandwidth waits for a moment until the nodes of the pods before it are
known, where that makes a difference, so that no link is promised twice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from msgspec import Raw

from leadline_controller.cluster.given_nodes import with_given_nodes
from leadline_controller.filters import BIND_FILTERS, EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cycle import (
    Decision,
    FilterResult,
    Rule,
    pre_filter_failure,
)
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterChange,
    ClusterError,
    Event,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.view import Bools, ClusterView
from leadline_controller.history.log import BOUND
from leadline_controller.scheduling.decision_step import DecisionStep, warnings_about
from leadline_controller.scheduling.event_recorder import EventRecorder
from leadline_controller.scheduling.expected_pods import ExpectedPods

KUBE_SCHEDULER = "kube-scheduler"
_EXPECTED_S = 15.0
_PREPARED_S = 1.0
_UNCERTAIN_S = 1.0
_POLL_S = 0.05
_MAX_PENDING = 4096
_MAX_WITH_VIEW = 32
# kube-scheduler may wait ten minutes for volumes between filter and bind.
_CALLED_S = 900.0
_MAX_CALLED = 16_384
_MAX_UID = 253
# Data about a pod that the watch does not show comes only from the caller, so keep little of it.
_MAX_UNKNOWN_POD_BYTES = 64 * 1024
# The same for nodes that a caller gives: some forty that changed a moment ago.
_MAX_UNKNOWN_NODE_BYTES = 256 * 1024
_MAX_DETAILED_REASONS = 16


class ExtenderError(Exception):
    """There is no answer for this pod now; str() is one line for a person."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """The arguments of a call, as in k8s.io/kube-scheduler/extender/v1: a pod, and the nodes that
    passed so far."""

    pod: Pod  # its problem is a demand that Leadline does not model, never an annotation
    names: tuple[str, ...]  # in the caller's order
    # By name, if the caller sent whole nodes (nodeCacheCapable: false).
    nodes: Mapping[str, Node] | None = None
    # Name -> the error in a whole node.
    unreadable: Mapping[str, str] = field(default_factory=dict)
    pod_json: bytes = field(default=b"", repr=False)  # what the pod was read from
    _raw: Mapping[str, Raw] = field(default_factory=dict, repr=False)

    def raw(self, name: str) -> memoryview:
        """The JSON of a whole node, without a copy."""
        return memoryview(self._raw[name])


@dataclass(frozen=True, slots=True)
class ExtenderBindingArgs:
    """A pod to bind, and its node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """A filter call that left several nodes, for the prioritize call that follows."""

    args: ExtenderArgs
    names: tuple[str, ...]  # these nodes
    pod: Pod
    view: ClusterView
    results: Mapping[str, FilterResult]
    at_s: float
    decision: Decision | None = None  # None until it is prepared

    def is_followed_by(self, args: ExtenderArgs, now_s: float) -> bool:
        """Whether this call asks about the same pod and the nodes that were left."""
        return (
            args.nodes is None
            and args.pod is self.args.pod
            and args.names == self.names
            and now_s - self.at_s <= _PREPARED_S
        )


def extender_rule(ours: Rule, *, every_filter: bool) -> Rule:
    """By what the pods that kube-scheduler places are judged, if the scheduler decides by `ours`.
    kube-scheduler has preferences of its own, and most filters; every_filter: all run here, too."""
    filters = FILTERS if every_filter else {name: FILTERS[name] for name in EXTENDER_FILTERS}
    return replace(ours, filters=filters, prefer=None)


class ExtenderService:
    """Answers for one cluster, in the event loop that the states belong to. Pass every change of
    the cluster to `observe`. step: by the `extender_rule`. every_filter: also whether to refuse a
    pod with demands that Leadline does not model, as kube-scheduler does not check them either."""

    def __init__(
        self,
        cluster: Cluster,
        step: DecisionStep,
        *,
        every_filter: bool = False,
        expected_s: float = _EXPECTED_S,
        uncertain_s: float = _UNCERTAIN_S,
    ) -> None:
        self._cluster = cluster
        self._step = step
        self._state = step.state
        self._clock = step.clock
        self._check_unmodelled = every_filter
        kube = FILTERS if every_filter else BIND_FILTERS
        # Those of kube-scheduler, and those that it lacks.
        self._own = {
            name: run
            for name, run in step.rule.filters.items()
            if name in EXTENDER_FILTERS or name not in FILTERS
        }
        self._at_binding = {**{name: FILTERS[name] for name in kube}, **self._own}
        self._uncertain_s = uncertain_s
        self._expected = ExpectedPods(self._state, expected_s, uncertain_s)
        # By uid: decisions about pods that are on no node yet, and when a call was about a pod.
        self._pending: OrderedDict[str, Decision] = OrderedDict()
        self._called_s: OrderedDict[str, float] = OrderedDict()
        self._asked: _Asked | None = None
        self._events = EventRecorder(cluster, self._clock, lambda: self._events.write())

    def nodes(self) -> Mapping[str, Node]:
        """A copy of the watch's nodes by name, safe to read in another thread."""
        return dict(self._state.nodes())

    def not_ready_reason(self) -> str | None:
        """Why there are no answers yet, in one sentence; None when there are."""
        return self._step.not_ready_reason()

    async def wait_until_ready(self) -> None:
        """Wait until there are answers."""
        while self.not_ready_reason():
            await self._clock.sleep(_POLL_S)

    async def wait_for_bandwidth(self, args: ExtenderArgs) -> None:
        """Wait, a second at most, until the bandwidth that is free for this pod is certain."""
        pod, now_s = args.pod, asyncio.get_running_loop().time
        limit_s = now_s() + self._uncertain_s
        while now_s() < (until_s := self._uncertain_until_s(pod, limit_s)):
            await self._expected.wait_for_change(until_s)

    def _uncertain_until_s(self, pod: Pod, limit_s: float) -> float:
        """Loop time until which waiting may change the answer about the pod; 0 if it can't."""
        wanted_mbps = pod.annotations.bandwidth_mbps
        if not wanted_mbps:
            return 0.0
        if self._state.pod(pod.uid) is None:
            return limit_s  # it can't be assumed on a node before the watch shows it
        uncertain = [
            (other.annotations.bandwidth_mbps or 0.0, s)
            for other, s in self._expected.uncertain(pod.uid)
        ]
        uncertain_mbps = sum(mbps for mbps, _ in uncertain)
        if not uncertain_mbps:
            return 0.0
        view = self._step.view(pod)
        matters = np.abs(view.bandwidth_possible_mbps() - wanted_mbps) <= uncertain_mbps
        return max(s for mbps, s in uncertain if mbps) if matters.any() else 0.0

    def filter(self, args: ExtenderArgs) -> tuple[list[str], dict[str, str]]:
        """The nodes that pass, in the order of the arguments, and a reason for each other node.
        Raises ExtenderError."""
        self._asked = None
        pod, view = self._pod_and_view(args)
        if pre_filter_failure(pod) is not None:
            decision = self._step.decide(view, pod)
            self._record(args, decision)
            raise ExtenderError(decision.why)
        results = self._filter(args, view, pod)
        passes = np.logical_and.reduce([result.passes for result in results.values()])
        if np.count_nonzero(passes) <= 1:
            self._decide(args, view, pod, results)  # kube-scheduler does not call prioritize
        names = view.table.names
        passing = {names[i] for i in np.flatnonzero(passes).tolist()}
        refused = results[KUBE_SCHEDULER].passes & ~passes
        unknown = [name for name in args.names if name not in view.table.index]
        failed = {
            **dict.fromkeys(unknown, "Leadline does not know this node"),
            **args.unreadable,
            **{names[i]: reason for i, reason in _reasons(refused, results)},
        }
        left = [name for name in args.names if name in passing]
        if len(left) > 1 and args.nodes is None:
            self._asked = _Asked(args, tuple(left), pod, view, results, self._clock.now_s())
        return left, failed

    def prepare(self) -> None:
        """Decide about the pod of the last filter call. kube-scheduler runs its own Score plugins
        before it calls prioritize, so nobody waits for this. A change of the cluster undoes it."""
        if (asked := self._asked) is not None and asked.decision is None:
            decision = self._step.decide(asked.view, asked.pod, asked.results)
            self._asked = replace(asked, decision=decision)

    def prioritize(self, args: ExtenderArgs) -> dict[str, int]:
        """Node name -> 0 to 10, for the known nodes that pass. Raises ExtenderError."""
        asked, self._asked = self._asked, None
        if asked is not None and asked.is_followed_by(args, self._clock.now_s()):
            decision = self._decide(args, asked.view, asked.pod, asked.results, asked.decision)
        else:
            pod, view = self._pod_and_view(args)
            decision = self._decide(args, view, pod, self._filter(args, view, pod))
        if decision.node is None:
            raise ExtenderError(decision.why)
        return decision.priorities()

    async def bind(self, binding: ExtenderBindingArgs) -> None:
        """Bind exactly this pod, if an earlier call was about it and the node passes every filter.
        Raises ExtenderError.

        Our watch may be behind kube-scheduler's, and pods that it decided on before this one may
        be bound after it. So a refused binding is checked again for a moment.
        """
        if not self._state.listed:
            raise ExtenderError(str(self.not_ready_reason()))
        called_s = self._called_s.get(binding.uid, float("-inf"))
        if self._clock.now_s() - called_s > _CALLED_S:
            raise ExtenderError(
                f"uid {binding.uid[:80]}: no filter or prioritize call named this pod within "
                f"{_CALLED_S:.0f} s, so it is not bound"
            )
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + self._uncertain_s
        while (reason := self._binding_refusal(binding)) is not None:
            if now_s() >= until_s:
                raise ExtenderError(reason)
            await asyncio.sleep(min(_POLL_S, self._uncertain_s / 2))
        pod = self._state.pod(binding.uid)
        assert pod is not None  # noqa: S101  # else it had been refused
        if pod.node_name is None:
            await self._bind(pod, binding.node)

    def _binding_refusal(self, binding: ExtenderBindingArgs) -> str | None:
        """Why this binding is refused now; None when it is not."""
        pod = self._state.pod(binding.uid)
        if pod is None:
            return (
                f"the API server does not show pod {binding.namespace}/{binding.name} with its uid"
            )
        if (pod.namespace, pod.name) != (binding.namespace, binding.name):
            return f"uid {binding.uid} is of pod {pod.key}, not {binding.name}"
        if binding.node not in self._state.nodes():
            return f"the cluster has no node {binding.node}"
        if pod.node_name is not None:
            on_it = pod.node_name == binding.node
            return None if on_it else f"pod {pod.key} is on {pod.node_name} already"
        if self._check_unmodelled and pod.problem is not None:
            return pod.problem
        self._expected.withdraw(pod.uid)
        return self._misfit(pod, binding.node)

    def _misfit(self, pod: Pod, node: str) -> str | None:
        """Why the pod does not fit on the node. If one of kube-scheduler's own filters refuses it
        on every node, Leadline does not model what the pod demands, and kube-scheduler decides."""
        with self._expected.suspended():
            view = self._step.view(pod)
        at = view.table.index[node]
        for name, run in self._at_binding.items():
            result = run(view, pod)
            if not result.passes[at] and (result.unresolvable is None or name in self._own):
                return f"{node}: Leadline {name}: {result.reason(at)}"
        return None

    def observe(self, change: ClusterChange) -> None:
        """Learn from the watch on which nodes the pods are."""
        self._expected.notify()
        if self._asked is not None and not (
            isinstance(change, PodChanged) and change.pod.uid == self._asked.pod.uid
        ):
            self._asked = None
        match change:
            case Relisted(pods=pods):
                for pod in pods:
                    self._observe_pod(pod)
            case PodChanged(pod):
                self._observe_pod(pod)
            case PodDeleted(pod):
                self._pending.pop(pod.uid, None)
                self._called_s.pop(pod.uid, None)
                self._expected.stop(pod.uid)

    async def close(self) -> None:
        """Withdraw all expected pods, and write the events that are left."""
        self._expected.withdraw_all()
        await self._events.flush(lambda: True)

    def _pod_and_view(self, args: ExtenderArgs) -> tuple[Pod, ClusterView]:
        """The pod, and the cluster without it."""
        pod = self._state.profiled(args.pod)
        if pod.problem is not None and not self._check_unmodelled:
            pod = replace(pod, problem=None)
        self._expected.withdraw(pod.uid)
        now_s = self._clock.now_s()
        if len(pod.uid) <= _MAX_UID:
            self._called_s[pod.uid] = now_s
            self._called_s.move_to_end(pod.uid)
            if len(self._called_s) > _MAX_CALLED:
                self._called_s.popitem(last=False)
        view = self._step.view_in_run(pod)
        if args.nodes is not None:
            view = with_given_nodes(view, args.nodes, self._step.telemetry, now_s)
        known = view.table.index
        if args.names and not any(name in known for name in args.names):
            first = args.names[0][:80]
            raise ExtenderError(f"none of these nodes is known to Leadline, as {first!r}")
        return pod, view

    def _filter(self, args: ExtenderArgs, view: ClusterView, pod: Pod) -> dict[str, FilterResult]:
        """Run the filters. kube-scheduler's own come first: it left out what they refuse."""
        index = view.table.index
        # The view has an unreadable node as the watch last showed it.
        left = np.zeros(len(view), dtype=np.bool_)
        left[[index[name] for name in args.names if name in index]] = True
        left[[index[name] for name in args.unreadable if name in index]] = False
        theirs = FilterResult(left, lambda _: "not among the nodes that it asked about")
        filters = self._step.rule.filters.items()
        return {KUBE_SCHEDULER: theirs, **{name: run(view, pod) for name, run in filters}}

    def _decide(
        self,
        args: ExtenderArgs,
        view: ClusterView,
        pod: Pod,
        results: Mapping[str, FilterResult],
        decision: Decision | None = None,
    ) -> Decision:
        """Decide, record the decision, and expect the pod on the chosen node. decision: as it was
        prepared."""
        decision = decision or self._step.decide(view, pod, results)
        self._record(args, decision)
        _, _, scores = decision.basis()
        if decision.node is not None and scores is not None:
            certain = scores.candidates.size == 1
            charge = self._step.charge(view, pod, decision.node)
            self._expected.expect(pod, decision.node, charge, certain=certain)
        return decision

    def _record(self, args: ExtenderArgs, decision: Decision) -> None:
        """Record the decision, with the pod as the watch shows it, so that callers can't fill the
        memory. Only the newest ones keep their view, and only with nodes that the watch shows,
        but for a few."""
        pod = decision.pod
        known = self._state.pod(pod.uid)
        if known is None:
            known = Pod(pod.namespace, pod.name, uid=pod.uid[:_MAX_UID])
            if len(args.pod_json) > _MAX_UNKNOWN_POD_BYTES:
                decision = decision.without_basis()
        # Of the given nodes, only those that differ from the watch's take memory.
        given, shown = args.nodes or {}, self._state.nodes()
        unknown = (name for name in given if given[name] is not shown.get(name))
        if sum(len(args.raw(name)) for name in unknown) > _MAX_UNKNOWN_NODE_BYTES:
            decision = decision.without_basis()
        decision = replace(decision, pod=known)
        self._step.record(decision)
        self._pending[known.uid] = decision
        self._pending.move_to_end(known.uid)
        if len(self._pending) > _MAX_WITH_VIEW:
            uid = next(islice(reversed(self._pending), _MAX_WITH_VIEW, None))
            self._pending[uid] = self._pending[uid].without_basis()
        while len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)

    async def _bind(self, pod: Pod, node: str) -> None:
        view = self._step.view(pod)
        self._state.assume(pod, node, charge=self._step.charge(view, pod, node))
        self._asked = None  # what is prepared does not count this pod
        try:
            await self._cluster.bind(pod, node)
        except ClusterError as error:
            shown = self._state.pod(pod.uid)
            if shown is None or shown.node_name != node:  # else only the answer was lost
                self._state.forget(pod)
                self._step.decisions.set_outcome(pod.key, f"failed: {error}")
                raise ExtenderError(str(error)) from None
        except BaseException:
            self._state.forget(pod)  # if it worked, the watch will show it
            raise
        self._bound(pod, node)

    def _observe_pod(self, pod: Pod) -> None:
        if pod.node_name is not None:
            self._expected.stop(pod.uid)
            self._bound(pod, pod.node_name)

    def _bound(self, pod: Pod, node: str) -> None:
        """The pod is on this node: complete its decision and write an event."""
        decision = self._pending.pop(pod.uid, None)
        if decision is None:
            return
        if decision.node == node:
            self._step.decisions.set_outcome(pod.key, BOUND)
        else:
            decision = replace(decision, node=node, why=_override_reason(decision, node))
            self._step.record(decision, BOUND)
        message = f"{decision.node} by {decision.strategy}: {decision.why}"
        self._events.put(pod, Event("Normal", "Advised", message))
        for warning in warnings_about(decision):
            self._events.put(pod, warning)
        self._events.write()


def _reasons(refused: Bools, results: Mapping[str, FilterResult]) -> Iterator[tuple[int, str]]:
    """Node index -> why. kube-scheduler counts equal reasons in its event on the pod, so for many
    nodes only the filters are named."""
    detailed = np.count_nonzero(refused) <= _MAX_DETAILED_REASONS
    for i in map(int, np.flatnonzero(refused)):
        reasons = [
            f"{name}: {result.reason(i)}" if detailed else name
            for name, result in results.items()
            if not result.passes[i]
        ]
        yield i, f"Leadline {'; '.join(reasons)}"


def _override_reason(decision: Decision, node: str) -> str:
    """Why the pod is on this node and not on the decision's."""
    if decision.node is None:
        return f"{KUBE_SCHEDULER} chose it without Leadline, which had found: {decision.why}"
    if not decision.has_basis:  # the scores are no longer in memory
        return f"{KUBE_SCHEDULER} chose it over {decision.node}: {decision.why}"
    rank = decision.priorities().get(node)
    ours = "which Leadline could not score" if rank is None else f"which has {rank} of 10"
    return f"{KUBE_SCHEDULER} chose it, {ours}, over {decision.node}: {decision.why}"

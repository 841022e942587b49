"""What Leadline says to kube-scheduler of a pod: which nodes, how good they are, and why.

kube-scheduler asks twice about a pod (filter, prioritize; only once where one node is left),
then chooses, and it may choose otherwise than we would. Until the watch or a call to bind tells,
the pod is counted on the node that we prefer, so that a burst of pods does not pile up there; and
a pod that needs bandwidth waits a moment for what came of the last ones where that matters, so
that no link is promised twice.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import numpy as np

from leadline_controller.cluster.given_nodes import view_over
from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import BOUND, PENDING, DecisionLog
from leadline_controller.framework.cycle import (
    Decision,
    Filter,
    FilterResult,
    Strategy,
    decide,
    obstacle,
)
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterChange,
    ClusterError,
    PodChanged,
    PodDeleted,
    PodEvent,
    Relisted,
)
from leadline_controller.framework.view import Bools, ClusterView
from leadline_controller.scheduling.expected_pods import ExpectedPods
from leadline_controller.scheduling.extender_args import ExtenderArgs, ExtenderBindingArgs
from leadline_controller.telemetry.state import TelemetryState

log = logging.getLogger(__name__)

ASKER = "kube-scheduler"
_EXPECTED_S = 15.0
_UNSURE_S = 1.0
_POLL_S = 0.05
_RUN_GAP_S = 1.0
_MOST_OPEN = 4096
_MOST_DETAILED = 32
# Between the question and the binding volumes may be made, for which kube-scheduler waits ten
# minutes.
_ASKED_S = 900.0
_MOST_ASKED = 16_384
_LONGEST_UID = 253
# What is remembered of a pod that the watch does not show comes from nobody but who asks.
_LONGEST_STRANGER_BYTES = 64 * 1024
_MOST_TOLD_APART = 16
_EVENT_LENGTH = 1024  # what the API server takes


class ExtenderError(Exception):
    """There is nothing to say of this pod now; str() is one line for a person."""


@dataclass(frozen=True, slots=True)
class ExtenderProfile:
    """How pods are judged. filters: those that run; at_binding: those that must hold when a pod is
    bound; own: those of them that kube-scheduler has nothing like. whole: whether a pod's demands
    that no filter of ours knows count, as kube-scheduler does not look after them either.
    warm_up_s: how long the metrics of every ready node are waited for at first."""

    strategy: Strategy
    filters: Mapping[str, Filter]
    own: Mapping[str, Filter]
    at_binding: Mapping[str, Filter]
    random: Random
    whole: bool = False
    warm_up_s: float = 0.0


class ExtenderService:
    """Answers for one cluster, in the event loop that the states belong to. `heard` must be
    told every change of the cluster."""

    def __init__(  # the parts that it joins
        self,
        cluster: Cluster,
        state: ClusterState,
        telemetry: TelemetryState,
        decisions: DecisionLog,
        how: ExtenderProfile,
        clock: Clock,
        expected_s: float = _EXPECTED_S,
        unsure_s: float = _UNSURE_S,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._telemetry = telemetry
        self._decisions = decisions
        self._how = how
        self._options = values_of(how.strategy)
        self._clock = clock
        self._unsure_s = unsure_s
        self._expected = ExpectedPods(state, expected_s, unsure_s)
        self._open: OrderedDict[str, Decision] = OrderedDict()
        self._asked_s: OrderedDict[str, float] = OrderedDict()
        self._telling: set[asyncio.Task[None]] = set()
        self._warm_by_s: float | None = None
        self._last_asked_s = float("-inf")

    def nodes(self) -> Mapping[str, Node]:
        """The nodes as the watch has them, by name; safe to be read in another thread."""
        return dict(self._state.nodes())

    def not_ready(self) -> str | None:
        """What is still waited for, in one sentence; None when pods can be judged."""
        if not self._state.listed:
            return "the API server has not yet told which nodes and pods there are"
        now_s = self._clock.now_s()
        if self._warm_by_s is None:
            self._warm_by_s = now_s + self._how.warm_up_s
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

    async def ready(self) -> None:
        """Wait until pods can be judged."""
        while self.not_ready():
            await self._clock.sleep(_POLL_S)

    async def settled(self, question: ExtenderArgs) -> None:
        """Wait, a second at most, until it is known which bandwidth this pod finds free."""
        pod, now_s = question.pod, asyncio.get_running_loop().time
        known_by_s = now_s() + self._unsure_s
        while now_s() < (until_s := self._unsettled_until_s(pod, known_by_s)):
            await self._expected.wait_for_change(until_s)

    def _unsettled_until_s(self, pod: Pod, known_by_s: float) -> float:
        """Loop time until which waiting may change what is said of the pod; 0: it can't."""
        wanted_mbps = pod.hints.bandwidth_mbps
        if not wanted_mbps:
            return 0.0
        if self._state.pod(pod.uid) is None:
            return known_by_s  # it could not be counted anywhere
        unsure = [
            (other.hints.bandwidth_mbps or 0.0, s) for other, s in self._expected.unsure(pod.uid)
        ]
        either_way_mbps = sum(mbps for mbps, _ in unsure)
        if not either_way_mbps:
            return 0.0
        free_mbps = self._state.view(self._telemetry, self._clock.now_s()).bandwidth_free_mbps()
        matters = np.abs(free_mbps - wanted_mbps) <= either_way_mbps
        return max(s for mbps, s in unsure if mbps) if matters.any() else 0.0

    def filter(self, question: ExtenderArgs) -> tuple[list[str], dict[str, str]]:
        """The nodes that pass, in the question's order, and why each other one does not.
        Raises ExtenderError."""
        pod, view = self._look(question)
        if (problem := obstacle(view, pod)) is not None:
            strategy = self._how.strategy
            decision = Decision(pod, None, problem, strategy.name, strategy.better)
            self._remember(question, decision)
            raise ExtenderError(problem)
        asked = _asked(view, question)
        verdicts = {name: test(view, pod) for name, test in self._how.filters.items()}
        passes = asked & np.logical_and.reduce([v.passes for v in verdicts.values()])
        if np.count_nonzero(passes) <= 1:
            self._conclude(question, view, pod, {ASKER: _asked_only(asked), **verdicts})
        names = view.table.names
        passing = {names[i] for i in np.flatnonzero(passes)}
        failed = dict(question.unreadable)
        failed |= _unknown(view, question)
        failed |= {names[i]: told for i, told in _refusals(asked & ~passes, verdicts)}
        return [name for name in question.names if name in passing], failed

    def prioritize(self, question: ExtenderArgs) -> dict[str, int]:
        """Node name -> 0 to 10, of the nodes that we know and that pass. Raises ExtenderError."""
        pod, view = self._look(question)
        asked = _asked(view, question)
        verdicts = {name: test(view, pod) for name, test in self._how.filters.items()}
        decision = self._conclude(question, view, pod, {ASKER: _asked_only(asked), **verdicts})
        if decision.node is None:
            raise ExtenderError(decision.why)
        return decision.priorities()

    async def bind(self, binding: ExtenderBindingArgs) -> None:
        """Have exactly this pod bound, if it was asked about and every filter passes the node.
        Raises ExtenderError.

        Our watch may be behind kube-scheduler's, and pods that it decided on before this one may
        be bound after it. So where something is against it that is looked at again for a moment.
        """
        if not self._state.listed:
            raise ExtenderError(str(self.not_ready()))
        if not self._was_asked(binding.uid):
            raise ExtenderError(
                f"uid {binding.uid[:80]}: nobody asked about such a pod within {_ASKED_S:.0f} s, "
                "so it is not bound"
            )
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + self._unsure_s
        while (told := self._refusal(binding)) is not None:
            if now_s() >= until_s:
                raise ExtenderError(told)
            await asyncio.sleep(min(_POLL_S, self._unsure_s / 2))
        pod = self._state.pod(binding.uid)
        assert pod is not None  # noqa: S101  # else it had been refused
        if pod.node_name is None:
            await self._bind(pod, binding.node)

    def _refusal(self, binding: ExtenderBindingArgs) -> str | None:
        """What is against this binding now."""
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
        if self._how.whole and pod.problem is not None:
            return pod.problem
        self._expected.withdraw(pod.uid)
        return self._misfit(pod, binding.node)

    def _misfit(self, pod: Pod, node: str) -> str | None:
        """Why the pod does not fit there. Where a filter of kube-scheduler's own says no for
        reasons that are not the node's, Leadline does not model what the pod demands, and
        kube-scheduler knows better."""
        with self._expected.none():
            view = self._state.view(self._telemetry, self._clock.now_s())
        at = view.table.index[node]
        for name, test in self._how.at_binding.items():
            verdict = test(view, pod)
            if not verdict.passes[at] and (verdict.unresolvable is None or name in self._how.own):
                return f"{node}: Leadline {name}: {verdict.reason(at)}"
        return None

    def _was_asked(self, uid: str) -> bool:
        """Whether it was asked about of late."""
        return self._clock.now_s() - self._asked_s.get(uid, float("-inf")) <= _ASKED_S

    def heard(self, change: ClusterChange) -> None:
        """Learn from the watch what became of the pods that were asked about."""
        self._expected.heard()
        match change:
            case Relisted(pods=pods):
                for pod in pods:
                    self._note(pod)
            case PodChanged(pod):
                self._note(pod)
            case PodDeleted(pod):
                self._open.pop(pod.uid, None)
                self._asked_s.pop(pod.uid, None)
                self._expected.drop(pod.uid)

    async def close(self) -> None:
        """Take back what was only expected, and finish what is being told."""
        self._expected.withdraw_all()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _look(self, question: ExtenderArgs) -> tuple[Pod, ClusterView]:
        """The pod, and the cluster without it."""
        pod = question.pod if self._how.whole else replace(question.pod, problem=None)
        self._expected.withdraw(pod.uid)
        now_s = self._clock.now_s()
        if now_s - self._last_asked_s > _RUN_GAP_S:
            self._state.begin_run()
        self._last_asked_s = now_s
        if len(pod.uid) <= _LONGEST_UID:
            self._asked_s[pod.uid] = now_s
            self._asked_s.move_to_end(pod.uid)
            if len(self._asked_s) > _MOST_ASKED:
                self._asked_s.popitem(last=False)
        view = self._state.view(self._telemetry, now_s)
        if question.nodes is not None:
            view = view_over(view, question.nodes, self._telemetry, now_s)
        known = view.table.index
        if question.names and not any(name in known for name in question.names):
            shown = question.names[0][:80]
            raise ExtenderError(f"none of these nodes is known to Leadline, as {shown!r}")
        return pod, view

    def _conclude(
        self,
        question: ExtenderArgs,
        view: ClusterView,
        pod: Pod,
        verdicts: Mapping[str, FilterResult],
    ) -> Decision:
        """Score what is left, remember it, and count the pod on the best node for now."""
        filters = {name: _always(verdict) for name, verdict in verdicts.items()}
        decision = decide(view, pod, filters, self._how.strategy, self._how.random)
        self._remember(question, decision)
        if decision.node is not None:
            passes = np.logical_and.reduce([verdict.passes for verdict in verdicts.values()])
            self._expected.put(pod, decision.node, sure=np.count_nonzero(passes) == 1)
        return decision

    def _remember(self, question: ExtenderArgs, decision: Decision) -> None:
        """Keep the decision, and in detail the last few. What is kept of the pod is the watch's,
        so that what others send can't fill the memory."""
        pod = decision.pod
        known = self._state.pod(pod.uid)
        if known is None:
            known = Pod(pod.namespace, pod.name, uid=pod.uid[:_LONGEST_UID])
            if question.pod_bytes > _LONGEST_STRANGER_BYTES:
                decision = decision.without_basis()
        decision = replace(decision, pod=known)
        self._decisions.add(decision, self._clock.now_s(), PENDING, self._options)
        self._open[known.uid] = decision
        self._open.move_to_end(known.uid)
        if len(self._open) > _MOST_DETAILED:
            uid = next(islice(reversed(self._open), _MOST_DETAILED, None))
            self._open[uid] = self._open[uid].without_basis()
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)

    async def _bind(self, pod: Pod, node: str) -> None:
        self._state.assume(pod, node)
        try:
            await self._cluster.bind(pod, node)
        except ClusterError as error:
            shown = self._state.pod(pod.uid)
            if shown is None or shown.node_name != node:  # else only the answer was lost
                self._state.forget(pod)
                self._decisions.set_outcome(pod.key, f"failed: {error}")
                raise ExtenderError(str(error)) from None
        except BaseException:
            self._state.forget(pod)  # the watch will tell, should it have worked
            raise
        self._settle(pod, node)

    def _note(self, pod: Pod) -> None:
        if pod.node_name is not None:
            self._expected.drop(pod.uid)
            self._settle(pod, pod.node_name)

    def _settle(self, pod: Pod, node: str) -> None:
        decision = self._open.pop(pod.uid, None)
        if decision is None:
            return
        if decision.node == node:
            self._decisions.set_outcome(pod.key, BOUND)
        else:
            decision = replace(decision, node=node, why=_overruled(decision, node))
            self._decisions.add(decision, self._clock.now_s(), BOUND, self._options)
        task = asyncio.get_running_loop().create_task(self._tell(pod, decision))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, pod: Pod, decision: Decision) -> None:
        told = f"{decision.node} by {decision.strategy}: {decision.why}"[:_EVENT_LENGTH]
        try:
            await self._cluster.record_event(pod, PodEvent("Normal", "Advised", told))
        except ClusterError as error:
            log.warning("event on %s: %s", pod.key, error)


def _always(verdict: FilterResult) -> Filter:
    return lambda _view, _pod: verdict


def _asked(view: ClusterView, question: ExtenderArgs) -> Bools:
    """Where the question is about a node, shape (n,)."""
    asked = np.zeros(len(view), dtype=np.bool_)
    index = view.table.index
    asked[[at for name in question.names if (at := index.get(name)) is not None]] = True
    # A node that can't be read is in our own view as the watch had it.
    asked[[at for name in question.unreadable if (at := index.get(name)) is not None]] = False
    return asked


def _asked_only(asked: Bools) -> FilterResult:
    return FilterResult(asked, lambda _: "not among the nodes that it asked about")


def _unknown(view: ClusterView, question: ExtenderArgs) -> Iterator[tuple[str, str]]:
    known, unreadable = view.table.index, question.unreadable
    for name in question.names:
        if name not in known and name not in unreadable:
            yield name, "Leadline does not know this node"


def _refusals(refused: Bools, verdicts: Mapping[str, FilterResult]) -> Iterator[tuple[int, str]]:
    """Node index -> why. kube-scheduler counts equal reasons in its event on the pod, so over
    many nodes the figures of each are left out."""
    apart = np.count_nonzero(refused) <= _MOST_TOLD_APART
    for i in map(int, np.flatnonzero(refused)):
        told = [
            f"{name}: {verdict.reason(i)}" if apart else name
            for name, verdict in verdicts.items()
            if not verdict.passes[i]
        ]
        yield i, f"Leadline {'; '.join(told)}"


def _overruled(decision: Decision, node: str) -> str:
    if decision.node is None:
        return f"{ASKER} chose it without Leadline, which had found: {decision.why}"
    if not decision.has_basis:  # that was too long ago to tell how it compares
        return f"{ASKER} chose it over {decision.node}: {decision.why}"
    rank = decision.priorities().get(node)
    ours = "which Leadline could not score" if rank is None else f"which has {rank} of 10"
    return f"{ASKER} chose it, {ours}, over {decision.node}: {decision.why}"

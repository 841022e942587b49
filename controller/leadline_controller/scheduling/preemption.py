"""Preemption: a pod that fits nowhere has pods of lower priority evicted to make room for it.

The choice of node and victims is that of kube-scheduler (framework/preemption.py). Around it stands
what keeps evictions from being in vain: pods that are about to end anyway are waited for, and
before each eviction the cluster is looked at again.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from leadline_controller.framework.cycle import Decision, feasible_nodes, filtered
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterError,
    ConflictError,
    Event,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.framework.preemption import (
    Candidate,
    Placed,
    best_candidates,
    find_candidates,
)
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.queue import LONGEST_UNSCHEDULABLE_S

# Longer than pods take to end by default, 30 s. One that hangs is not waited for any longer.
ENDING_S = 90.0
# How long the watch may take to show an eviction whose answer was lost.
_IN_DOUBT_S = 1.0
# After a search that found no victims the workload rests for so many times as long: over 1,000 full
# nodes it can take seconds, and each event of the cluster may ask for another one.
_REST_AFTER_SEARCH = 100
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Preemption:
    """What is to be done for a pod that fits nowhere."""

    pod: Pod
    node: str | None  # for which it is nominated; None takes an earlier nomination back
    victims: tuple[Pod, ...]  # who is evicted there, the most important first
    why: str  # one clause


class Requeue(Enum):
    """When the pod is tried again after a preemption. ON_EVENT: when a cluster event helps it.
    AT_ONCE: there may be room. BACK_OFF: the victims would not have helped any more."""

    ON_EVENT = auto()
    AT_ONCE = auto()
    BACK_OFF = auto()


class Preemptor:
    """Plans and carries out preemptions for one scheduler's pods. tell: takes events about pods.
    scheduler_name: whose nominations it may take back. observe, on_preempted: see Scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        step: DecisionStep,
        tell: Callable[[Pod, Event], None],
        scheduler_name: str,
        observe: Callable[[str, float], None],
        on_preempted: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._step = step
        self._state = step.state
        self._filters = step.rule.filters
        self._clock = step.clock
        self._tell = tell
        self._scheduler_name = scheduler_name
        self._observe = observe
        self._on_preempted = on_preempted
        # By uid, the pods that end though the watch may not show it; and until when that counts.
        self._evicted: dict[str, float] = {}
        self._ending_since_s: dict[str, float] = {}
        # By uid of the pod, or of its owner: when to look for victims again.
        self._not_before_s: dict[str, float] = {}

    def plan(self, decision: Decision) -> Preemption | None:
        """What to do for the pod of this decision, which has no node; None for nothing."""
        pod = decision.pod
        view, results, _ = decision.basis()
        nominated = self._state.nominations.of(pod.uid)
        if view is None or not pod.preempts:
            return None
        if nominated is None and not (view.assigned_pods.priority < pod.priority).any():
            return None
        ended, nodes = self._when_pods_end(view, pod)
        if nodes.size:
            node = nominated
            if node is None or view.table.index.get(node) not in nodes:
                node = view.table.names[self._step.decide_after_preemption(decision, ended, nodes)]
            return Preemption(pod, node, (), f"it waits for pods on {node} that are ending")
        at = view.table.index.get(nominated or "")
        if at is not None and all(each.passes_with_preemption[at] for each in results.values()):
            ending = sum(each.priority < pod.priority for each in self._preempted_on(nominated))
            if ending:
                why = f"it waits for {ending} preempted pods on {nominated}"
                return Preemption(pod, nominated, (), why)
        key, begun_s = _workload(pod), self._clock.now_s()
        if nominated is None and begun_s < self._not_before_s.get(key, -np.inf):
            return None
        rule, assigned = self._step.rule, self._assigned(view)
        budgets = self._state.objects.budgets()
        found = best_candidates(
            find_candidates(view, pod, rule, results, assigned, budgets or (), first=at)
        )
        now_s = self._clock.now_s()
        self._observe("preempt", now_s - begun_s)
        if found:
            return self._chosen(decision, view, found)
        self._look_again(key, now_s + _REST_AFTER_SEARCH * (now_s - begun_s))
        if nominated is not None:
            return Preemption(pod, None, (), "evicting them would not make it fit")
        return None

    def refused(self, pod: Pod) -> None:
        """The API server forbids a preemption for this pod, and would forbid it again."""
        self._look_again(_workload(pod), self._clock.now_s() + LONGEST_UNSCHEDULABLE_S)

    def _look_again(self, key: str, at_s: float) -> None:
        now_s = self._clock.now_s()
        later = {each: s for each, s in self._not_before_s.items() if s > now_s}
        self._not_before_s = {**later, key: at_s}

    async def carry_out(self, plan: Preemption) -> Requeue:
        """Nominate the node and evict the victims, one after the other as long as each is needed.
        Returns when to try the pod again. Raises ClusterError."""
        await self._nominate(plan.pod, plan.node)
        evicted: list[Pod] = []
        try:
            if plan.victims:
                await self._withdraw_lower(plan)
            for victim in plan.victims:
                if not self._stays_on(victim.uid, plan.node):
                    continue
                view = self._step.view(plan.pod)
                if (
                    not self._is_pending(plan.pod.uid)
                    or self._when_pods_end(view, plan.pod)[1].size
                ):
                    return Requeue.AT_ONCE
                if not self._fits_without_victims(view, plan):
                    return Requeue.BACK_OFF
                if await self._evict(victim, plan):
                    evicted.append(victim)
        finally:
            if evicted:
                self._on_preempted(len(evicted))
                names = _listed(evicted)
                message = (
                    f"{names} on {plan.node} had to end: lower priority than {plan.pod.priority}"
                )
                self._tell(plan.pod, Event("Normal", "Preempting", message))
        # Who is gone by now will not wake the pod any more.
        view = self._step.view(plan.pod)
        nodes = feasible_nodes(view, filtered(view, plan.pod, self._filters))
        if nodes.size:
            return Requeue.AT_ONCE
        in_doubt = any(self._clock.now_s() < until_s < np.inf for until_s in self._evicted.values())
        return Requeue.BACK_OFF if in_doubt else Requeue.ON_EVENT

    def observe_deleted(self, uid: str) -> None:
        """The pod with this uid is gone."""
        self._evicted.pop(uid, None)
        self._ending_since_s.pop(uid, None)
        self._not_before_s.pop(uid, None)

    def keep_only(self, uids: set[str]) -> None:
        """All pods but these are gone."""
        self._evicted = {u: s for u, s in self._evicted.items() if u in uids}
        self._ending_since_s = {u: s for u, s in self._ending_since_s.items() if u in uids}

    async def _withdraw_lower(self, plan: Preemption) -> None:
        """Take back the nominations for the plan's node of our pods with a lower priority."""
        for other, node in self._state.nominated():
            is_ours = other.scheduler_name == self._scheduler_name
            if node == plan.node and is_ours and other.priority < plan.pod.priority:
                with suppress(NotFoundError, ConflictError):  # it is gone
                    await self._nominate(other, None)

    async def _nominate(self, pod: Pod, node: str | None) -> None:
        known = self._state.pod(pod.uid)
        is_written = known is not None and known.nominated_node == node
        if is_written and self._state.nominations.of(pod.uid) == node:
            return
        self._state.nominate(pod.uid, node)
        try:
            await self._cluster.nominate(pod, node)
        except ClusterError:
            self._state.nominations.withdraw(pod.uid)
            raise

    async def _evict(self, victim: Pod, plan: Preemption) -> bool:
        """Whether the pod ends because of this; not if it was gone before. Raises ClusterError."""
        by = f"{plan.pod.key} (priority {plan.pod.priority})"
        self._evicted[victim.uid] = np.inf
        try:
            await self._cluster.preempt(victim, f"{self._scheduler_name}: makes room for {by}")
        except (NotFoundError, ConflictError):
            # Gone, or made again under the same name; only the watch can tell.
            self._evicted[victim.uid] = self._clock.now_s() + _IN_DOUBT_S
            return False
        except UnavailableError:
            self._evicted[victim.uid] = self._clock.now_s() + _IN_DOUBT_S
            raise
        except BaseException:
            self._evicted.pop(victim.uid, None)
            raise
        message = f"Preempted by {by} on node {plan.node}; this pod has priority {victim.priority}"
        self._tell(victim, Event("Normal", "Preempted", message))
        return True

    def _is_on(self, pod: Pod, node: str | None) -> bool:
        return not pod.finished and self._state.node_of(pod.uid) == node

    def _stays_on(self, uid: str, node: str | None) -> bool:
        """Whether the pod takes room on the node, and goes on to."""
        pod = self._state.pod(uid)
        if pod is None or pod.terminating or self._is_evicted(uid):
            return False
        return self._is_on(pod, node)

    def _is_evicted(self, uid: str) -> bool:
        return self._clock.now_s() < self._evicted.get(uid, -np.inf)

    def _is_pending(self, uid: str) -> bool:
        known = self._state.pod(uid)
        return known is not None and known.is_pending and not self._state.is_assumed(uid)

    def _when_pods_end(self, view: ClusterView, pod: Pod) -> tuple[ClusterView, Ints]:
        """The view without the pods that are about to end, and the nodes that the pod then fits."""
        ended = view.without_placements(list(self._ending(view)))
        return ended, feasible_nodes(ended, filtered(ended, pod, self._filters))

    def _fits_without_victims(self, view: ClusterView, plan: Preemption) -> bool:
        """Whether the victims still make room: others may have come, and the node may be gone."""
        at = view.table.index.get(plan.node or "")
        if at is None:
            return False
        # As they are shown now: one that ends meanwhile counts as another pod.
        now = (self._state.pod(each.uid) for each in plan.victims)
        there = [each for each in now if each and self._is_on(each, plan.node)]
        without = view.without_placements([(each, at) for each in there])
        return at in feasible_nodes(without, filtered(without, plan.pod, self._filters))

    def _chosen(self, decision: Decision, view: ClusterView, tied: list[Candidate]) -> Preemption:
        """Of the nodes that tie by kube-scheduler's rules, the one that the strategy prefers."""
        chosen = tied[0]
        if len(tied) > 1:
            gone = [(each, one.node) for one in tied for each in one.victims]
            nodes = np.array([one.node for one in tied], dtype=np.int64)
            at = self._step.decide_after_preemption(decision, view.without_placements(gone), nodes)
            chosen = next(one for one in tied if one.node == at)
        node = view.table.names[chosen.node]
        against = ", against a disruption budget" if chosen.violations else ""
        why = f"it preempts {_listed(chosen.victims)} on {node}{against}"
        return Preemption(decision.pod, node, chosen.victims, why)

    def _assigned(self, view: ClusterView) -> Iterator[Placed]:
        """The unfinished pods on the view's nodes."""
        index = view.table.index
        return (
            (pod, index[node])
            for pod, node in self._state.pods()
            if node is not None and node in index and not pod.finished
        )

    def _ending(self, view: ClusterView) -> Iterator[Placed]:
        """The pods that are about to be gone from the view's nodes."""
        now_s = self._clock.now_s()
        for pod, node in self._assigned(view):
            if pod.terminating or self._is_evicted(pod.uid):
                since_s = self._ending_since_s.setdefault(pod.uid, now_s)
                if now_s - since_s < ENDING_S:
                    yield pod, node

    def _preempted_on(self, node: str | None) -> Iterator[Pod]:
        """The pods on a node that end because they were preempted."""
        for pod, where in self._state.pods():
            ends = (pod.terminating and pod.preempted) or self._is_evicted(pod.uid)
            if where == node and ends and not pod.finished:
                yield pod


def _workload(pod: Pod) -> str:
    """The uid of the pod's owner, whose pods are all alike, or of a pod without one."""
    return pod.owner.uid if pod.owner else pod.uid


def _listed(pods: list[Pod] | tuple[Pod, ...]) -> str:
    """The pods' names, of many only the first."""
    names = ", ".join(pod.key for pod in pods[:_SHOWN])
    more = len(pods) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names

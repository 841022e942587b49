"""Which pods may be moved at all, and when. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from leadline_controller.framework.cluster_objects import Claim, DisruptionBudget, Volume
from leadline_controller.framework.model import SCHEDULER_NAME, Pod
from leadline_controller.framework.selectors import selects

# Whose pods are made again when they are evicted, and nothing is lost.
_REPLACING = ("ReplicaSet", "StatefulSet", "ReplicationController")
_SYSTEM_PRIORITY = 2_000_000_000
_LOCAL = ("local", "hostPath")


@dataclass(frozen=True)
class Guards:
    """Says why a pod must stay, in the cluster as it is now."""

    # Of the whole cluster.
    pods: Sequence[Pod]
    # None if Leadline may not read them.
    budgets: Sequence[DisruptionBudget] | None
    claims: Mapping[str, Claim]
    volumes: Mapping[str, Volume]
    # Seconds since 1970.
    now_s: float
    # A workload rests for so long after its last new pod.
    cooldown_s: float = 3600.0
    # Of the pods that Leadline places.
    scheduler_name: str = SCHEDULER_NAME

    @cached_property
    def _newest_s(self) -> dict[str, float]:
        """Owner's uid -> the creation of its newest pod, seconds since 1970."""
        newest: dict[str, float] = {}
        for pod in self.pods:
            if pod.owner is not None:
                created = float("inf") if pod.created_s is None else pod.created_s
                newest[pod.owner.uid] = max(newest.get(pod.owner.uid, created), created)
        return newest

    def why_it_stays(self, pod: Pod) -> str:
        """Why this pod must not be moved now; empty if it may."""
        if reason := self._why_never(pod):
            return reason
        if not pod.ready:
            return "it is not ready"
        age_s = self.now_s - self._newest_s[pod.owner.uid] if pod.owner else 0.0
        if age_s < self.cooldown_s > 0:
            shown = "of unknown age" if age_s == float("-inf") else f"{max(age_s, 0.0):.0f} s old"
            return f"its workload's newest pod is {shown}; it rests for {self.cooldown_s:.0f} s"
        return budget_refusal(pod, self.budgets)

    def _why_never(self, pod: Pod) -> str:
        """Why this pod must not be moved as long as it is as it is; empty if it may."""
        if pod.finished or pod.terminating:
            return "it is ending"
        if pod.owner is None:
            return "it has no owner that would make another"
        if pod.owner.kind not in _REPLACING:
            return f"its owner is a {pod.owner.kind[:80]}, which makes no other pod elsewhere"
        if pod.priority >= _SYSTEM_PRIORITY:
            return "its priority is one of the system's"
        if pod.stays:
            return pod.stays
        if pod.scheduler_name != self.scheduler_name:
            return (
                f"it was not placed by Leadline's scheduler: {pod.scheduler_name[:80]!r} would "
                "place its replacement"
            )
        for use in pod.claims:
            claim = self.claims.get(pod.claim_key(use))
            volume = self.volumes.get(claim.volume) if claim is not None else None
            if volume is not None and volume.kind in _LOCAL:
                return f"volume {volume.name} is {volume.kind}: its data is on the node"
        return ""


def budget_refusal(pod: Pod, budgets: Iterable[DisruptionBudget] | None) -> str:
    """Why the pod's disruption budgets refuse its eviction; empty if they do not."""
    if budgets is None:
        return "Leadline may not read disruption budgets"
    own = [b for b in budgets if b.namespace == pod.namespace and selects(b.selector, pod.labels)]
    if len(own) > 1:
        return f"it has {len(own)} disruption budgets, and Kubernetes then evicts no pod"
    for budget in own:
        if budget.allowed < 1:
            return f"disruption budget {budget.name} allows no disruption now"
    return ""

"""Namespaces and storage, updated from their changes and from the plans being carried out.

The watch shows a volume's reservation only later, so the plan is assumed at once; otherwise the
next pod could be promised the same volume. What the API server shows overrides an assumption.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from leadline_controller.framework.assigned_pods import Namespaces
from leadline_controller.framework.cluster_objects import (
    BUDGETS,
    Claim,
    ClusterObject,
    DisruptionBudget,
    NamespaceLabels,
    PodSelector,
    PodSelectors,
    Storage,
    Unreadable,
    Volume,
    VolumePlan,
)


class ObjectState:
    """The cluster's objects other than nodes and pods. namespaces: the labels of all namespaces.
    pod_selectors: those of Services, and of what owns pods."""

    def __init__(self) -> None:
        self._objects: dict[tuple[type, str], ClusterObject] = {}
        self._plans: dict[str, VolumePlan] = {}
        self._storage: Storage | None = None
        self.namespaces = Namespaces()
        self.pod_selectors = PodSelectors()

    def replace_all(self, objects: Iterable[ClusterObject]) -> None:
        """Replace all objects after a relist."""
        objects = list(objects)
        self._objects = {(type(o), o.key): o for o in objects if not isinstance(o, PodSelector)}
        self.pod_selectors = PodSelectors(o for o in objects if isinstance(o, PodSelector))
        self._invalidate(NamespaceLabels)
        self._invalidate(Claim)

    def put(self, changed: ClusterObject) -> bool:
        """Add or replace an object. Whether that changed anything."""
        if isinstance(changed, PodSelector):  # there are thousands, and nobody waits for one
            return self.pod_selectors.put(changed)
        key = type(changed), changed.key
        if self._objects.get(key) == changed:
            return False
        self._objects[key] = changed
        self._invalidate(type(changed))
        return True

    def remove(self, changed: ClusterObject) -> bool:
        """Delete an object. Whether it was known."""
        if isinstance(changed, PodSelector):
            return self.pod_selectors.remove(changed)
        known = self._objects.pop((type(changed), changed.key), None)
        self._invalidate(type(changed))
        return known is not None

    def claim(self, key: str) -> Claim | None:
        """The claim of this namespace/name as last seen, without assumed plans."""
        found = self._objects.get((Claim, key))
        return found if isinstance(found, Claim) else None

    def volume(self, name: str) -> Volume | None:
        """The volume of this name as last seen, without assumed plans."""
        found = self._objects.get((Volume, name))
        return found if isinstance(found, Volume) else None

    def namespace(self, name: str) -> NamespaceLabels | None:
        """The namespace of this name as last seen."""
        found = self._objects.get((NamespaceLabels, name))
        return found if isinstance(found, NamespaceLabels) else None

    def all(self) -> Iterator[ClusterObject]:
        """All objects as last seen."""
        return chain(self._objects.values(), self.pod_selectors)

    def budgets(self) -> list[DisruptionBudget] | None:
        """The disruption budgets; None if Leadline may not read them."""
        if (Unreadable, BUDGETS) in self._objects:
            return None
        return [each for each in self._objects.values() if isinstance(each, DisruptionBudget)]

    def assume(self, uid: str, plan: VolumePlan) -> None:
        """Assume that the plan of the pod with this uid will be carried out."""
        self._plans[uid] = plan
        self._storage = None

    def forget(self, uid: str) -> None:
        """Drop the assumed plan of this pod."""
        if self._plans.pop(uid, None) is not None:
            self._storage = None

    def storage(self) -> Storage:
        """The storage with the assumed plans, for a decision."""
        if self._storage is None:
            known = Storage.of(self._objects.values())
            self._plans = {uid: plan for uid, plan in self._plans.items() if self._is_open(plan)}
            self._storage = known.assuming(*self._plans.values())
        return self._storage

    def _invalidate(self, kind: type) -> None:
        if kind is NamespaceLabels:
            namespaces = (r for r in self._objects.values() if isinstance(r, NamespaceLabels))
            self.namespaces = Namespaces({space.name: space.labels for space in namespaces})
        elif kind is not DisruptionBudget:
            self._storage = None

    def _is_open(self, plan: VolumePlan) -> bool:
        """Whether the watch may still show a part of the plan that it has not shown."""
        claims = (self.claim(key) for key in plan.selects)
        volumes = (self.volume(name) for name, _ in plan.binds)
        return any(
            claim is not None and not claim.volume and claim.selected_node is None
            for claim in claims
        ) or any(volume is not None and volume.claim is None for volume in volumes)

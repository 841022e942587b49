"""Namespaces and storage, folded from their changes, with what is about to be done to claims
and volumes counted in.

A volume that was just promised to a claim does not show that yet; unless it is counted at once,
the next pod is promised it, too. What the API server shows always wins over a promise.
"""

from collections.abc import Iterable

from leadline_controller.framework.assigned_pods import Namespaces
from leadline_controller.framework.resources import Claim, NamespaceLabels, Resource, Volume
from leadline_controller.framework.storage import Storage, VolumePlan


class ResourceState:
    """What there is besides nodes and pods."""

    def __init__(self) -> None:
        self._found: dict[tuple[type, str], Resource] = {}
        self._plans: dict[str, VolumePlan] = {}
        self._storage: Storage | None = None
        self._namespaces = Namespaces()

    def replace_all(self, resources: Iterable[Resource]) -> None:
        """What there is, and nothing else."""
        self._found = {(type(r), r.key): r for r in resources}
        self._changed(NamespaceLabels)
        self._changed(Claim)

    def put(self, resource: Resource) -> bool:
        """It appeared or changed. Whether that makes a difference."""
        key = type(resource), resource.key
        if self._found.get(key) == resource:
            return False
        self._found[key] = resource
        self._changed(type(resource))
        return True

    def remove(self, resource: Resource) -> bool:
        """It is gone. Whether it was known."""
        known = self._found.pop((type(resource), resource.key), None)
        self._changed(type(resource))
        return known is not None

    def claim(self, key: str) -> Claim | None:
        """The claim of that namespace/name as last seen, without what is assumed."""
        found = self._found.get((Claim, key))
        return found if isinstance(found, Claim) else None

    def volume(self, name: str) -> Volume | None:
        """The same for a volume."""
        found = self._found.get((Volume, name))
        return found if isinstance(found, Volume) else None

    def assume(self, uid: str, plan: VolumePlan) -> None:
        """The plan of the pod with this uid is being carried out."""
        self._plans[uid] = plan
        self._storage = None

    def forget(self, uid: str) -> None:
        """The plan of that pod was given up."""
        if self._plans.pop(uid, None) is not None:
            self._storage = None

    def storage(self) -> Storage:
        """As a decision sees it."""
        if self._storage is None:
            known = Storage.of(self._found.values())
            self._plans = {uid: plan for uid, plan in self._plans.items() if self._is_open(plan)}
            self._storage = known.assuming(*self._plans.values())
        return self._storage

    def namespaces(self) -> Namespaces:
        """As a decision sees them."""
        return self._namespaces

    def _changed(self, kind: type) -> None:
        if kind is not NamespaceLabels:
            self._storage = None
            return
        spaces = (r for r in self._found.values() if isinstance(r, NamespaceLabels))
        labels = {space.name: space.labels for space in spaces}
        self._namespaces = Namespaces(labels)

    def _is_open(self, plan: VolumePlan) -> bool:
        """Whether something of the plan is not shown yet, and can still be."""
        claims = (self.claim(key) for key in plan.selects)
        volumes = (self.volume(name) for name, _ in plan.binds)
        return any(
            claim is not None and not claim.volume and claim.selected_node is None
            for claim in claims
        ) or any(volume is not None and volume.claim is None for volume in volumes)

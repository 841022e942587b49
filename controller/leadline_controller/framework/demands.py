"""What a pod demands of its neighbours and of the volumes it brings along."""

from dataclasses import dataclass

from leadline_controller.framework.selectors import Selector

# Disks in the pod's own manifest that one machine, or one writer, has at a time.
_EXCLUSIVE = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods that a pod must have, or must not have, in its topology domain.

    topology_key: the node label whose values are the domains. selector: of the pods' labels;
    None selects none. namespaces and namespace_selector: where those pods live; either will do.
    """

    topology_key: str
    selector: Selector | None
    namespaces: frozenset[str]
    namespace_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint that is a demand (DoNotSchedule).

    selector: of the pods that are counted, in the pod's own namespace. min_domains: with fewer
    domains than this the emptiest counts as empty. honor_affinity, honor_taints: whether nodes
    that the pod's node affinity or the taints rule out are left out of the count.
    """

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A volume claim that a pod mounts. ephemeral: made for the pod, and must be its own."""

    name: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that the pod names itself, without a claim. `kind` is the field of the manifest;
    monitors: where an rbd image is served, empty for other kinds."""

    kind: str
    name: str
    monitors: frozenset[str] = frozenset()
    read_only: bool = False

    def conflicts(self, other: "Disk") -> bool:
        """Whether two pods can't hold both on one node."""
        if self.kind not in _EXCLUSIVE or (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and not self.monitors & other.monitors:
            return False
        shareable = self.kind != "awsElasticBlockStore"
        return not (shareable and self.read_only and other.read_only)

"""A pod's pod affinity terms, topology spread constraints, claims and in-line disks."""

from dataclasses import dataclass

from leadline_controller.framework.selectors import Selector

# In-line disks that only one node, or only one writer, can use at a time.
_EXCLUSIVE = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required pod affinity or anti-affinity term.

    topology_key: the node label whose values are the domains. selector: matches the pods' labels;
    None matches none. A pod's namespace must be in `namespaces` or match `namespace_selector`.
    """

    topology_key: str
    selector: Selector | None
    namespaces: frozenset[str]
    namespace_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint with whenUnsatisfiable: DoNotSchedule.

    selector: matches the pods that count, in the pod's own namespace. min_domains: with fewer
    domains the global minimum is 0. honor_affinity, honor_taints: whether nodes count only if
    they match the pod's node affinity, and only if it tolerates their taints.
    """

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim that a pod mounts. ephemeral: created for this pod, which must own it."""

    name: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk in the pod's manifest, without a claim. kind: the field of the manifest. monitors: of
    an rbd image, empty for other kinds."""

    kind: str
    name: str
    monitors: frozenset[str] = frozenset()
    read_only: bool = False

    def conflicts_with(self, other: "Disk") -> bool:
        """Whether two pods on one node cannot mount both."""
        if self.kind not in _EXCLUSIVE or (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and not self.monitors & other.monitors:
            return False
        shareable = self.kind != "awsElasticBlockStore"
        return not (shareable and self.read_only and other.read_only)

"""Reads the constraints in a pod's manifest: affinity, topology spread, volumes, node features.
What is only preferred is read here, too.

Also their limits. Anybody who may create pods writes these lists, the API server accepts 1.5 MB of
them, and each attempt to schedule the pod evaluates them all.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from leadline_controller.framework.model import (
    NO_PREFERENCES,
    AffinityTerm,
    ClaimUse,
    Disk,
    Preferences,
    SpreadConstraint,
    WeightedTerm,
)
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.schema import (
    NO_AFFINITY,
    PREFERRED,
    REQUIRED,
    Expression,
    PodSpec,
    PodTerm,
    PreferredNode,
    Spread,
    VolumeSource,
)
from leadline_controller.kubeobjects.selectors import read_selector, read_term
from leadline_controller.parsing.fields import FieldError

# Kinds of disks without a claim, and the field that identifies a disk.
DISKS = {
    "gcePersistentDisk": "pd_name",
    "awsElasticBlockStore": "volume_id",
    "cinder": "volume_id",
    "portworxVolume": "volume_id",
    "azureDisk": "disk_uri",
    "iscsi": "iqn",
    "rbd": "image",
}
_CLAIMS_AND_DISKS = frozenset(("persistentVolumeClaim", "ephemeral", *DISKS))
# Kinds of volumes without a claim that do not limit where the pod can run.
_UNCONSTRAINED_VOLUMES = frozenset(
    (
        *("configMap", "secret", "downwardAPI", "projected", "emptyDir", "hostPath", "image"),
        *("nfs", "csi", "cephfs", "glusterfs", "fc", "flexVolume", "flocker", "gitRepo"),
        *("quobyte", "scaleIO", "storageos", "photonPersistentDisk", "azureFile"),
        "vsphereVolume",
    )
)

MAX_CONSTRAINTS = 500
MAX_VALUES = 10_000
MAX_VOLUMES = 100
_LIMITED = {
    MAX_CONSTRAINTS: (
        "affinity terms, spread constraints, label expressions, tolerations and resources"
    ),
    MAX_VALUES: "labels, values in label expressions and ports",
    MAX_VOLUMES: "claims and disks",
}
_CONSTRAINTS = (PodTerm, PreferredNode, Spread)


def read_affinity(
    terms: Iterable[PodTerm], kind: str, namespace: str, labels: Mapping[str, str], path: str
) -> tuple[AffinityTerm, ...]:
    """The required terms of a pod's podAffinity or podAntiAffinity. path: of the pod. Raises
    FieldError."""
    at = f"{path}.spec.affinity.{kind}.{REQUIRED}"
    return tuple(
        _affinity_term(term, namespace, labels, f"{at}[{i}]") for i, term in enumerate(terms)
    )


def read_spread(
    spec: PodSpec, labels: Mapping[str, str], action: str, path: str
) -> tuple[SpreadConstraint, ...]:
    """The spread constraints with this whenUnsatisfiable. Raises FieldError."""
    return tuple(
        _spread_constraint(constraint, labels, f"{path}.spec.topologySpreadConstraints[{i}]")
        for i, constraint in enumerate(spec.topology_spread_constraints)
        if constraint.when_unsatisfiable == action
    )


def read_preferences(
    spec: PodSpec, namespace: str, labels: Mapping[str, str], path: str
) -> Preferences:
    """What the pod prefers. Raises FieldError."""
    affinity = spec.affinity
    nodes = tuple(
        (each.weight, read_term(each.preference)) for each in affinity.node_affinity.preferred
    )
    of_kinds = (
        ("podAffinity", 1, affinity.pod_affinity),
        ("podAntiAffinity", -1, affinity.pod_anti_affinity),
    )
    pods = tuple(
        WeightedTerm(
            sign * each.weight,
            _affinity_term(
                *(each.pod_affinity_term, namespace, labels),
                f"{path}.spec.affinity.{kind}.{PREFERRED}[{i}].podAffinityTerm",
            ),
        )
        for kind, sign, of_kind in of_kinds
        for i, each in enumerate(of_kind.preferred)
    )
    spread = read_spread(spec, labels, "ScheduleAnyway", path)
    return Preferences(nodes, pods, spread) if nodes or pods or spread else NO_PREFERENCES


def read_volumes(
    spec: PodSpec, path: str
) -> tuple[tuple[ClaimUse, ...], tuple[Disk, ...], str | None]:
    """Claims, disks, and a sentence about a volume that is not supported. Raises FieldError."""
    claims: list[ClaimUse] = []
    disks: list[Disk] = []
    unsupported: str | None = None
    for i, volume in enumerate(spec.volumes):
        for kind, source in volume.items():
            if kind in _UNCONSTRAINED_VOLUMES or isinstance(source, str):
                continue
            at = f"{path}.spec.volumes[{i}].{kind}"
            if kind == "persistentVolumeClaim":
                if source.claim_name is None:
                    raise FieldError(f"{at}.claimName: expected text, got nothing")
                claims.append(ClaimUse(source.claim_name))
            elif kind == "ephemeral":
                claims.append(ClaimUse(str(volume.get("name", "")), ephemeral=True))
            elif kind in DISKS:
                disks.append(_disk(kind, source, at))
            else:
                unsupported = f"volumes of kind {kind[:60]} are not supported"
    return tuple(claims), tuple(disks), unsupported


def _disk(kind: str, source: VolumeSource, path: str) -> Disk:
    name: str = getattr(source, DISKS[kind])
    if not name:
        raise FieldError(f"{path}: expected what identifies the disk, got nothing")
    if kind == "rbd":
        name = f"{source.pool}/{name}"
    return Disk(kind, name, frozenset(source.monitors), source.read_only)


def read_needed_features(spec: PodSpec) -> tuple[str, ...]:
    """The features that the node's kubelet must declare (Kubernetes 1.36)."""
    found = []
    containers = (*spec.containers, *spec.init_containers)
    rules = (rule for container in containers for rule in container.restart_policy_rules)
    if any(rule.action == "RestartAllContainers" for rule in rules):
        found.append("RestartAllContainersOnContainerExits")
    if spec.host_network and not spec.host_users:
        found.append("UserNamespacesHostNetworkSupport")
    return tuple(found)


def _affinity_term(
    term: PodTerm, namespace: str, labels: Mapping[str, str], path: str
) -> AffinityTerm:
    namespaces = frozenset(term.namespaces)
    namespace_selector = read_selector(term.namespace_selector, f"{path}.namespaceSelector")
    if not namespaces and namespace_selector is None:
        namespaces = frozenset({namespace})
    selector = read_selector(term.label_selector, f"{path}.labelSelector")
    if selector is not None:
        # The API server adds the pod's own values to the selector when the pod is created.
        present = {requirement.key for requirement in selector}
        selector += tuple(
            Requirement(key, operator, (labels[key],))
            for keys, operator in (
                (term.match_label_keys, "In"),
                (term.mismatch_label_keys, "NotIn"),
            )
            for key in keys
            if key in labels and key not in present
        )
    return AffinityTerm(term.topology_key, selector, namespaces, namespace_selector)


def _spread_constraint(
    constraint: Spread, labels: Mapping[str, str], path: str
) -> SpreadConstraint:
    selector = read_selector(constraint.label_selector, f"{path}.labelSelector")
    if selector is not None:
        # Unlike those of affinity terms, these values are looked up at every decision.
        keys = [key for key in constraint.match_label_keys if key in labels]
        selector = (*selector, *(Requirement(key, "In", (labels[key],)) for key in keys))
    return SpreadConstraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        selector=selector,
        min_domains=constraint.min_domains,
        honor_affinity=constraint.node_affinity_policy == "Honor",
        honor_taints=constraint.node_taints_policy == "Honor",
    )


def find_excess(labels: Mapping[str, str], spec: PodSpec) -> tuple[str | None, str | None]:
    """A sentence about the limit on constraints that the pod exceeds, and one about that on
    volumes; None where it exceeds none."""
    containers = (*spec.containers, *spec.init_containers)
    resources: set[str] = set()
    for container in containers:
        resources.update(container.resources.requests, container.resources.limits)
    counts = {
        MAX_CONSTRAINTS: len(spec.node_selector) + len(spec.tolerations) + len(resources),
        MAX_VALUES: len(labels) + sum(len(container.ports) for container in containers),
        MAX_VOLUMES: sum(not _CLAIMS_AND_DISKS.isdisjoint(volume) for volume in spec.volumes),
    }
    if spec.affinity is not NO_AFFINITY:
        _count(spec.affinity, counts)
    _count(spec.topology_spread_constraints, counts)
    constraints, values, volumes = (
        f"the pod has more than {limit} {_LIMITED[limit]}, more than Leadline evaluates"
        if count > limit
        else None
        for limit, count in counts.items()
    )
    return constraints or values, volumes


def _count(part: object, counts: dict[int, int]) -> None:
    """Count constraints, with the labels, keys and namespaces in them, and, apart, the values of
    label expressions."""
    if isinstance(part, Expression):
        counts[MAX_CONSTRAINTS] += 1
        counts[MAX_VALUES] += len(part.values)
    elif isinstance(part, Struct):
        counts[MAX_CONSTRAINTS] += isinstance(part, _CONSTRAINTS)
        for each in structs.astuple(part):
            _count(each, counts)
    elif isinstance(part, dict | tuple) and part:
        if isinstance(part, tuple) and isinstance(part[0], Struct):
            for each in part:
                _count(each, counts)
        else:
            counts[MAX_CONSTRAINTS] += len(part)


def repelling_all(spec: PodSpec) -> tuple[AffinityTerm, ...]:
    """Terms in place of the anti-affinity terms of a running pod that has too many to evaluate:
    they repel all pods from the same topology domains."""
    keys = dict.fromkeys(term.topology_key for term in spec.affinity.pod_anti_affinity.required)
    return tuple(AffinityTerm(key, (), frozenset(), ()) for key in keys)

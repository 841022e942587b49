"""Reads the constraints in a pod's manifest: affinity, topology spread, volumes, node features.
What is only preferred is read here, too.

Also their limits. Anybody who may create pods writes these lists, the API server accepts 1.5 MB of
them, and each attempt to schedule the pod evaluates them all.
"""

from collections.abc import Iterable, Iterator, Mapping

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
from leadline_controller.kubeobjects.selectors import read_selector, read_term
from leadline_controller.parsing.fields import Fields

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# Kinds of disks without a claim, and the field that identifies a disk.
_DISKS = {
    "gcePersistentDisk": "pdName",
    "awsElasticBlockStore": "volumeID",
    "cinder": "volumeID",
    "portworxVolume": "volumeID",
    "azureDisk": "diskURI",
    "iscsi": "iqn",
    "rbd": "image",
}
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_CLAIMS_AND_DISKS = ("persistentVolumeClaim", "ephemeral", *_DISKS)
# Kinds of volumes without a claim that do not limit where the pod can run.
_UNCONSTRAINED_VOLUMES = (
    *("configMap", "secret", "downwardAPI", "projected", "emptyDir", "hostPath", "image"),
    *("nfs", "csi", "cephfs", "glusterfs", "fc", "flexVolume", "flocker", "gitRepo", "quobyte"),
    *("scaleIO", "storageos", "photonPersistentDisk", "azureFile", "vsphereVolume"),
)
_MAX_INT32 = 2**31 - 1

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


def read_affinity(
    spec: Fields, kind: str, namespace: str, labels: Mapping[str, str]
) -> tuple[AffinityTerm, ...]:
    """The required terms of a pod's podAffinity or podAntiAffinity. Raises FieldError."""
    terms = spec.object("affinity").object(kind).objects(_REQUIRED)
    return tuple(_affinity_term(term, namespace, labels) for term in terms)


def read_spread(
    spec: Fields, labels: Mapping[str, str], action: str
) -> tuple[SpreadConstraint, ...]:
    """The spread constraints with this whenUnsatisfiable. Raises FieldError."""
    return tuple(
        _spread_constraint(constraint, labels)
        for constraint in spec.objects("topologySpreadConstraints")
        if constraint.choice("whenUnsatisfiable", *_ACTIONS, default=_ACTIONS[0]) == action
    )


def read_preferences(spec: Fields, namespace: str, labels: Mapping[str, str]) -> Preferences:
    """What the pod prefers. Raises FieldError."""
    affinity = spec.object("affinity")
    nodes = tuple(
        (_weight(each), read_term(each.object("preference")))
        for each in affinity.object("nodeAffinity").objects(_PREFERRED)
    )
    pods = tuple(
        WeightedTerm(
            sign * _weight(each), _affinity_term(each.object("podAffinityTerm"), namespace, labels)
        )
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for each in affinity.object(kind).objects(_PREFERRED)
    )
    spread = read_spread(spec, labels, "ScheduleAnyway")
    return Preferences(nodes, pods, spread) if nodes or pods or spread else NO_PREFERENCES


def _weight(preferred: Fields) -> int:
    weight = preferred.integer("weight", 1, 100)
    if weight is None:
        raise preferred.error("weight", "a whole number from 1 to 100")
    return weight


def read_volumes(spec: Fields) -> tuple[tuple[ClaimUse, ...], tuple[Disk, ...], str | None]:
    """Claims, disks, and a sentence about a volume that is not supported. Raises FieldError."""
    claims: list[ClaimUse] = []
    disks: list[Disk] = []
    unsupported: str | None = None
    for volume in spec.objects("volumes"):
        for source, value in volume.data.items():
            if source == "name" or source in _UNCONSTRAINED_VOLUMES or value is None:
                continue
            if source == "persistentVolumeClaim":
                claims.append(ClaimUse(volume.object(source).name("claimName")))
            elif source == "ephemeral":
                claims.append(ClaimUse(volume.name("name"), ephemeral=True))
            elif source in _DISKS:
                disks.append(_disk(source, volume.object(source)))
            else:
                unsupported = f"volumes of kind {source[:60]} are not supported"
    return tuple(claims), tuple(disks), unsupported


def read_needed_features(spec: Fields) -> tuple[str, ...]:
    """The features that the node's kubelet must declare (Kubernetes 1.36)."""
    found = []
    rules = (
        rule
        for kind in ("containers", "initContainers")
        for container in spec.objects(kind)
        for rule in container.objects("restartPolicyRules")
    )
    if any(rule.text("action", "") == "RestartAllContainers" for rule in rules):
        found.append("RestartAllContainersOnContainerExits")
    if spec.flag("hostNetwork", default=False) and not spec.flag("hostUsers", default=True):
        found.append("UserNamespacesHostNetworkSupport")
    return tuple(found)


def _affinity_term(term: Fields, namespace: str, labels: Mapping[str, str]) -> AffinityTerm:
    namespaces = frozenset(term.texts("namespaces"))
    namespace_selector = read_selector(term, "namespaceSelector")
    if not namespaces and namespace_selector is None:
        namespaces = frozenset({namespace})
    selector = read_selector(term, "labelSelector")
    if selector is not None:
        # The API server adds the pod's own values to the selector when the pod is created.
        present = {requirement.key for requirement in selector}
        selector += tuple(
            Requirement(key, operator, (labels[key],))
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in term.texts(field)
            if key in labels and key not in present
        )
    return AffinityTerm(_topology_key(term), selector, namespaces, namespace_selector)


def _spread_constraint(constraint: Fields, labels: Mapping[str, str]) -> SpreadConstraint:
    selector = read_selector(constraint, "labelSelector")
    if selector is not None:
        # Unlike those of affinity terms, these values are looked up at every decision.
        keys = [key for key in constraint.texts("matchLabelKeys") if key in labels]
        selector = (*selector, *(Requirement(key, "In", (labels[key],)) for key in keys))
    policies = ("Honor", "Ignore")
    max_skew = constraint.integer("maxSkew", 1, _MAX_INT32)
    if max_skew is None:
        raise constraint.error("maxSkew", "a whole number")
    return SpreadConstraint(
        topology_key=_topology_key(constraint),
        max_skew=max_skew,
        selector=selector,
        min_domains=constraint.integer("minDomains", 1, _MAX_INT32) or 1,
        honor_affinity=constraint.choice("nodeAffinityPolicy", *policies, default="Honor")
        == "Honor",
        honor_taints=constraint.choice("nodeTaintsPolicy", *policies, default="Ignore") == "Honor",
    )


def _topology_key(parent: Fields) -> str:
    key = parent.text("topologyKey")
    if not key:
        raise parent.error("topologyKey", "the name of a node label")
    return key


def _disk(kind: str, source: Fields) -> Disk:
    name, monitors = source.text(_DISKS[kind]), frozenset(source.texts("monitors"))
    if kind == "rbd":
        name = f"{source.text('pool', 'rbd')}/{name}"
    return Disk(kind, name, monitors, source.flag("readOnly", default=False))


def find_excess(counts: Iterable[tuple[int, int]]) -> str | None:
    """A sentence about the limit that the counts exceed, if any. Stops counting there. Raises
    FieldError."""
    totals = dict.fromkeys(_LIMITED, 0)
    for limit, count in counts:
        totals[limit] += count
        if totals[limit] > limit:
            return f"the pod has more than {limit} {_LIMITED[limit]}, more than Leadline evaluates"
    return None


def volume_counts(spec: Fields) -> Iterator[tuple[int, int]]:
    """As `constraint_counts`, of the pod's claims and disks."""
    for volume in spec.objects("volumes"):
        yield MAX_VOLUMES, any(volume.has(source) for source in _CLAIMS_AND_DISKS)


def read_repelling_all(spec: Fields) -> tuple[AffinityTerm, ...]:
    """Terms in place of the anti-affinity terms of a running pod that has too many to evaluate:
    they repel all pods from the same topology domains. Raises FieldError."""
    terms = spec.object("affinity").object("podAntiAffinity").objects(_REQUIRED)
    keys = dict.fromkeys(term.text("topologyKey", "") for term in terms)
    return tuple(AffinityTerm(key, (), frozenset(), ()) for key in keys)


def constraint_counts(metadata: Fields, spec: Fields) -> Iterator[tuple[int, int]]:
    """Pairs of a limit and how much a part of the pod adds to its count."""
    yield MAX_VALUES, _length(metadata, "labels")
    yield MAX_CONSTRAINTS, _length(spec, "nodeSelector") + _length(spec, "tolerations")
    affinity = spec.object("affinity")
    for term in affinity.object("nodeAffinity").object(_REQUIRED).objects("nodeSelectorTerms"):
        yield MAX_CONSTRAINTS, 1
        yield from _counts_of_node_term(term)
    for preferred in affinity.object("nodeAffinity").objects(_PREFERRED):
        yield MAX_CONSTRAINTS, 1
        yield from _counts_of_node_term(preferred.object("preference"))
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in affinity.object(kind).objects(_REQUIRED):
            yield from _counts_of_term(term)
        for preferred in affinity.object(kind).objects(_PREFERRED):
            yield from _counts_of_term(preferred.object("podAffinityTerm"))
    for constraint in spec.objects("topologySpreadConstraints"):
        yield from _counts_of_term(constraint)
    resources: set[str] = set()
    for kind in ("containers", "initContainers"):
        for container in spec.objects(kind):
            yield MAX_VALUES, _length(container, "ports")
            before = len(resources)
            for amounts in ("requests", "limits"):
                resources.update(container.object("resources").object(amounts).data)
            yield MAX_CONSTRAINTS, len(resources) - before


def _counts_of_node_term(term: Fields) -> Iterator[tuple[int, int]]:
    for kind in ("matchExpressions", "matchFields"):
        yield from _counts_of_expressions(term, kind)


def _counts_of_term(term: Fields) -> Iterator[tuple[int, int]]:
    keys = _length(term, "matchLabelKeys") + _length(term, "mismatchLabelKeys")
    yield MAX_CONSTRAINTS, 1 + keys + _length(term, "namespaces")
    for name in ("labelSelector", "namespaceSelector"):
        selector = term.object(name)
        yield MAX_CONSTRAINTS, _length(selector, "matchLabels")
        yield from _counts_of_expressions(selector, "matchExpressions")


def _counts_of_expressions(parent: Fields, name: str) -> Iterator[tuple[int, int]]:
    for expression in parent.objects(name):
        yield MAX_CONSTRAINTS, 1
        yield MAX_VALUES, _length(expression, "values")


def _length(parent: Fields, name: str) -> int:
    value = parent.raw(name)
    return len(value) if isinstance(value, list | dict) else 0

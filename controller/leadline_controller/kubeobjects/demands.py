"""Reads what a pod's manifest demands of its neighbours and its volumes."""

from collections.abc import Mapping

from leadline_controller.framework.demands import AffinityTerm, ClaimUse, Disk, SpreadConstraint
from leadline_controller.framework.selectors import Requirement, Selector
from leadline_controller.kubeobjects.selectors import read_selector
from leadline_controller.parsing.fields import Fields

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_POLICIES = ("Honor", "Ignore")
# Disks without a claim, and the field that tells one from another.
_DISKS = {
    "gcePersistentDisk": "pdName",
    "awsElasticBlockStore": "volumeID",
    "cinder": "volumeID",
    "portworxVolume": "volumeID",
    "azureDisk": "diskURI",
    "iscsi": "iqn",
    "rbd": "image",
}
# The fields of a volume that is more than a folder.
PERSISTENT = ("persistentVolumeClaim", "ephemeral", *_DISKS)
# Kinds of volumes without a claim that no predicate is about.
_FREE_VOLUMES = (
    *("configMap", "secret", "downwardAPI", "projected", "emptyDir", "hostPath", "image"),
    *("nfs", "csi", "cephfs", "glusterfs", "fc", "flexVolume", "flocker", "gitRepo", "quobyte"),
    *("scaleIO", "storageos", "photonPersistentDisk", "azureFile", "vsphereVolume"),
)
_MANY = 2**31 - 1


def read_affinity(
    spec: Fields, kind: str, namespace: str, labels: Mapping[str, str]
) -> tuple[AffinityTerm, ...]:
    """The required terms of a pod's podAffinity or podAntiAffinity. Raises FieldError."""
    terms = spec.object("affinity").object(kind).objects(_REQUIRED)
    return tuple(_affinity_term(term, namespace, labels) for term in terms)


def read_spread(spec: Fields, labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    """The spread constraints that are demands. Raises FieldError."""
    found = []
    for constraint in spec.objects("topologySpreadConstraints"):
        action = constraint.text("whenUnsatisfiable", "DoNotSchedule")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            raise constraint.error("whenUnsatisfiable", "DoNotSchedule or ScheduleAnyway")
        if action == "DoNotSchedule":
            found.append(_spread_constraint(constraint, labels))
    return tuple(found)


def read_volumes(spec: Fields) -> tuple[tuple[ClaimUse, ...], tuple[Disk, ...], str | None]:
    """Claims, disks, and what is not modelled, as a sentence. Raises FieldError."""
    claims: list[ClaimUse] = []
    disks: list[Disk] = []
    unknown: str | None = None
    for volume in spec.objects("volumes"):
        for source, value in volume.items():
            if source == "name" or source in _FREE_VOLUMES or value is None:
                continue
            if source == "persistentVolumeClaim":
                claims.append(ClaimUse(volume.object(source).name("claimName")))
            elif source == "ephemeral":
                claims.append(ClaimUse(volume.name("name"), ephemeral=True))
            elif source in _DISKS:
                disks.append(_disk(source, volume.object(source)))
            else:
                unknown = f"volumes of kind {source[:60]} are not supported"
    return tuple(claims), tuple(disks), unknown


def read_needed_features(spec: Fields) -> tuple[str, ...]:
    """What the node's kubelet has to declare before it gets this pod (Kubernetes 1.36)."""
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
    of_namespaces = read_selector(term, "namespaceSelector")
    if not namespaces and of_namespaces is None:
        namespaces = frozenset({namespace})
    return AffinityTerm(
        topology_key=_topology_key(term),
        selector=_with_label_keys(term, labels, ("matchLabelKeys", "mismatchLabelKeys")),
        namespaces=namespaces,
        namespace_selector=of_namespaces,
    )


def _with_label_keys(
    term: Fields, labels: Mapping[str, str], fields: tuple[str, ...]
) -> Selector | None:
    """The label selector with the pod's own values of these keys. The API server writes them
    into the selector when a pod is made, and then they stay as they were."""
    selector = read_selector(term, "labelSelector")
    if selector is None:
        return None
    there = {requirement.key for requirement in selector}
    own = [
        Requirement(key, "NotIn" if field == "mismatchLabelKeys" else "In", (labels[key],))
        for field in fields
        for key in term.texts(field)
        if key in labels and key not in there
    ]
    return (*selector, *own)


def _spread_constraint(constraint: Fields, labels: Mapping[str, str]) -> SpreadConstraint:
    selector = read_selector(constraint, "labelSelector")
    if selector is not None:
        # Unlike those of affinities, these keys are looked up again at every decision.
        keys = [key for key in constraint.texts("matchLabelKeys") if key in labels]
        selector = (*selector, *(Requirement(key, "In", (labels[key],)) for key in keys))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.has(name) and constraint.raw(name) not in _POLICIES:
            raise constraint.error(name, "Honor or Ignore")
    max_skew = constraint.integer("maxSkew", 1, _MANY)
    if max_skew is None:
        raise constraint.error("maxSkew", "a whole number")
    return SpreadConstraint(
        topology_key=_topology_key(constraint),
        max_skew=max_skew,
        selector=selector,
        min_domains=constraint.integer("minDomains", 1, _MANY) or 1,
        honor_affinity=constraint.text("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=constraint.text("nodeTaintsPolicy", "Ignore") == "Honor",
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

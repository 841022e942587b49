"""The fields of pods and nodes that Leadline reads, with their types and Kubernetes' defaults.

What the API server would not accept is no value of these types. Everything else in an object is
skipped, without anything made of it.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

Spec = TypeVar("Spec")

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

# Names come into logs and paths of requests.
Name = Annotated[str, Meta(pattern=r"^[ -~]*\Z", description="text in printable ASCII")]
TopologyKey = Annotated[str, Meta(min_length=1, description="the name of a node label")]
Time = Annotated[datetime, Meta(tz=True, description="a time such as 2030-01-01T00:00:00Z")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Weight = Annotated[int, Meta(ge=1, le=100)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OneOrMore = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Generation = Annotated[int, Meta(ge=0, le=2**62)]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Quantity = Annotated[str | int | float, Meta(description="a quantity like 500m, 4Gi or 2")]
Quantities = dict[str, Quantity]


# mypy would want frozen=True repeated for every class.
_OPTIONS: dict[str, Any] = {"rename": "camel", "frozen": True, "gc": False}


class Part(Struct, **_OPTIONS):
    """An object, or a part of one."""


class OwnerReference(Part):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Metadata(Part):
    name: Name
    namespace: Name = "default"
    uid: Name = ""
    resource_version: str = ""
    generation: Generation = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: Time | None = None
    deletion_timestamp: str | None = None


class Named(Part):
    metadata: Metadata


class Object(Named, Generic[Spec]):
    """An object that must have a spec."""

    spec: Spec


class Expression(Part):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class FieldExpression(Expression):
    key: Annotated[
        Literal["metadata.name"], Meta(description="metadata.name, the only field there is")
    ]


class Selector(Part):
    """A label selector, or a term of a node selector, which has fields and no match_labels."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[FieldExpression, ...] = ()


class NodeSelector(Part):
    node_selector_terms: tuple[Selector, ...] = ()


class PreferredNode(Part):
    weight: Weight
    preference: Selector = Selector()


class NodeAffinity(Part):
    required: NodeSelector | None = field(default=None, name=REQUIRED)
    preferred: tuple[PreferredNode, ...] = field(default=(), name=PREFERRED)


class PodTerm(Part):
    topology_key: TopologyKey
    label_selector: Selector | None = None
    namespace_selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPod(Part):
    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(Part):
    required: tuple[PodTerm, ...] = field(default=(), name=REQUIRED)
    preferred: tuple[PreferredPod, ...] = field(default=(), name=PREFERRED)


class Affinity(Part):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


NO_AFFINITY = Affinity()


class Spread(Part):
    topology_key: TopologyKey
    max_skew: OneOrMore
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    label_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: OneOrMore = 1
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"


class Resources(Part):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Part):
    container_port: Port = 0
    host_port: Port = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class RestartRule(Part):
    action: str = ""


class Container(Part):
    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """Whether it, an init container, runs as long as the pod does."""
        return self.restart_policy == "Always"


class VolumeSource(Part):
    """What is read of any kind of volume."""

    claim_name: Name | None = None
    medium: str = ""
    read_only: bool = False  # of disks
    pd_name: str = ""
    volume_id: str = field(default="", name="volumeID")
    disk_uri: str = field(default="", name="diskURI")
    iqn: str = ""
    pool: str = "rbd"
    image: str = ""
    monitors: tuple[str, ...] = ()


# `name`, and the source by its kind, of which there is one.
Volume = dict[str, VolumeSource | str]


class Toleration(Part):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PodSpec(Part):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: Name = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = NO_AFFINITY
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resources: Resources = Resources()
    overhead: Quantities = {}
    host_network: bool = False
    host_users: bool = True
    image_pull_secrets: tuple[dict[str, Name], ...] = ()
    scheduler_name: str = "default-scheduler"
    priority: Priority = 0
    preemption_policy: str = ""
    scheduling_gates: Any = None
    resource_claims: Any = None
    scheduling_group: Any = None
    workload_ref: Any = None

    @property
    def unsupported(self) -> str | None:
        """A sentence about a field that the filters do not support, if it has one."""
        fields = {
            "resourceClaims": self.resource_claims,
            "schedulingGroup": self.scheduling_group,
            "workloadRef": self.workload_ref,
        }
        return next((f"{each} is not supported" for each in fields if fields[each]), None)

    @property
    def lasting(self) -> tuple[Container, ...]:
        """The containers and sidecars."""
        return *self.containers, *(each for each in self.init_containers if each.is_sidecar)


class Ran(Part):
    """When a container started, and when it ended."""

    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(Part):
    waiting: dict[str, str] | None = None
    running: Ran | None = None
    terminated: Ran | None = None

    @property
    def ran(self) -> Ran:
        """When the container ran, or runs since; empty before."""
        return self.running or self.terminated or _NOT_YET

    @property
    def may_wait_for_image(self) -> bool:
        """Whether the container is not created yet. With another reason to wait, such as
        ImagePullBackOff or CrashLoopBackOff, nothing is downloaded now."""
        if self.waiting is None:
            return self.running is None and self.terminated is None
        return self.waiting.get("reason", "") in ("", "ContainerCreating", "PodInitializing")


_NOT_YET = Ran()


class ContainerStatus(Part):
    name: str
    image_id: str = field(default="", name="imageID")
    restart_count: Count = 0
    state: ContainerState = ContainerState()
    resources: Resources | None = None
    allocated_resources: Quantities = {}


class Condition(Part):
    type: str = ""
    status: str = ""
    reason: str = ""


class PodCondition(Condition):
    last_transition_time: Time | None = None


class PodStatus(Part):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None
    allocated_resources: Quantities = {}
    resize: str = ""
    nominated_node_name: Name = ""
    start_time: Time | None = None
    pod_ip: str = field(default="", name="podIP")
    pod_ips: tuple[dict[str, str], ...] = field(default=(), name="podIPs")


class Pod(Named):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Part):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Part):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    pod_cidrs: tuple[str, ...] | None = field(default=(), name="podCIDRs")


class ListedImage(Part):
    names: tuple[str, ...] | None = ()  # Go writes null for none
    size_bytes: Annotated[int, Meta(ge=0, le=2**62)] = 0


class NodeStatus(Part):
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ListedImage, ...] = ()
    addresses: tuple[dict[str, str], ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Named):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

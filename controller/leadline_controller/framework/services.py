"""Which pods are replicas of one service, by their labels: a pod does not name its service."""

from collections.abc import Iterable

from leadline_controller.framework.model import Pod

TEMPLATE_HASH = "pod-template-hash"  # also at the end of the names of a Deployment's ReplicaSets
# Labels by which Kubernetes' controllers tell replicas, or their revisions, apart.
PER_REPLICA_LABELS = frozenset(
    {
        TEMPLATE_HASH,
        "controller-revision-hash",
        "pod-template-generation",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    }
)

Service = tuple[str, frozenset[tuple[str, str]]]


def service(namespace: str, labels: Iterable[tuple[str, str]]) -> Service | None:
    """The service of pods with this namespace and these labels; None if no label is shared by
    replicas, so that each such pod stands alone."""
    shared = frozenset(pair for pair in labels if pair[0] not in PER_REPLICA_LABELS)
    return (namespace, shared) if shared else None


def service_of(pod: Pod) -> Service | None:
    """The service that a pod is a replica of. See `service`."""
    return service(pod.namespace, pod.labels.items())


def service_name(service: Service) -> str:
    """namespace/label=value,... for people."""
    namespace, labels = service
    return f"{namespace}/{','.join(f'{key}={value}' for key, value in sorted(labels))}"


def owner_name(pod: Pod) -> str:
    """The name of the pod's controller, of a Deployment's pod the Deployment's; "" without one."""
    if pod.owner is None:
        return ""
    return pod.owner.name.removesuffix(f"-{pod.labels.get(TEMPLATE_HASH, '')}")


def workload_name(pod: Pod) -> str:
    """namespace/name that people know: `owner_name`, else the pod's own."""
    return f"{pod.namespace}/{owner_name(pod) or pod.name}"

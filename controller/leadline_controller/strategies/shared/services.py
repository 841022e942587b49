"""Which pods are replicas of one service: a pod itself names no service, its labels do."""

from collections.abc import Iterable

from leadline_controller.framework.model import Pod

# Labels that Kubernetes' controllers give each replica, or each generation of them.
_OF_ONE_REPLICA = frozenset(
    {
        "pod-template-hash",
        "controller-revision-hash",
        "pod-template-generation",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    }
)

Service = tuple[str, frozenset[tuple[str, str]]]


def service(namespace: str, labels: Iterable[tuple[str, str]]) -> Service | None:
    """The service of pods with this namespace and these labels; None for pods without labels
    of their own, each of which stands alone."""
    shared = frozenset(pair for pair in labels if pair[0] not in _OF_ONE_REPLICA)
    return (namespace, shared) if shared else None


def service_of(pod: Pod) -> Service | None:
    """The service that a pod is a replica of. See `service`."""
    return service(pod.namespace, pod.labels.items())

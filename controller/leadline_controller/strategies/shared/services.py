"""How many replicas of a service each node has."""

from leadline_controller.framework.assigned_pods import PodKind
from leadline_controller.framework.services import Service as Service
from leadline_controller.framework.services import service as service
from leadline_controller.framework.services import service_of as service_of
from leadline_controller.framework.view import ClusterView, Ints


def service_name(service: Service) -> str:
    """namespace/label=value,... for people."""
    namespace, labels = service
    return f"{namespace}/{','.join(f'{key}={value}' for key, value in sorted(labels))}"


def replicas_per_node(view: ClusterView, wanted: Service) -> Ints:
    """Replicas of the service on each node, shape (n,), without those that are being deleted: their
    successors are to take their places."""

    def is_replica(kind: PodKind) -> bool:
        return not kind.terminating and service(kind.namespace, kind.pairs) == wanted

    chosen = view.assigned_pods.of_kind(wanted, is_replica)
    return view.assigned_pods.per_node(chosen, len(view))

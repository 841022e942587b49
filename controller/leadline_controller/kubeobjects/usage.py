"""What the metrics API says that pods use (metrics.k8s.io/v1beta1, of metrics-server)."""

from leadline_controller.framework.ports import PodUsage
from leadline_controller.framework.quantity import MAX_AMOUNT, exact_quantity
from leadline_controller.kubeobjects.amounts import quantity_error
from leadline_controller.kubeobjects.schema import Named, Part, Quantity, Time
from leadline_controller.parsing.fields import FieldError, shown
from leadline_controller.parsing.typed import decode


class _Usage(Part):
    cpu: Quantity
    memory: Quantity


class _Container(Part):
    usage: _Usage


class _PodMetrics(Named):
    timestamp: Time
    containers: tuple[_Container, ...]


def read_usage(manifest: object) -> PodUsage | None:
    """What a PodMetrics says, the containers together; None if it is of none, or cannot be
    read."""
    try:
        read = decode(manifest, _PodMetrics, "podmetrics")
        cpu_cores = sum(_amount(each.usage.cpu) for each in read.containers)
        memory_bytes = sum(_amount(each.usage.memory) for each in read.containers)
    except FieldError:
        return None
    if not read.containers:
        return None
    metadata = read.metadata
    measured_s = read.timestamp.timestamp()
    return PodUsage(metadata.namespace, metadata.name, cpu_cores, memory_bytes, measured_s)


def _amount(quantity: Quantity) -> float:
    """Cores or bytes. CPU comes in billionths of a core, so that it is not worth to keep what was
    parsed, as `parse_quantity` does. Raises FieldError."""
    try:
        exact = exact_quantity(str(quantity))
    except ValueError as error:
        raise quantity_error(error, "usage") from None
    if not 0 <= exact <= MAX_AMOUNT:
        raise FieldError(f"usage: expected a quantity of 0 or more, got {shown(quantity)}")
    return float(exact)

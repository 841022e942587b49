"""What a pod asks for and may take at most, worked out of its manifest as Kubernetes does.

The rules that are easy to miss stand here: init containers count at their peak while
sidecars add, overhead, pod-level resources, and pods in the middle of a resize.
"""

from collections import Counter
from collections.abc import Iterator

from leadline_controller.core.fields import FieldError, Fields
from leadline_controller.core.model import CPU
from leadline_controller.core.quantity import MAX_AMOUNT, QuantityError, parse_quantity

_POD_LEVEL = ("cpu", "memory", "hugepages-")
Amounts = Counter[str]


def read_amounts(amounts: Fields) -> dict[str, int]:
    """A resource list ("cpu": "500m") in base units. Raises FieldError."""
    found = {}
    for name, value in amounts.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise amounts.error(name, "a quantity like 500m, 4Gi or 2")
        try:
            found[name] = parse_quantity(str(value), per_unit=1000 if name == CPU else 1)
        except ValueError as error:  # a QuantityError, or a number too long to print
            told = error if isinstance(error, QuantityError) else "far too large"
            raise FieldError(f"{amounts.at(name)}: {told}") from None
        if found[name] < 0:
            raise amounts.error(name, "a quantity of 0 or more")
    return found


def pod_requests(spec: Fields, status: Fields) -> dict[str, int]:
    """The pod's effective request: its containers and sidecars together, or the peak while
    an init container runs beside the sidecars started before it; pod-level requests in
    their place where there are some; plus overhead."""
    running = _running(status)
    infeasible = any(
        c.text("type") == "PodResizePending" and c.text("reason", "") == "Infeasible"
        for c in status.objects("conditions")
    )

    def asked(container: Fields) -> Amounts:
        held = running.get(container.text("name", ""), Counter())
        # A resize that can't be is not charged; one under way is charged the largest.
        return held if infeasible and held else _requests(container) | held

    total: Amounts = Counter()
    for container in spec.objects("containers"):
        total += asked(container)
    sidecars: Amounts = Counter()
    peak: Amounts = Counter()
    for container in spec.objects("initContainers"):
        if is_sidecar(container):
            sidecars += asked(container)
            peak |= sidecars
        else:
            peak |= asked(container) + sidecars
    total = (total + sidecars) | peak
    total = Counter({**total, **_pod_level(spec, total)}) + _overhead(spec)
    return {name: min(amount, MAX_AMOUNT) for name, amount in total.items()}


def pod_limits(spec: Fields) -> dict[str, int]:
    """What the whole pod may take; a resource that some container does not limit has none."""
    each = [read_amounts(c.object("resources").object("limits")) for c in _long_running(spec)]
    shared = set(each[0]).intersection(*each) if each else set()
    overhead = _overhead(spec)
    summed = {name: sum(limits[name] for limits in each) + overhead[name] for name in shared}
    return {**summed, **read_amounts(spec.object("resources").object("limits"))}


def is_sidecar(container: Fields) -> bool:
    """Whether an init container is one of those that run as long as the pod does."""
    return container.text("restartPolicy", "") == "Always"


def _long_running(spec: Fields) -> Iterator[Fields]:
    yield from spec.objects("containers")
    yield from (c for c in spec.objects("initContainers") if is_sidecar(c))


def _requests(container: Fields) -> Amounts:
    """As the API server defaults it: who states only a limit asks for that much."""
    resources = container.object("resources")
    limits = read_amounts(resources.object("limits"))
    return Counter({**limits, **read_amounts(resources.object("requests"))})


def _pod_level(spec: Fields, containers: Amounts) -> dict[str, int]:
    """Pod-level requests; where only a pod-level limit is stated, the containers' requests
    stand, and without those the limit."""
    resources = spec.object("resources")
    limits = read_amounts(resources.object("limits"))
    found = {name: amount for name, amount in limits.items() if name not in containers}
    found.update(read_amounts(resources.object("requests")))
    return {name: amount for name, amount in found.items() if name.startswith(_POD_LEVEL)}


def _overhead(spec: Fields) -> Amounts:
    return Counter(read_amounts(spec.object("overhead")))


def _running(status: Fields) -> dict[str, Amounts]:
    """By container: the larger of what the kubelet has set aside and what is in force."""
    return {
        container.text("name"): Counter(read_amounts(container.object("allocatedResources")))
        | Counter(read_amounts(container.object("resources").object("requests")))
        for kind in ("containerStatuses", "initContainerStatuses")
        for container in status.objects(kind)
    }

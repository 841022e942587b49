"""What a pod asks for and may take at most, worked out of its manifest as Kubernetes does.

The rules that are easy to miss stand here: init containers count at their peak while
sidecars add, overhead, pod-level resources, and pods in the middle of a resize.
"""

from collections import Counter
from collections.abc import Iterator

from leadline_controller.framework.model import CPU
from leadline_controller.framework.quantity import MAX_AMOUNT, QuantityError, parse_quantity
from leadline_controller.parsing.fields import FieldError, Fields

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
    infeasible = _is_infeasible(status)

    def asked(container: Fields) -> Amounts:
        return _charged(_requests(container), running.get(container.text("name", "")), infeasible)

    total: Amounts = Counter()
    for container in spec.objects("containers"):
        _add(total, asked(container))
    sidecars: Amounts = Counter()
    peak: Amounts = Counter()
    for container in spec.objects("initContainers"):
        # Sidecars only add up, so what a container does not name is at its peak at the end.
        if is_sidecar(container):
            _add(sidecars, asked(container))
        else:
            for name, amount in _requests(container).items():
                peak[name] = max(peak[name], amount + sidecars[name])
    total = (total + sidecars) | peak
    shared = _pod_level(spec, total)
    charged = _charged(shared, _in_force(status), infeasible)
    total = Counter({**total, **{name: charged[name] for name in shared}})
    return {name: min(amount, MAX_AMOUNT) for name, amount in (total + _overhead(spec)).items()}


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


def _add(total: Amounts, more: Amounts) -> None:
    """As +=, in time for what is added and not for all that there is."""
    for name, amount in more.items():
        total[name] += amount


def _requests(container: Fields) -> Amounts:
    """As the API server defaults it: who states only a limit asks for that much."""
    resources = container.object("resources")
    limits = read_amounts(resources.object("limits"))
    return Counter({**limits, **read_amounts(resources.object("requests"))})


def _pod_level(spec: Fields, containers: Amounts) -> Amounts:
    """Pod-level requests; where only a pod-level limit is stated, the containers' requests
    stand, and without those the limit."""
    resources = spec.object("resources")
    limits = read_amounts(resources.object("limits"))
    found = {name: amount for name, amount in limits.items() if name not in containers}
    found.update(read_amounts(resources.object("requests")))
    return Counter({k: amount for k, amount in found.items() if k.startswith(_POD_LEVEL)})


def _overhead(spec: Fields) -> Amounts:
    return Counter(read_amounts(spec.object("overhead")))


def _charged(asked: Amounts, held: Amounts | None, infeasible: bool) -> Amounts:
    """A resize that is under way is charged the largest of what is asked for and what is held;
    one that can't be is not charged."""
    if held is None:
        return asked
    return held if infeasible else asked | held


def _is_infeasible(status: Fields) -> bool:
    pending = (c for c in status.objects("conditions") if c.text("type") == "PodResizePending")
    return any(condition.text("reason", "") == "Infeasible" for condition in pending)


def _running(status: Fields) -> dict[str, Amounts]:
    """By container, what it holds; those of which the kubelet says nothing are left out."""
    return {
        container.text("name"): held
        for kind in ("containerStatuses", "initContainerStatuses")
        for container in status.objects(kind)
        if (held := _in_force(container)) is not None
    }


def _in_force(status: Fields) -> Amounts | None:
    """The larger of what the kubelet has set aside and what is in force; None: not said."""
    if not status.has("resources"):
        return None
    held = Counter(read_amounts(status.object("allocatedResources")))
    return held | Counter(read_amounts(status.object("resources").object("requests")))

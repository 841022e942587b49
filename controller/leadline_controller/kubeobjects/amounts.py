"""A pod's effective resource requests and limits, computed as Kubernetes does.

Init containers count at their peak while sidecars add up; overhead, pod-level resources and
pods in the middle of a resize count as well.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import TypeVar

from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    ContainerResources,
    PendingResize,
)
from leadline_controller.framework.quantity import MAX_AMOUNT, QuantityError, parse_quantity
from leadline_controller.parsing.fields import FieldError, Fields

_POD_LEVEL = ("cpu", "memory", "hugepages-")
_parse_cpu = partial(parse_quantity, per_unit=1000)
T = TypeVar("T")
Amounts = Counter[str]


def read_resource_list(amounts: Fields) -> dict[str, int]:
    """A resource list ("cpu": "500m") in base units. Raises FieldError."""
    found = {}
    for name in amounts.data:
        parse = _parse_cpu if name == CPU else parse_quantity
        found[name] = read_quantity(amounts, name, parse, "a quantity like 500m, 4Gi or 2")
        if found[name] < 0:
            raise amounts.error(name, "a quantity of 0 or more")
    return found


def read_quantity(amounts: Fields, name: str, parse: Callable[[str], T], expected: str) -> T:
    """The quantity in this field, parsed by `parse`. Raises FieldError."""
    value = amounts.raw(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise amounts.error(name, expected)
    try:
        return parse(str(value))
    except ValueError as error:  # a QuantityError, or a number too long to print
        reason = error if isinstance(error, QuantityError) else "far too large"
        raise FieldError(f"{amounts.at(name)}: {reason}") from None


def resize_reason(status: Fields) -> str:
    """Why the kubelet does not carry out a resize of the pod: "Deferred" or "Infeasible"; "" if
    there is none, or one that goes on."""
    reasons = [
        condition.text("reason", "")
        for condition in status.objects("conditions")
        if condition.text("type") == "PodResizePending"
    ]
    reasons.append(status.text("resize", ""))  # before Kubernetes 1.33
    return next((each for each in reasons if each in ("Deferred", "Infeasible")), "")


def pod_requests(spec: Fields, status: Fields, *, held: bool = False) -> dict[str, int]:
    """The pod's effective request, in base units. held: without a resize that is not carried out
    yet.

    This is the sum of its containers and sidecars or, where that is larger, the peak while an
    init container runs beside the sidecars started before it. Pod-level requests replace both.
    Overhead is added.
    """
    infeasible = held or resize_reason(status) == "Infeasible"
    allocated = {
        container.text("name"): _allocated(container)
        for kind in ("containerStatuses", "initContainerStatuses")
        for container in status.objects(kind)
    }

    def charged(container: Fields) -> Amounts:
        held = allocated.get(container.text("name", ""))
        return _during_resize(_requests(container), held, infeasible)

    total: Amounts = Counter()
    for container in spec.objects("containers"):
        total.update(charged(container))  # adds, in time proportional to what is added
    sidecars: Amounts = Counter()
    peak: Amounts = Counter()
    for container in spec.objects("initContainers"):
        # Sidecars only add up, so what a container does not name is at its peak at the end.
        if is_sidecar(container):
            sidecars.update(charged(container))
        else:
            for name, amount in _requests(container).items():
                peak[name] = max(peak[name], amount + sidecars[name])
    total = (total + sidecars) | peak
    # A pod-level limit is the default only for a resource that no container requests.
    stated = _requests(spec, taken=total).items()
    pod_level = Counter({name: amount for name, amount in stated if name.startswith(_POD_LEVEL)})
    in_force = _during_resize(pod_level, _allocated(status), infeasible)
    total = Counter({**total, **{name: in_force[name] for name in pod_level}})
    total += Counter(read_resource_list(spec.object("overhead")))
    return {name: min(amount, MAX_AMOUNT) for name, amount in total.items()}


def read_resize(spec: Fields, status: Fields) -> PendingResize | None:
    """The resize that the pod's kubelet cannot carry out; None without one. Raises FieldError."""
    reason = resize_reason(status)
    if not reason:
        return None
    containers = []
    for container in lasting_containers(spec):
        resources = container.object("resources")
        named = {
            kind: {name: str(resources.object(kind).raw(name)) for name in (CPU, MEMORY)}
            for kind in ("requests", "limits")
        }
        given = {
            kind: {name: text for name, text in amounts.items() if resources.object(kind).has(name)}
            for kind, amounts in named.items()
        }
        name, sidecar = container.text("name", ""), is_sidecar(container)
        containers.append(ContainerResources(name, **given, is_sidecar=sidecar))
    before = {**pod_requests(spec, status, held=True), PODS: 1}
    after = {**pod_requests(spec, Fields({}, status.path)), PODS: 1}
    return PendingResize(reason, before, after, tuple(containers))


def pod_limits(spec: Fields) -> dict[str, int]:
    """The pod's limits, in base units; a resource that some container does not limit has none."""
    each = [
        read_resource_list(container.object("resources").object("limits"))
        for container in lasting_containers(spec)
    ]
    limited = set(each[0]).intersection(*each) if each else set()
    overhead = Counter(read_resource_list(spec.object("overhead")))
    summed = {name: sum(limits[name] for limits in each) + overhead[name] for name in limited}
    return {**summed, **read_resource_list(spec.object("resources").object("limits"))}


def lasting_containers(spec: Fields) -> Iterator[Fields]:
    """The containers and sidecars."""
    yield from spec.objects("containers")
    yield from filter(is_sidecar, spec.objects("initContainers"))


def is_sidecar(container: Fields) -> bool:
    """Whether an init container runs as long as the pod does."""
    return container.text("restartPolicy", "") == "Always"


def _requests(owner: Fields, taken: Container[str] = ()) -> Amounts:
    """The requests of a container or pod. The API server uses its limits as defaults, except for
    the resources in `taken`."""
    resources = owner.object("resources")
    limits = read_resource_list(resources.object("limits"))
    defaults = {name: amount for name, amount in limits.items() if name not in taken}
    return Counter({**defaults, **read_resource_list(resources.object("requests"))})


def _during_resize(desired: Amounts, allocated: Amounts | None, infeasible: bool) -> Amounts:
    """The larger of what is desired and what is allocated; an infeasible resize does not count."""
    if allocated is None:
        return desired
    return allocated if infeasible else desired | allocated


def _allocated(status: Fields) -> Amounts | None:
    """The larger of what the kubelet has allocated and what is in force; None when the status of
    the container or pod does not tell."""
    if not status.has("resources"):
        return None
    allocated = Counter(read_resource_list(status.object("allocatedResources")))
    return allocated | Counter(read_resource_list(status.object("resources").object("requests")))

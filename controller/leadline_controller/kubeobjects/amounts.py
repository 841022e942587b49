"""A pod's effective resource requests and limits, computed as Kubernetes does.

Init containers count at their peak while sidecars add up; overhead, pod-level resources and
pods in the middle of a resize count as well.
"""

from collections.abc import Container

from leadline_controller.framework.model import CPU, MEMORY, PODS, ContainerResources, PendingResize
from leadline_controller.framework.quantity import MAX_AMOUNT, QuantityError, parse_quantity
from leadline_controller.kubeobjects.schema import PodSpec, PodStatus, Quantities, Resources
from leadline_controller.parsing.fields import FieldError, shown

Amounts = dict[str, int]  # base units by resource
_POD_LEVEL = ("cpu", "memory", "hugepages-")


def read_amounts(quantities: Quantities, path: str) -> Amounts:
    """A resource list ("cpu": "500m") in base units. Raises FieldError."""
    found = {}
    for name, value in quantities.items():
        try:
            found[name] = parse_quantity(str(value), per_unit=1000 if name == CPU else 1)
        except ValueError as error:
            raise quantity_error(error, f"{path}.{name}") from None
        if found[name] < 0:
            raise FieldError(f"{path}.{name}: expected a quantity of 0 or more, got {shown(value)}")
    return found


def quantity_error(error: ValueError, path: str) -> FieldError:
    """What to raise for this error of a quantity's parser, or of str() of a long number."""
    return FieldError(f"{path}: {error if isinstance(error, QuantityError) else 'far too large'}")


def resize_reason(status: PodStatus) -> str:
    """Why the kubelet does not carry out a resize of the pod: "Deferred" or "Infeasible"; "" if
    there is none, or one that goes on."""
    reasons = [each.reason for each in status.conditions if each.type == "PodResizePending"]
    reasons.append(status.resize)  # before Kubernetes 1.33
    return next((each for each in reasons if each in ("Deferred", "Infeasible")), "")


def pod_requests(spec: PodSpec, status: PodStatus, path: str, *, held: bool = False) -> Amounts:
    """The pod's effective request, in base units. path: of the pod. held: without a resize that is
    not carried out yet. Raises FieldError.

    This is the sum of its containers and sidecars or, where that is larger, the peak while an
    init container runs beside the sidecars started before it. Pod-level requests replace both.
    Overhead is added.
    """
    infeasible = held or resize_reason(status) == "Infeasible"
    in_force: dict[str, Amounts | None] = {
        each.name: _in_force(each.resources, each.allocated_resources, f"{path}.status.{kind}[{i}]")
        for kind, statuses in (
            ("containerStatuses", status.container_statuses),
            ("initContainerStatuses", status.init_container_statuses),
        )
        for i, each in enumerate(statuses)
    }
    total: Amounts = {}
    for i, container in enumerate(spec.containers):
        desired = _requests(container.resources, f"{path}.spec.containers[{i}].resources")
        _add(total, _during_resize(desired, in_force.get(container.name), infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for i, container in enumerate(spec.init_containers):
        # Sidecars only add up, so what a container does not name is at its peak at the end.
        desired = _requests(container.resources, f"{path}.spec.initContainers[{i}].resources")
        if container.is_sidecar:
            _add(sidecars, _during_resize(desired, in_force.get(container.name), infeasible))
        else:
            peak = _larger(peak, {name: a + sidecars.get(name, 0) for name, a in desired.items()})
    _add(total, sidecars)
    total = _larger(total, peak)
    # A pod-level limit is the default only for a resource that no container requests.
    taken = {name for name, amount in total.items() if amount}
    stated = _requests(spec.resources, f"{path}.spec.resources", taken)
    level = {name: each for name, each in stated.items() if name.startswith(_POD_LEVEL)}
    if level:
        allocated = _in_force(status.resources, status.allocated_resources, f"{path}.status")
        now = _during_resize(level, allocated, infeasible)
        total |= {name: now.get(name, 0) for name in level}
    _add(total, read_amounts(spec.overhead, f"{path}.spec.overhead"))
    return {name: min(amount, MAX_AMOUNT) for name, amount in total.items() if amount}


def read_resize(spec: PodSpec, status: PodStatus, path: str) -> PendingResize | None:
    """The resize that the pod's kubelet cannot carry out; None without one. Raises FieldError."""
    reason = resize_reason(status)
    if not reason:
        return None
    containers = []
    for container in spec.lasting:
        requests, limits = (
            {name: str(amounts[name]) for name in (CPU, MEMORY) if name in amounts}
            for amounts in (container.resources.requests, container.resources.limits)
        )
        containers.append(
            ContainerResources(container.name, requests, limits, container.is_sidecar)
        )
    before = {**pod_requests(spec, status, path, held=True), PODS: 1}
    after = {**pod_requests(spec, PodStatus(), path), PODS: 1}
    return PendingResize(reason, before, after, tuple(containers))


def pod_limits(spec: PodSpec, path: str) -> Amounts:
    """The pod's limits, in base units; a resource that some container does not limit has none."""
    each = [read_amounts(of.resources.limits, f"{path}.spec: limits") for of in spec.lasting]
    limited = set(each[0]).intersection(*each) if each else set()
    overhead = read_amounts(spec.overhead, f"{path}.spec.overhead")
    summed = {name: sum(of[name] for of in each) + overhead.get(name, 0) for name in limited}
    return {**summed, **read_amounts(spec.resources.limits, f"{path}.spec.resources.limits")}


def _requests(resources: Resources, path: str, taken: Container[str] = ()) -> Amounts:
    """The requests of a container or pod. The API server uses its limits as defaults, except for
    the resources in `taken`."""
    limits = read_amounts(resources.limits, f"{path}.limits") if resources.limits else {}
    defaults = {name: amount for name, amount in limits.items() if name not in taken}
    return {**defaults, **read_amounts(resources.requests, f"{path}.requests")}


def _during_resize(desired: Amounts, in_force: Amounts | None, infeasible: bool) -> Amounts:
    """The larger of what is desired and what is in force; an infeasible resize does not count."""
    if in_force is None:
        return desired
    return in_force if infeasible else _larger(desired, in_force)


def _in_force(resources: Resources | None, allocated: Quantities, path: str) -> Amounts | None:
    """The larger of what the kubelet has allocated and what is in force; None when the status of
    the container or pod does not tell."""
    if resources is None:
        return None
    return _larger(
        read_amounts(allocated, f"{path}.allocatedResources"),
        read_amounts(resources.requests, f"{path}.resources.requests"),
    )


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount

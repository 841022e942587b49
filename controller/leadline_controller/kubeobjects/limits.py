"""How much a pod may demand of its node. Anybody who may create pods writes these lists, the API
server takes 1.5 MB of them, and each try evaluates them all."""

from collections.abc import Iterator

from leadline_controller.framework.demands import AffinityTerm
from leadline_controller.kubeobjects.demands import PERSISTENT
from leadline_controller.parsing.fields import Fields

MOST_DEMANDS = 500
MOST_VALUES = 10_000
MOST_VOLUMES = 100
_LIMITS = {
    MOST_DEMANDS: (
        "affinity terms, spread constraints, label expressions, tolerations and resources"
    ),
    MOST_VALUES: "labels, values in label expressions and ports",
}
_TOO_MANY = "more than Leadline evaluates"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def excess(metadata: Fields, spec: Fields) -> str | None:
    """What a pod has too much of, as one sentence; None where it can be evaluated. Stops counting
    at the limits. Raises FieldError."""
    totals = dict.fromkeys(_LIMITS, 0)
    for limit, more in _weights(metadata, spec):
        totals[limit] += more
        if totals[limit] > limit:
            return f"the pod has more than {limit} {_LIMITS[limit]}, {_TOO_MANY}"
    return None


def excess_volumes(spec: Fields) -> str | None:
    """The same for the claims and disks that it brings. Raises FieldError."""
    count = 0
    for volume in spec.objects("volumes"):
        count += any(volume.has(source) for source in PERSISTENT)
        if count > MOST_VOLUMES:
            return f"the pod has more than {MOST_VOLUMES} claims and disks, {_TOO_MANY}"
    return None


def read_aversions(spec: Fields) -> tuple[AffinityTerm, ...]:
    """What stands for the anti-affinity terms of a pod that has too many and is on a node
    already: it wants no other pod in any of their topology domains. Raises FieldError."""
    terms = spec.object("affinity").object("podAntiAffinity").objects(_REQUIRED)
    labels = dict.fromkeys(term.text("topologyKey", "") for term in terms)
    return tuple(AffinityTerm(label, (), frozenset(), ()) for label in labels)


def _weights(metadata: Fields, spec: Fields) -> Iterator[tuple[int, int]]:
    """The limit that a part of the pod counts against, and how much it adds."""
    yield MOST_VALUES, _length(metadata, "labels")
    yield MOST_DEMANDS, _length(spec, "nodeSelector") + _length(spec, "tolerations")
    affinity = spec.object("affinity")
    for term in affinity.object("nodeAffinity").object(_REQUIRED).objects("nodeSelectorTerms"):
        yield MOST_DEMANDS, 1
        for kind in ("matchExpressions", "matchFields"):
            yield from _expressions(term, kind)
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in affinity.object(kind).objects(_REQUIRED):
            yield from _selecting(term)
    for constraint in spec.objects("topologySpreadConstraints"):
        yield from _selecting(constraint)
    resources: set[str] = set()
    for kind in ("containers", "initContainers"):
        for container in spec.objects(kind):
            yield MOST_VALUES, _length(container, "ports")
            before = len(resources)
            for amounts in ("requests", "limits"):
                resources.update(dict(container.object("resources").object(amounts).items()))
            yield MOST_DEMANDS, len(resources) - before


def _selecting(term: Fields) -> Iterator[tuple[int, int]]:
    """A term with its selectors."""
    keys = _length(term, "matchLabelKeys") + _length(term, "mismatchLabelKeys")
    yield MOST_DEMANDS, 1 + keys + _length(term, "namespaces")
    for name in ("labelSelector", "namespaceSelector"):
        selector = term.object(name)
        yield MOST_DEMANDS, _length(selector, "matchLabels")
        yield from _expressions(selector, "matchExpressions")


def _expressions(parent: Fields, name: str) -> Iterator[tuple[int, int]]:
    for expression in parent.objects(name):
        yield MOST_DEMANDS, 1
        yield MOST_VALUES, _length(expression, "values")


def _length(parent: Fields, name: str) -> int:
    value = parent.raw(name)
    return len(value) if isinstance(value, list | dict) else 0

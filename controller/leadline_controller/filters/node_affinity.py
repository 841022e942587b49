"""NodeAffinity: nodeSelector and required node affinity."""

import re
from collections.abc import Mapping

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import Node, Pod, Requirement
from leadline_controller.core.view import ClusterView

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
Terms = tuple[tuple[Requirement, ...], ...]


def node_affinity(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes with all labels of the nodeSelector that also match any one of the
    required terms; a term without expressions matches none, as in Kubernetes."""
    selector, terms = pod.node_selector, pod.required_affinity
    key = ("affinity", tuple(sorted(selector.items())), terms)
    passes = view.table.mask(
        key, lambda node: _selected(node, selector) and (terms is None or _any_term(node, terms))
    )

    def reason(i: int) -> str:
        if not _selected(view.nodes[i], selector):
            wanted = ", ".join(f"{name}={value}" for name, value in sorted(selector.items()))
            return f"the nodeSelector wants {wanted}"
        return "no term of the required node affinity matches"

    return Verdict(passes, reason)


def _selected(node: Node, selector: Mapping[str, str]) -> bool:
    return all(node.labels.get(name) == value for name, value in selector.items())


def _any_term(node: Node, terms: Terms) -> bool:
    return any(term and all(_matches(node, r) for r in term) for term in terms)


def _matches(node: Node, requirement: Requirement) -> bool:
    value = node.name if requirement.on_name else node.labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(value, requirement)


def _compares(value: str | None, requirement: Requirement) -> bool:
    """Gt and Lt, over integers; anything else does not match."""
    bound = requirement.values[0] if len(requirement.values) == 1 else ""
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    have, limit = int(value), int(bound)
    return have > limit if requirement.operator == "Gt" else have < limit

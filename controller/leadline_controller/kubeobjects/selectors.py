"""Makes selectors of the label and node selectors in manifests, and writes them."""

from collections.abc import Iterable, Mapping
from typing import Any

from leadline_controller.framework.selectors import Requirement, Selector, Terms
from leadline_controller.kubeobjects import schema
from leadline_controller.kubeobjects.names import Names
from leadline_controller.parsing.fields import FieldError

Manifest = dict[str, Any]


def without_empty(fields: Mapping[str, Any]) -> Manifest:
    """The fields that say something: none that is None, empty or false."""
    return {
        key: value
        for key, value in fields.items()
        if value is not None and value is not False and value not in ("", {}, [])
    }


def read_selector(selector: schema.Selector | None, path: str) -> Selector | None:
    """A label selector; None selects nothing. Raises FieldError."""
    if selector is None:
        return None
    found = [Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    found += [Requirement(e.key, e.operator, e.values) for e in selector.match_expressions]
    for requirement in found:
        if requirement.operator in ("Gt", "Lt") or not requirement.is_well_formed():
            invalid = f"{requirement.key} {requirement.operator} {list(requirement.values)}"
            raise FieldError(
                f"{path}: expected a label selector, got the invalid requirement {invalid[:80]}"
            )
    return tuple(found)


def read_terms(selector: schema.NodeSelector | None) -> Terms | None:
    """The terms of a node selector; None without one."""
    return None if selector is None else tuple(map(read_term, selector.node_selector_terms))


def read_term(term: schema.Selector) -> tuple[Requirement, ...]:
    """One term of a node selector."""
    return (
        *(Requirement(e.key, e.operator, e.values) for e in term.match_expressions),
        *(Requirement(e.key, e.operator, e.values, on_name=True) for e in term.match_fields),
    )


def write_selector(selector: Selector, names: Names) -> Manifest:
    """A label selector. One value that must be comes under matchLabels, as far as that keeps the
    order."""
    labels: dict[str, str] = {}
    rest = list(selector)
    while rest and rest[0].operator == "In" and len(rest[0].values) == 1:
        if rest[0].key in labels:
            break
        first = rest.pop(0)
        labels[first.key] = first.values[0]
    expressions = [_requirement(each, names) for each in rest]
    return without_empty({"matchLabels": names.labels(labels), "matchExpressions": expressions})


def write_term(term: Iterable[Requirement], names: Names) -> Manifest:
    """A term of a node selector."""
    each = list(term)
    return without_empty(
        {
            "matchExpressions": [_requirement(r, names) for r in each if not r.on_name],
            "matchFields": [_requirement(r, names) for r in each if r.on_name],
        }
    )


def _requirement(each: Requirement, names: Names) -> Manifest:
    if each.on_name:
        values = [names("node", value) for value in each.values]
        return {"key": each.key, "operator": each.operator, "values": values}
    if each.operator in ("Gt", "Lt"):
        names.compared(each.key)
    values = [names.value(each.key, value) for value in each.values]
    made = {"key": names.key(each.key), "operator": each.operator, "values": values}
    return made if values else {"key": made["key"], "operator": each.operator}

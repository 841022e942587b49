"""Makes selectors of the label and node selectors in manifests."""

from leadline_controller.framework.selectors import Requirement, Selector, Terms
from leadline_controller.kubeobjects import schema
from leadline_controller.parsing.fields import FieldError


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

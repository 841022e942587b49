"""Reads label selectors and node selector terms from manifests."""

from leadline_controller.framework.selectors import Requirement, Selector, Terms
from leadline_controller.parsing.fields import FieldError, Fields

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")


def read_selector(parent: Fields, name: str) -> Selector | None:
    """A label selector; None when it is missing and selects nothing. Raises FieldError."""
    if not parent.has(name):
        return None
    selector = parent.object(name)
    found = [Requirement(k, "In", (v,)) for k, v in selector.text_map("matchLabels").items()]
    for expression in selector.objects("matchExpressions"):
        operator = expression.choice("operator", *_LABEL_OPERATORS)
        found.append(Requirement(expression.text("key"), operator, expression.texts("values")))
    for requirement in found:
        if not requirement.is_well_formed():
            invalid = f"{requirement.key} {requirement.operator} {list(requirement.values)}"
            raise FieldError(
                f"{parent.at(name)}: expected a label selector, "
                f"got the invalid requirement {invalid[:80]}"
            )
    return tuple(found)


def read_terms(selector: Fields) -> Terms:
    """The terms of a node selector. Raises FieldError."""
    return tuple(map(read_term, selector.objects("nodeSelectorTerms")))


def read_term(term: Fields) -> tuple[Requirement, ...]:
    """One term of a node selector. Raises FieldError."""
    return tuple(
        _requirement(expression, on_name=kind == "matchFields")
        for kind in ("matchExpressions", "matchFields")
        for expression in term.objects(kind)
    )


def _requirement(expression: Fields, *, on_name: bool) -> Requirement:
    key, operator = expression.text("key"), expression.choice("operator", *_NODE_OPERATORS)
    if on_name and key != "metadata.name":
        raise expression.error("key", "metadata.name, the only field there is")
    return Requirement(key, operator, expression.texts("values"), on_name)

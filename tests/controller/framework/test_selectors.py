"""Label selectors against Kubernetes' rules."""

from typing import Any

import pytest
from leadline_controller.framework.selectors import Requirement, selects
from leadline_controller.kubeobjects.selectors import read_selector, read_terms
from leadline_controller.parsing.fields import FieldError, Fields

LABELS = {"app": "web", "cores": "4"}


def expressing(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "x"}}, False),
        (expressing("app", "In", "db", "web"), True),
        (expressing("app", "NotIn", "web"), False),
        (expressing("tier", "NotIn", "x"), True),
        (expressing("app", "Exists"), True),
        (expressing("tier", "Exists"), False),
        (expressing("tier", "DoesNotExist"), True),
        ({"matchLabels": {"app": "web"}, **expressing("cores", "DoesNotExist")}, False),
    ],
)
def test_a_label_selector(selector: dict[str, Any] | None, matches: bool) -> None:
    read = read_selector(Fields({"labelSelector": selector}, "term"), "labelSelector")
    assert selects(read, LABELS) is matches


@pytest.mark.parametrize(
    "selector",
    [
        expressing("app", "In"),
        expressing("app", "Exists", "web"),
        expressing("not a key", "Exists"),
        expressing("app", "In", "not a value!"),
        {"matchLabels": {"app": "-web"}},
        {"matchLabels": {"example.com/": "web"}},
        {"matchLabels": {"Example.com/app": "web"}},
        {"matchLabels": {"app": "x" * 64}},
    ],
)
def test_an_invalid_selector_is_an_error(selector: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match=r"term\.labelSelector: expected a label selector"):
        read_selector(Fields({"labelSelector": selector}, "term"), "labelSelector")


@pytest.mark.parametrize(
    ("requirement", "well_formed"),
    [
        (Requirement("example.com/app", "In", ("",)), True),
        (Requirement("a" * 63, "Exists"), True),
        (Requirement("a" * 64, "Exists"), False),
        (Requirement("a" * 254 + "/app", "Exists"), False),
        (Requirement("cores", "Gt", ("4",)), True),
        (Requirement("cores", "Gt", ("four",)), False),
        (Requirement("cores", "Lt", ("4", "5")), False),
        (Requirement("cores", "Lt", (str(2**63),)), False),
        (Requirement("metadata.name", "NotIn", ("n1",), on_name=True), True),
        (Requirement("metadata.name", "In", ("n1", "n2"), on_name=True), False),
        (Requirement("metadata.name", "Exists", (), on_name=True), False),
    ],
)
def test_a_requirement_is_well_formed_if_kubernetes_accepts_it(
    requirement: Requirement, well_formed: bool
) -> None:
    assert requirement.is_well_formed() is well_formed


def test_node_selector_terms_keep_their_order_and_mark_match_fields() -> None:
    terms = [
        expressing("zone", "In", "a"),
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    assert read_terms(Fields({"nodeSelectorTerms": terms}, "affinity")) == (
        (Requirement("zone", "In", ("a",)),),
        (Requirement("metadata.name", "In", ("n1",), on_name=True),),
        (),
    )

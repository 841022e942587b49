"""Label selectors against Kubernetes' rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.selectors import Requirement, parse_selector, selects
from leadline_controller.kubeobjects.schema import NodeSelector, Selector
from leadline_controller.kubeobjects.selectors import read_selector, read_terms
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

from tests.support.examples import examples

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
    made = None if selector is None else decode(selector, Selector, "")
    read = read_selector(made, "labelSelector")
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
        read_selector(decode(selector, Selector, ""), "term.labelSelector")


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
    assert read_terms(decode({"nodeSelectorTerms": terms}, NodeSelector, "")) == (
        (Requirement("zone", "In", ("a",)),),
        (Requirement("metadata.name", "In", ("n1",), on_name=True),),
        (),
    )


WORDS = st.from_regex(r"[a-z]([-a-z0-9.]{0,5}[a-z0-9])?", fullmatch=True)
SEVERAL = st.lists(WORDS, min_size=1, max_size=3).map(tuple)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, WORDS, st.sampled_from(["In", "NotIn"]), SEVERAL),
    st.builds(Requirement, WORDS, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        Requirement,
        WORDS,
        st.sampled_from(["Gt", "Lt"]),
        st.integers(0, 99).map(lambda n: (str(n),)),
    ),
)


def written(each: Requirement, space: str, equals: str) -> str:
    """As somebody types it for kubectl's -l."""
    several, one = f"({space}{f'{space},{space}'.join(each.values)})", "".join(each.values[:1])
    match each.operator:
        case "In" | "NotIn" if len(each.values) == 1 and equals:
            return f"{each.key}{space}{'!=' if each.operator == 'NotIn' else equals}{space}{one}"
        case "In" | "NotIn":
            return f"{each.key} {each.operator.lower()} {several}"
        case "Gt" | "Lt":
            return f"{each.key}{space}{'>' if each.operator == 'Gt' else '<'}{space}{one}"
    return f"{'!' if each.operator == 'DoesNotExist' else ''}{each.key}"


@examples(200)
@given(
    st.lists(REQUIREMENTS, max_size=3), st.sampled_from(["", " "]), st.sampled_from(["", "=", "=="])
)
def test_a_selector_is_read_as_kubectl_writes_it(
    selector: list[Requirement], space: str, equals: str
) -> None:
    text = f",{space}".join(written(each, space, equals) for each in selector)
    assert parse_selector(text) == tuple(selector)


@pytest.mark.parametrize(
    "text", [",", "a,", "a in b", "a in (b", "=b", "a=b=c", "a b", "!", "a>x", "ä=b", "a" * 1001]
)
def test_what_is_no_selector_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*expected [^\n]*$"):
        parse_selector(text)

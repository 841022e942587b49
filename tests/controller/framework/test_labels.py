"""The label index finds the same sets as a loop over all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.assigned_pods import LabelIndex
from leadline_controller.framework.node_table import NodeTable, Topology
from leadline_controller.framework.selectors import Requirement, selects

from tests.controller.builders import node

KEYS, VALUES = ("app", "tier", "zone"), ("", "a", "b", "7", "-3")
label_sets = st.lists(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=8)
several = st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple)
requirements = st.builds(
    Requirement, st.sampled_from((*KEYS, "other")), st.sampled_from(("In", "NotIn")), several
) | st.builds(
    Requirement, st.sampled_from((*KEYS, "other")), st.sampled_from(("Exists", "DoesNotExist"))
)
numbers = st.builds(
    Requirement,
    st.just("app"),
    st.sampled_from(("Gt", "Lt")),
    st.sampled_from((("5",), ("-9223372036854775808",), ("9223372036854775808",), ("x",), ())),
)


@given(label_sets, st.lists(requirements, max_size=4))
def test_the_index_selects_the_same_sets_as_a_loop(
    labels: list[dict[str, str]], selector: list[Requirement]
) -> None:
    found = LabelIndex(labels).selected(tuple(selector)).tolist()
    assert found == [selects(tuple(selector), each) for each in labels]


@given(st.lists(st.none() | st.sampled_from((*VALUES, str(2**63 - 1), str(2**63)))), numbers)
def test_integers_compare_the_same_as_in_a_loop(
    values: list[str | None], requirement: Requirement
) -> None:
    assert Topology(values).where(requirement).tolist() == [*map(requirement.holds, values)]


@given(label_sets, requirements | numbers)
def test_nodes_are_selected_the_same_as_in_a_loop(
    labels: list[dict[str, str]], requirement: Requirement
) -> None:
    table = NodeTable([node(f"n{i}", labels=each) for i, each in enumerate(labels)])
    held = [requirement.holds(each.get(requirement.key)) for each in labels]
    assert np.array_equal(table.selected((requirement,)), np.array(held, dtype=np.bool_))


def test_an_index_can_grow() -> None:
    index = LabelIndex([{"app": "a"}])
    assert index.selected((Requirement("app", "Exists"),)).tolist() == [True]
    index.add({"app": "b"})
    index.add({})
    assert index.selected((Requirement("app", "NotIn", ("a",)),)).tolist() == [False, True, True]
    assert len(index) == 3

"""Profiles by node and class, and contention (Eq. 18 of the DACS paper)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.node_table import CLASS_LABEL, NodeTable
from leadline_controller.strategies.shared.delays import contention_s, profiled_ms, profiling_ms

from tests.controller.builders import node, view

NAN = np.nan
TABLE = NodeTable(
    [
        node("n1"),
        node("n2", labels={CLASS_LABEL: "pi4"}),
        node("n3", labels={CLASS_LABEL: "pi5"}),
        node("n4", labels={CLASS_LABEL: "pi4"}),
    ]
)


@pytest.mark.parametrize(
    ("profile_ms", "known", "with_slowest"),
    [
        ({"n1": 10}, [10, NAN, NAN, NAN], [10, 10, 10, 10]),
        ({"pi4": 30, "pi5": 20}, [NAN, 30, 20, 30], [30, 30, 20, 30]),
        # The name takes precedence over the class, in any order.
        ({"n4": 1, "pi4": 30}, [NAN, 30, NAN, 1], [30, 30, 30, 1]),
        ({"pi4": 30, "n4": 1}, [NAN, 30, NAN, 1], [30, 30, 30, 1]),
        # A time of nothing at all is known.
        ({"pi5": 0, "n1": 4}, [4, NAN, 0, NAN], [4, 4, 0, 4]),
        # A profile's unknown nodes still count for the slowest time.
        ({"elsewhere": 70, "n1": 10}, [10, NAN, NAN, NAN], [10, 70, 70, 70]),
    ],
)
def test_a_profile_applies_by_name_else_by_class(
    profile_ms: dict[str, float], known: list[float], with_slowest: list[float]
) -> None:
    np.testing.assert_array_equal(profiled_ms(TABLE, profile_ms), known)
    worst = profiling_ms(view(TABLE.nodes), profile_ms, np.arange(4), "worst").values
    np.testing.assert_array_equal(worst, with_slowest)


def test_nodes_without_classes_are_known_by_name() -> None:
    table = NodeTable([node("n1"), node("pi4")])
    np.testing.assert_array_equal(profiled_ms(table, {"pi4": 5}), [NAN, 5])
    assert table.topology(CLASS_LABEL) is table.topology(CLASS_LABEL)


NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(
    classes=st.dictionaries(NAMES, st.none() | NAMES, min_size=1),
    profile_ms=st.dictionaries(NAMES, st.floats(0, 1e6)),
)
def test_the_columns_equal_the_values_of_each_node(
    classes: dict[str, str | None], profile_ms: dict[str, float]
) -> None:
    nodes = [
        node(name, labels={} if class_ is None else {CLASS_LABEL: class_})
        for name, class_ in classes.items()
    ]
    one_by_one = [
        profile_ms.get(name, NAN if class_ is None else profile_ms.get(class_, NAN))
        for name, class_ in classes.items()
    ]
    np.testing.assert_array_equal(profiled_ms(NodeTable(nodes), profile_ms), one_by_one)


def test_eq_18_contention() -> None:
    placed = np.array([0, 1, 2, 5, 10**6])
    gamma = contention_s(placed, beta_cs=0.1, beta_rc=0.01)
    assert gamma[:4].tolist() == pytest.approx([0.0, 0.11, 0.12, 0.26])
    assert math.isfinite(gamma[4])
    assert contention_s(placed, 0.1, 0.0).tolist() == [0.0, 0.1, 0.1, 0.1, 0.1]

"""Assigned pods as columns, and node labels as topologies."""

import numpy as np
import pytest
from leadline_controller.framework.assigned_pods import AssignedPods, Interner, kind_of
from leadline_controller.framework.model import AffinityTerm, Requirement
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.selectors import selects

from tests.controller.builders import node, pod

WEB = (Requirement("app", "In", ("web",)),)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}


def test_pods_with_the_same_labels_are_one_kind() -> None:
    one = kind_of(pod("a", labels={"app": "web", "x": "y"}))
    assert one == kind_of(pod("b", labels={"x": "y", "app": "web"}))
    assert one != kind_of(pod("a", labels={"app": "web"}))
    assert one != kind_of(pod("a", labels={"app": "web", "x": "y"}, namespace="blue"))


def test_each_value_is_tested_once() -> None:
    asked: list[int] = []

    def is_even(value: int) -> bool:
        asked.append(value)
        return value % 2 == 0

    numbers: Interner[int] = Interner()
    assert [numbers.number(value) for value in (4, 7, 4)] == [0, 1, 0]
    assert numbers.where("even", is_even, numbers.values).tolist() == [True, False]
    numbers.number(8)
    assert numbers.where("even", is_even, numbers.values).tolist() == [True, False, True]
    assert asked == [4, 7, 8]


def test_an_answer_is_kept_as_it_is() -> None:
    """Of 10,000 kinds and 1,024 questions, bytes are 10 MB, and numbers 80 MB."""
    numbers: Interner[int] = Interner()
    numbers.number(1)
    first = numbers.where("yes", lambda _: True, numbers.values)
    assert first.dtype == np.bool_
    assert numbers.where("yes", lambda _: True, numbers.values) is first


def test_the_cache_is_bounded() -> None:
    numbers: Interner[int] = Interner()
    numbers.number(1)
    for i in range(5000):
        numbers.where(i, lambda _: True, numbers.values)
    assert len(numbers._found) <= 1024


def test_assigned_pods_are_counted_by_node() -> None:
    web, db = pod("w", labels={"app": "web"}), pod("d", labels={"app": "db"}, priority=7)
    assigned_pods = AssignedPods().with_pods([(web, 0), (db, 2), (web, 2)])
    kinds = assigned_pods.kinds
    chosen = kinds.where("web", lambda kind: selects(WEB, kind.labels), kinds.values)
    chosen = chosen[assigned_pods.kind]
    assert chosen.tolist() == [True, False, True]
    assert assigned_pods.per_node(chosen, 4).tolist() == [1, 0, 1, 0]
    assert assigned_pods.priority.tolist() == [0, 7, 0]


def test_adding_a_pod_does_not_change_the_others() -> None:
    before = AssignedPods().with_pods([(pod("a"), 0)])
    after = before.with_pods([(pod("b", labels={"x": "y"}), 1)])
    assert (before.node.tolist(), after.node.tolist()) == ([0], [0, 1])


def test_anti_affinity_is_indexed_by_topology_key() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    guard = pod(
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    )
    assigned_pods = AssignedPods().with_pods([(pod(), 0), (guard, 1)])
    assert assigned_pods.anti_affinities.topology_keys == {"zone"}
    wanted = AffinityTerm("zone", (), frozenset({"default"}))
    assert assigned_pods.having_anti_affinity(
        "zone", "x", lambda term: term == wanted
    ).tolist() == [False, True]


TABLE = NodeTable(
    [
        node("n0", labels={"zone": "a", "cores": "4"}),
        node("n1", labels={"zone": "b", "cores": "8"}),
        node("n2", labels={"zone": "a", "cores": "many"}),
        node("n3"),
    ]
)


def test_a_topology_sums_over_its_domains() -> None:
    zones = TABLE.topology("zone")
    assert len(zones) == 2
    assert zones.codes.tolist() == [1, 2, 1, 0]
    totals = zones.totals(np.array([1, 10, 100, 1000]))
    assert totals.tolist() == [0, 101, 10]
    assert totals[zones.codes].tolist() == [101, 10, 101, 0]
    with pytest.raises(ValueError, match="read-only"):
        zones.codes[0] = 7


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("a", "z"), "n0 n2"),
        ("NotIn", ("a",), "n1 n3"),
        ("Exists", (), "n0 n1 n2"),
        ("DoesNotExist", (), "n3"),
    ],
)
def test_a_requirement_on_a_label_selects_nodes(
    operator: str, values: tuple[str, ...], expected: str
) -> None:
    chosen = TABLE.selected((Requirement("zone", operator, values),))
    assert " ".join(np.array(TABLE.names)[chosen]) == expected


def test_gt_lt_and_match_fields_select_nodes() -> None:
    assert TABLE.selected((Requirement("cores", "Gt", ("4",)),)).tolist() == [0, 1, 0, 0]
    named = Requirement("metadata.name", "NotIn", ("n1",), on_name=True)
    assert TABLE.selected((named,)).tolist() == [1, 0, 1, 1]


def test_a_malformed_term_matches_nothing() -> None:
    broken = (Requirement("zone", "NotIn", ("not a value!",)),)
    good = (Requirement("zone", "In", ("b",)),)
    assert TABLE.matching((broken,)).tolist() == [0, 0, 0, 0]
    assert TABLE.matching((broken, (), good)).tolist() == [0, 1, 0, 0]
    assert TABLE.indexes_matching((good,)).tolist() == [1]
    assert TABLE.indexes_matching(None).tolist() == [0, 1, 2, 3]


def test_invented_labels_take_no_memory() -> None:
    table = NodeTable([node("n", labels={"zone": "a"})])
    for i in range(100):
        table.topology(f"example.com/{i}")
    table.topology("zone")
    assert set(table._topologies) == {"zone"}


def test_what_another_thread_reads_does_not_hinder_the_watch() -> None:
    """An array("q") that numpy reads cannot grow."""
    web = pod("w", labels={"app": "web"}, affinity={"podAntiAffinity": {REQUIRED: [NEAR]}})
    shared = AssignedPods().with_pods([(pod("a"), 0), (web, 1)])
    copy = shared.for_another_thread()
    assert copy.rows is shared.rows
    assert copy.kinds.values == shared.kinds.values
    assert copy.anti_affinities.values == shared.anti_affinities.values
    reading = [np.frombuffer(each, dtype=np.int64) for each in copy.kinds.by_namespace.values()]
    after = shared.with_pods([(pod("b", labels={"app": "db"}), 0)])
    assert (len(copy.kinds), len(after.kinds)) == (2, 3)
    assert [each.tolist() for each in reading] == [[0, 1]]
    assert copy.kinds.by_label.selected(WEB).tolist() == [False, True]

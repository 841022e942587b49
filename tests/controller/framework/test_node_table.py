"""A table with some nodes changed is the table made anew."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import CPU, Image, Layer, Node, Taint
from leadline_controller.framework.node_table import NodeTable

NAMES = ("n0", "n1", "n2")
SOFT = Taint("a", "b", "PreferNoSchedule")
PLAIN = st.builds(
    Node,
    st.just(""),
    st.fixed_dictionaries({}, optional={CPU: st.integers(1, 3), "gpu": st.just(1)}),
    st.fixed_dictionaries({}, optional={"zone": st.sampled_from("xy")}),
    st.sampled_from([(), (SOFT,)]),
    ready=st.booleans(),
    bandwidth_mbps=st.sampled_from([None, 100.0]),
)
IMAGES = st.sampled_from([(), (Image("web:1", (Layer("base", 30.0),)),)])


def read(table: NodeTable) -> list[object]:
    """All that the table caches, as decisions ask for it."""
    return [
        table.names,
        dict(table.index),
        table.resources,
        table.allocatable(CPU).tolist(),
        table.allocatable("gpu").tolist(),
        table.holds(CPU, 2).tolist(),
        table.topology("zone").codes.tolist(),
        table.classes.codes.tolist(),
        str(table.bandwidth_mbps.tolist()),
        table.mask("ready", lambda node: node.ready).tolist(),
        table.mask("has images", lambda node: bool(node.images)).tolist(),
        table.untolerated_soft_taints(()) is None,
        sorted(table.images),
    ]


@given(
    st.tuples(*[PLAIN] * len(NAMES)),
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 2), st.one_of(PLAIN, st.none()), min_size=1),
            IMAGES,
            st.booleans(),
        ),
        max_size=4,
    ),
)
def test_it_reads_as_one_made_anew(
    first: tuple[Node, ...],
    changes: list[tuple[dict[int, Node | None], tuple[Image, ...], bool]],
) -> None:
    nodes = [replace(node, name=name) for name, node in zip(NAMES, first, strict=True)]
    table = NodeTable(nodes)
    read(table)
    for changed, images, is_read in changes:
        for at, node in changed.items():
            nodes[at] = replace(node or nodes[at], name=NAMES[at], images=images)
        table = table.with_nodes([nodes[at] for at in changed])
        if is_read:
            assert read(table) == read(NodeTable(nodes))
    assert read(table) == read(NodeTable(nodes))


def test_one_that_differs_by_an_image_keeps_its_columns() -> None:
    table = NodeTable([Node(name, {CPU: 1000}) for name in NAMES])
    column = table.allocatable(CPU)
    pulled = replace(table.nodes[0], images=(Image("web:1", (Layer("base", 30.0),)),))
    assert table.with_nodes([pulled]).allocatable(CPU) is column
    larger = replace(table.nodes[0], allocatable={CPU: 2000})
    assert table.with_nodes([larger]).allocatable(CPU).tolist() == [2000, 1000, 1000]

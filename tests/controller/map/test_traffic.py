"""The map's answer of who talks to whom: what docs/web-api.md says, and its bounds."""

import pytest
from leadline_controller.framework.model import DeclaredPeer, Pod, PodAnnotations
from leadline_controller.framework.ports import PodChanged
from leadline_controller.traffic.edges import End

from tests.controller.inspect.counts import FakeCounts, edge, end_of
from tests.controller.inspect.harness import ControllerHarness, pod
from tests.controller.map.harness import answering, documented, get


def talking(harness: ControllerHarness, *, declared: bool = False) -> Pod:
    """The front on n2 and a user at n1 talk to the database on n1."""
    peers = (DeclaredPeer("web-1", 4.0),) if declared else ()
    front = pod("front", node_name="n2", annotations=PodAnnotations(peers=peers))
    db = pod("db", node_name="n1")
    for each in (front, db):
        harness.cluster.apply(PodChanged(each))
    ends, user = (end_of(front), end_of(db)), End("192.0.2.7", node="n1")
    counted = [edge(*ends, 8.0), edge(user, ends[1], 3.0)]
    harness.source.traffic_graph = FakeCounts([] if declared else counted, {"n1": 12.0})
    return front


async def test_the_traffic_has_the_documented_fields(harness: ControllerHarness) -> None:
    talking(harness)
    async with answering(harness) as address:
        status, answer = await get(f"{address}/api/traffic")
        _, board = await get(f"{address}/api/nodes/n2")
    example = documented("GET /api/traffic")
    assert status == 200
    assert answer.keys() == example.keys()
    for kind in ("edges", "lines"):
        listed = example[kind]
        assert isinstance(listed, list)
        for each in answer[kind]:
            assert each.keys() == listed[0].keys()
    assert (answer["reporting"], answer["report_age_s"]) == (["n1"], 12.0)
    assert [each["source"] for each in answer["edges"]] == ["default/front", "192.0.2.7"]
    # What stays on one board takes no link.
    (line,) = answer["lines"]
    assert (line["a"], line["b"], line["mbps"], line["source"]) == ("n1", "n2", 8.0, "counted")
    assert line["share"] == pytest.approx(8.0 / 94.9, abs=1e-4)
    assert line["edges"] == [["default/front", "default/db"]]
    assert [each["source"] for each in board["traffic"]["edges"]] == ["default/front"]
    assert board["traffic"]["reporting"] == ["n1"]


async def test_traffic_that_is_only_declared_has_a_line_and_takes_no_share(
    harness: ControllerHarness,
) -> None:
    talking(harness, declared=True)
    harness.cluster.apply(PodChanged(pod("web-1", node_name="n1")))
    async with answering(harness) as address:
        _, answer = await get(f"{address}/api/traffic")
    (edge,), (line,) = answer["edges"], answer["lines"]
    assert (edge["mbps"], edge["declared_mbps"], edge["age_s"]) == (None, 4.0, None)
    assert (line["source"], line["mbps"], line["share"]) == ("declared", 4.0, None)


async def test_without_reports_there_is_no_traffic_and_of_much_the_largest_is_there(
    harness: ControllerHarness,
) -> None:
    async with answering(harness) as address:
        _, nothing = await get(f"{address}/api/traffic")
    assert (nothing["reporting"], nothing["report_age_s"], nothing["edges"]) == ([], None, [])
    front = talking(harness)
    users = [End(f"192.0.2.{at % 200}", node="n1") for at in range(500)]
    counted = [edge(user, end_of(front), 900.0 - at) for at, user in enumerate(users)]
    harness.source.traffic_graph = FakeCounts(counted, {"n1": 12.0})
    async with answering(harness) as address:
        _, much = await get(f"{address}/api/traffic")
    assert (much["edges_total"], len(much["edges"])) == (500, 300)
    assert (much["lines_total"], len(much["lines"])) == (1, 1)
    (line,) = much["lines"]
    assert (line["edges_total"], len(line["edges"]), line["share"]) == (300, 5, 1.0)
    assert much["edges"][-1]["mbps"] == 601.0

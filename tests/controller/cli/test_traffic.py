"""`leadline traffic`: what it shows of who talks to whom, and what it says where nobody counts."""

import json
from dataclasses import replace

import pytest
from leadline_controller.framework.model import DeclaredPeer, Owner, Pod, PodAnnotations
from leadline_controller.framework.ports import PodChanged
from leadline_controller.traffic.edges import End

from tests.controller.cli.calling import Leadline
from tests.controller.inspect.counts import FakeCounts, edge, end_of
from tests.controller.inspect.harness import ControllerHarness


def replica(workload: str, board: str, *peers: DeclaredPeer, namespace: str = "default") -> Pod:
    return Pod(
        namespace,
        f"{workload}-x1-a",
        uid=f"uid-{workload}",
        labels={"app": workload, "pod-template-hash": "x1"},
        owner=Owner("ReplicaSet", f"{workload}-x1", f"uid-of-{workload}"),
        node_name=board,
        annotations=PodAnnotations(peers=peers),
    )


@pytest.fixture
def shop(harness: ControllerHarness) -> FakeCounts:
    """The front on n2 talks to the database on n1, and declares a queue that is nowhere."""
    front, db = replica("front", "n2", DeclaredPeer("queue.infra", 4.0)), replica("db", "n1")
    for pod in (front, db):
        harness.cluster.apply(PodChanged(pod))
    counted_s = harness.now_s - 12
    user = edge(End("192.0.2.7", node="n1"), end_of(front), 0.25, counted_s=counted_s)
    counts = FakeCounts(
        [
            edge(end_of(front), end_of(db), 8.0, counted_s=counted_s, port=5432),
            replace(user, one_sided=True),
        ],
        {"n1": 12.0, "n2": 31.0},
    )
    harness.source.traffic_graph = counts
    return counts


def cells(shown: str) -> list[list[str]]:
    """The rows of a table without its header, which has two lines."""
    return [line.split() for line in shown.splitlines()[2:]]


@pytest.mark.usefixtures("shop")
async def test_a_table_of_who_talks_to_whom(leadline: Leadline) -> None:
    shown = await leadline("traffic")
    assert (shown.code, shown.err) == (0, "")
    first, second, third, *said = cells(shown.out)
    assert first[:4] == ["default/front", "default/db", "8", "2-30"]
    # 8 of the 94.9 Mbit/s or more of that link.
    assert first[4:] == ["0.42", "0", "n1", "8.4", "12s"]
    assert second[:4] == ["192.0.2.7", "default/front", "*0.25", "2-30"]
    assert third[:4] == ["default/front", "infra/queue", "~4", "-"]
    assert [" ".join(line) for line in said] == [
        "~ declared, not counted",
        "* one end alone reports it",
        "2 boards report traffic, the last one 12s ago",
    ]
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.usefixtures("shop")
async def test_wide_shows_the_hour_the_packets_and_where_both_are(leadline: Leadline) -> None:
    shown = await leadline("traffic", "-o", "wide", "front")
    first = cells(shown.out)[0]
    assert first[9:] == ["4", "-", "-", "800", "3", "5432", "n2", "n1"]


@pytest.mark.usefixtures("shop")
async def test_only_one_workload_or_one_namespace(leadline: Leadline) -> None:
    async def sources(*asked: str) -> list[str]:
        shown = await leadline("traffic", *asked, "-o", "json")
        return [edge["source"] for edge in json.loads(shown.out)["edges"]]

    front, user = "default/front", "192.0.2.7"
    assert await sources("db") == await sources("default/db") == [front]
    assert await sources("192.0.2.7") == [user]
    assert await sources("node/n2") == [front, user, front]
    assert await sources("-n", "infra") == [front]
    assert await sources("-A", "--sort-by=mbps") == [user, front, front]
    unknown = await leadline("traffic", "frnt")
    assert (unknown.code, "did you mean default/front" in unknown.err) == (1, True)
    for asked in (["-n", "infra", "default/db"], ["-A", "-n", "infra"]):
        assert (await leadline("traffic", *asked)).code == 2


@pytest.mark.usefixtures("shop")
async def test_json_keeps_unknown_apart_from_zero(leadline: Leadline) -> None:
    answer = json.loads((await leadline("traffic", "-o", "json")).out)
    counted, _, declared = answer["edges"]
    assert (answer["nodes"], answer["report_age_s"], answer["dropped"]) == (["n1", "n2"], 12.0, 0)
    assert counted["minute"] == {"mbps": 8.0, "packets_per_s": 800.0, "connections_per_s": 3.0}
    assert (counted["day"], counted["declared_mbps"]) == (None, None)
    assert (counted["best_node"], counted["best_rtt_ms"]) == ("n1", 0.0)
    assert counted["source_nodes"] == {"n2": 1}
    assert (declared["declared_mbps"], declared["minute"], declared["rtt_ms"]) == (4.0, None, None)
    names = await leadline("traffic", "-o", "name")
    assert names.out.splitlines()[0] == "edge/default.front:default.db:5432"


async def test_where_nobody_counts_it_says_what_to_do(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    shown = await leadline("traffic")
    assert (shown.code, shown.err) == (0, "")
    assert "no board reports traffic" in shown.out
    assert "docs/traffic.md" in shown.out
    harness.source.traffic_graph = FakeCounts([], {"n1": 3.0}, dropped=7)
    shown = await leadline("traffic")
    assert "nobody talks to anybody" in shown.out
    assert "1 board reports traffic, the last one 3s ago; 7 edges were too many" in shown.out

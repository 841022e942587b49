"""What the listings of nodes and links say beside values: not probed, not believed, lost."""

from dataclasses import replace

import pytest
from leadline_controller.cli.nodes import document
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.ports import NodeChanged, PodChanged
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.problems import assess
from leadline_controller.inspect.status import states
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.state import BANDWIDTHS, ROUND_TRIPS
from leadline_wire.v1 import status_pb2

from tests.controller.builders import node, pod
from tests.controller.inspect.harness import ControllerHarness, example_controller
from tests.controller.metrics import scraped


def test_a_board_that_is_not_probed_is_noted_with_the_reason() -> None:
    harness = ControllerHarness()
    source = replace(harness.source, address_policy=AddressPolicy())
    for name, addresses in (("right", ("192.0.2.1",)), ("wrong", ("10.0.0.9",)), ("silent", ())):
        harness.cluster.apply(NodeChanged(node(name, addresses=addresses)))
    for name in ("right", "wrong", "stranger"):
        harness.hear(name)
    reader = NodeReader(source)
    notes = {name: list(reader.status(name).notes) for name in reader.names}
    assert notes["right"] == []
    assert notes["wrong"] == [
        "not probed: its agent's address 192.0.2.1 is neither an address of the node object "
        "(10.0.0.9) nor in probe.networks"
    ]
    assert notes["silent"] == ["agent never heard"]
    assert not [note for note in notes["stranger"] if note.startswith("not probed")]


def test_a_node_that_contradicts_its_peers_says_so() -> None:
    harness = example_controller()
    harness.telemetry.judge(ROUND_TRIPS, {"n1"}, harness.now_s)
    harness.telemetry.judge(BANDWIDTHS, {"n1"}, harness.now_s)
    reader = NodeReader(harness.source)
    assert list(reader.status("n1").contradicting) == [ROUND_TRIPS, BANDWIDTHS]
    assert "round trips contradict its peers'" in reader.status("n1").notes
    assert not reader.status("n2").contradicting


def test_a_link_has_loss_jitter_and_whether_it_flaps() -> None:
    harness = example_controller()
    for age_s, rtt_ms in ((1.5, 0.5), (1.0, None), (0.5, 0.42)):
        round_ = PingRound(rtt_ms, 2, 0 if rtt_ms is None else 2)
        harness.telemetry.rtts("n1", harness.stamp("n1", age_s=age_s), {"n2": round_})
    (link,) = NodeReader(harness.source).links_of("n1")
    assert link.rtt_ms == pytest.approx(0.42)
    assert link.loss == pytest.approx(2 * 7 / 8 / (((1 * 7 / 8 + 2) * 7 / 8 + 2) * 7 / 8 + 2))
    assert 0 < link.jitter_ms < 0.1
    assert not link.flapping


def test_a_collector_that_failed_is_told_by_node_status_and_metrics() -> None:
    harness = example_controller()
    harness.report("n1", failed={"disk": "no"})
    node = NodeReader(harness.source).status("n1")
    assert node.failed == {"disk": "no"}
    board = status_pb2.BoardCondition(name="n1", agent="online", states=states(node))
    condition = status_pb2.GetStatusResponse(boards=status_pb2.BoardsCondition(boards=[board]))
    (problem,) = (e for e in assess(condition)[0] if e.kind == "board-collector-failed")
    assert (problem.where, problem.what) == ("board n1", "disk failed, so what it reads is unknown")
    found = scraped.read(scraped.reader(harness))
    for collector, is_well in (("cpu", 1.0), ("disk", 0.0)):
        labels = {"node": "n1", "collector": collector}
        assert scraped.value(found, "board_collector_success", **labels) == is_well


def test_each_board_shows_the_prediction_for_the_next_replica_of_each_service() -> None:
    harness = example_controller()
    profile = {"profile-ms": '{"n1": 40, "n2": 60}', "user-node": "n1"}
    replicas = [
        pod("web-1", labels={"app": "web"}, annotations={"user-node": "n1"}, nodeName="n1"),
        pod("web-2", labels={"app": "web"}, annotations=profile, nodeName="n1"),
        pod("bare", labels={"app": "db"}, nodeName="n1"),
    ]
    for each in replicas:
        harness.cluster.apply(PodChanged(replace(each, uid=each.name)))
    source = harness.source
    assert not NodeReader(source).status("n1").predicted_ms, "NetSched predicts nothing"
    source.rule = Rule(ResponseTime(), FILTERS)
    statuses = [NodeReader(source).status(name) for name in ("n1", "n2")]
    (link,) = NodeReader(source).links_of("n1")
    predicted = [dict(status.predicted_ms) for status in statuses]
    assert predicted == [{"default/app=web": 40.0}, {"default/app=web": 60.0 + link.rtt_ms}]
    assert document(statuses[0])["predicted_ms"] == predicted[0]

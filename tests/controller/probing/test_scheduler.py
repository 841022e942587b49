"""The probe scheduler: with a state and recorded leases, and with boards over mosquitto."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.probing import scheduler
from leadline_controller.probing.budgets import Uplink
from leadline_controller.probing.planning import DELIVERY_S, ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import BANDWIDTHS, TelemetryState, TimesToLive
from leadline_wire import topics
from leadline_wire.codec import encode, kind_of
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.harness import AMPLE, LIMITS, LeaseRecorder, ProbeHarness
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.telemetry_builder import BOOT_ID, TelemetryBuilder
from tests.controller.telemetry.wire_client import WireClient, connected
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import wait_until


def test_the_expiry_of_a_lease_message_is_the_planned_delivery_time() -> None:
    assert topics.DELIVERY[topics.Kind.LEASE].expiry_s == DELIVERY_S


def test_ping_leases_are_renewed_well_before_they_end() -> None:
    harness = ProbeHarness("n1", "n2", "n3")
    assert harness.sent.pinged() == []
    harness.probe_scheduler.tick(0.0)
    assert harness.sent.pinged() == ["n1", "n2", "n3"]
    harness.probe_scheduler.tick(19.9)
    assert harness.sent.pinged() == []
    harness.probe_scheduler.tick(20.0)
    assert harness.sent.pinged() == ["n1", "n2", "n3"]


def test_a_restarted_agent_gets_its_lease_at_once() -> None:
    harness = ProbeHarness("n1", "n2")
    harness.probe_scheduler.tick(0.0)
    harness.sent.pinged()
    harness.born("n2")
    harness.probe_scheduler.tick(1.0)
    assert harness.sent.pinged() == ["n2"]


def test_a_new_leader_renews_all_ping_leases_and_waits_for_a_running_test() -> None:
    harness = ProbeHarness("n1", "n2")
    harness.probe_scheduler.tick(0.0)
    for node, lease in harness.sent.tests:
        harness.report(lease, node)
    harness.sent.pinged()
    harness.sent.tests.clear()
    harness.probe_scheduler.on_started_leading(100.0)
    harness.probe_scheduler.tick(100.0)
    assert harness.sent.pinged() == ["n1", "n2"]
    assert harness.sent.tests == []
    harness.probe_scheduler.tick(
        100.0 + DELIVERY_S + (LIMITS.ttl_ms + LIMITS.duration_ms) / 1000 + 1
    )
    assert len(harness.sent.tests) == 2


def test_without_the_broker_nothing_is_leased_nor_charged() -> None:
    harness = ProbeHarness("n1", "n2")
    harness.is_prompt = False
    for now_s in range(30):
        harness.probe_scheduler.tick(float(now_s))
    assert (harness.sent.pings, harness.sent.tests) == ([], [])
    assert harness.probe_scheduler.budget(30.0).nodes == ()
    harness.is_prompt = True
    harness.probe_scheduler.tick(30.0)
    assert harness.sent.pinged() == ["n1", "n2"]
    assert harness.sent.tests == [], "the broker may deliver an old lease only now"
    again_s = 30.0 + DELIVERY_S + (LIMITS.ttl_ms + LIMITS.duration_ms) / 1000 + 1
    harness.probe_scheduler.tick(again_s)
    assert harness.sent.tested() == [("n1", "n2")]
    assert [each.tests for each in harness.probe_scheduler.budget(again_s).nodes] == [1, 1]


def test_only_online_boards_with_an_address_are_probed() -> None:
    harness = ProbeHarness("n1", "n2", "n3")
    harness.born("nowhere", address="")
    harness.telemetry.state.birth(
        Agent("kept", address="192.0.2.9", probes=("iperf3",)),
        harness.telemetry.stamp("kept", retained=True),
    )
    harness.telemetry.state.status("n3", BOOT_ID, 1, online=False)
    harness.probe_scheduler.tick(0.0)
    assert [(node, [p.node for p in work.peers]) for node, work in harness.sent.pings] == [
        ("n1", ["n2"]),
        ("n2", ["n1"]),
    ]
    assert {node for node, _ in harness.sent.tests} == {"n1", "n2"}


def test_only_boards_with_iperf3_are_tested() -> None:
    harness = ProbeHarness("n1", "n3")
    harness.born("n2", probes=("icmp",))
    harness.probe_scheduler.tick(0.0)
    assert [node for node, _ in harness.sent.tests] == ["n3", "n1"]
    assert harness.sent.pinged() == ["n1", "n2", "n3"]


def test_a_node_has_one_test_at_a_time_until_both_ends_have_reported() -> None:
    harness = ProbeHarness("n1", "n2", "n3", anchors=("n3",))
    harness.probe_scheduler.tick(0.0)
    (server, serving), (client, testing) = harness.sent.tests
    assert (server, client) == ("n3", "n1")
    harness.probe_scheduler.tick(4.0)
    assert not harness.report(testing, client)
    harness.probe_scheduler.tick(5.0)
    assert len(harness.sent.tests) == 2
    assert harness.report(serving, server)
    harness.probe_scheduler.tick(6.0)
    assert harness.sent.tested()[1:] == [("n2", "n3")]


def test_a_test_that_one_end_cannot_run_is_over_and_is_tried_less_and_less_often() -> None:
    harness = ProbeHarness("n1", "n2")
    started_s = []
    for tick in range(600):
        harness.probe_scheduler.tick(tick / 2)
        if not harness.sent.tests:
            continue
        tests = list(harness.sent.tests)
        harness.sent.tests.clear()
        started_s.append(tick / 2)
        for node, lease in tests:
            harness.fail(lease, node, pb.BandwidthReport.REFUSED)
    assert started_s[:4] == [0.0, 0.5, 3.0, 3.5]  # each end in its turn
    assert len(started_s) <= 16


@pytest.mark.parametrize("end", [0, 1])
def test_one_end_alone_ends_no_lease_and_gets_nothing_back(end: int) -> None:
    uplink = Uplink("lte", frozenset({"n1", "n2"}), 100.0)
    harness = ProbeHarness("n1", "n2", "n3", "n4", uplinks=(uplink,), anchors=("n3", "n4"))
    harness.probe_scheduler.tick(0.0)
    before = harness.probe_scheduler.budget(0.0)
    tests, running = list(harness.sent.tests), before.running
    node, lease = tests[end]
    harness.fail(lease, node, pb.BandwidthReport.FAILED)
    harness.probe_scheduler.tick(1.0)
    after = harness.probe_scheduler.budget(1.0)
    assert after.running[: len(running)] == running
    spent = {each.name: each.bytes for each in (*before.nodes, *before.uplinks)}
    left = {each.name: each.bytes for each in (*after.nodes, *after.uplinks)}
    assert spent[node] > 0
    assert all(left[name] >= spent[name] for name in spent)


def test_a_test_without_reports_expires() -> None:
    harness = ProbeHarness("n1", "n2")
    harness.probe_scheduler.tick(0.0)
    _, lease = harness.sent.tests[0]
    ends_s = DELIVERY_S + (LIMITS.ttl_ms + lease.duration_ms) / 1000 + 1
    harness.probe_scheduler.tick(ends_s - 0.1)
    assert len(harness.sent.tests) == 2
    harness.probe_scheduler.tick(ends_s)
    assert len(harness.sent.tests) == 4


def test_tests_without_a_node_in_common_run_at_once() -> None:
    names = [f"n{i}" for i in range(7)]
    harness = ProbeHarness(*names)
    harness.probe_scheduler.tick(0.0)
    nodes = [node for node, _ in harness.sent.tests]
    assert len(nodes) == len(set(nodes)) == 6
    assert len({lease.lease_id for _, lease in harness.sent.tests}) == 3


def test_tests_over_a_shared_uplink_do_not_run_at_once() -> None:
    uplink = Uplink("lte", frozenset({"n1", "n2"}), 20.0)
    harness = ProbeHarness("n1", "n2", "n3", "n4", anchors=("n3", "n4"), uplinks=(uplink,))
    harness.probe_scheduler.tick(0.0)
    crossing = [pair for pair in harness.sent.tested() if len({"n1", "n2"}.intersection(pair)) == 1]
    assert len(harness.sent.tested()) == 2
    assert len(crossing) <= 1


def test_both_ends_get_leases_with_each_others_address_and_the_limits() -> None:
    harness = ProbeHarness("n1")
    harness.born("n2", address="192.0.2.2")
    harness.probe_scheduler.tick(0.0)
    (server, serving), (client, testing) = harness.sent.tests
    assert (server, client) == ("n2", "n1")
    assert (serving.peer.node, serving.peer.address) == ("n1", "192.0.2.1")
    assert (testing.peer.node, testing.peer.address) == ("n2", "192.0.2.2")
    assert serving.lease_id == testing.lease_id
    for lease in (serving, testing):
        assert 0 < lease.max_bytes <= LIMITS.max_bytes
        assert 500 <= lease.duration_ms <= LIMITS.duration_ms
        assert (lease.ttl_ms, lease.port) == (LIMITS.ttl_ms, LIMITS.port)


def test_a_result_faster_than_either_interface_is_refused() -> None:
    harness = ProbeHarness("n1", "n2")
    reading = BoardReading({"link_mbps": 10.0})
    harness.telemetry.state.report("n1", harness.telemetry.stamp("n1", measured_s=0.0), reading)
    harness.probe_scheduler.tick(0.0)
    _, serving = harness.sent.tests[0]
    n2 = BoardMessages("n2")
    refusals = [
        harness.probe_scheduler.bandwidth_refusal("n2", n2.received(serving, mbps))
        for mbps in (13.0, 11.0)  # 80 KiB, of which 5 ms may have passed at once
    ]
    assert refusals == ["over_lease", None]


def test_leases_of_an_earlier_controller_are_not_ours() -> None:
    first, second = ProbeHarness("n1", "n2"), ProbeHarness("n1", "n2")
    for harness in (first, second):
        harness.probe_scheduler.tick(0.0)
    assert first.sent.tests[0][1].lease_id != second.sent.tests[0][1].lease_id


# Where leases lead.


def test_a_board_that_claims_anothers_address_is_not_probed_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = ProbeHarness("n1", "n2", "liar")
    harness.nodes["liar"] = Node("liar", addresses=("10.0.0.9",))
    for now_s in range(0, 300, 10):
        harness.probe_scheduler.tick(float(now_s))
    assert {node for node, _ in (*harness.sent.pings, *harness.sent.tests)} == {"n1", "n2"}
    peers = {peer.node for _, work in harness.sent.pings for peer in work.peers}
    assert peers == {"n1", "n2"}
    (record,) = caplog.records
    assert record.getMessage() == (
        "node liar is not probed: its agent's address 192.0.2.1 is neither an address of the node "
        "object (10.0.0.9) nor in probe.networks; set probe.address on the board, or "
        "probe.networks here"
    )


def test_an_address_that_changes_all_the_time_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = ProbeHarness("n1")
    for turn in range(100):
        harness.nodes["n1"] = Node("n1", addresses=(f"10.0.0.{turn}",) if turn % 2 else ())
        harness.probe_scheduler.tick(float(turn))
    assert len(caplog.records) == 1


def test_only_nodes_of_the_cluster_are_probed() -> None:
    harness = ProbeHarness("n1", "n2", "phantom")
    del harness.nodes["phantom"]
    harness.probe_scheduler.tick(0.0)
    assert harness.sent.pinged() == ["n1", "n2"]


def test_nothing_is_probed_while_the_nodes_are_unknown() -> None:
    fleet, sent = TelemetryBuilder("n1", "n2"), LeaseRecorder()
    ProbeScheduler(fleet.state, sent.send, ProbeSettings(LIMITS), lambda: None).tick(0.0)
    assert (sent.pings, sent.tests) == ([], [])


@pytest.mark.slow
def test_thousands_of_ping_leases_are_spread_over_ticks() -> None:
    harness = ProbeHarness(*(f"n{i:04}" for i in range(2000)))
    sent = []
    for tick in range(60):
        harness.probe_scheduler.tick(tick / 2)
        sent.append(len(harness.sent.pinged()))
    assert max(sent) == 100
    assert sum(sent[:40]) >= 2000  # all have one before the first is due again
    assert sum(sent[40:]) >= 1000


def test_of_thousands_of_boards_each_tick_plans_tests_for_some_and_all_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "_PLANNED_AT_ONCE", 6)
    monkeypatch.setattr(scheduler, "_PEERS_AT_ONCE", 2)
    harness = ProbeHarness(*(f"n{number:02}" for number in range(10)), anchors=("n09",))
    harness.probe_scheduler.tick(0.0)
    assert {*map(min, harness.sent.tested())} == {"n00", "n01"}
    assert ("n00", "n09") in harness.sent.tested()
    for tick in range(1, 10):
        harness.probe_scheduler.tick(tick * 15.0)  # the tests before have expired
    assert {node for test in harness.sent.tested() for node in test} == set(harness.nodes)


def test_a_round_that_differs_is_repeated_from_both_ends_with_their_next_leases() -> None:
    harness = ProbeHarness(*(f"n{i:02}" for i in range(40)))
    harness.probe_scheduler.tick(0.0)
    for at_s, rtt_ms in ((1.0, 5.0), (2.0, 5.0), (3.0, 5.0), (18.0, 80.0)):
        harness.telemetry.rtt("n00", "n20", rtt_ms, at_s)
    harness.sent.pings.clear()
    harness.probe_scheduler.tick(20.0)
    peers = {node: [peer.node for peer in work.peers] for node, work in harness.sent.pings}
    assert "n20" in peers["n00"]
    assert "n00" in peers["n20"]
    assert all(len(each) == LIMITS.ping_peers for each in peers.values())


def test_a_node_whose_bandwidth_tests_contradict_its_peers_measures_no_other_one() -> None:
    harness = ProbeHarness("n1", "n2", "n3", "n4")
    harness.telemetry.state.judge(BANDWIDTHS, {"n1"}, 0.0)
    clients, servers = set(), set()
    for at_s in range(0, 290, 10):
        harness.probe_scheduler.tick(float(at_s))
        for client, server in harness.sent.tested():
            clients.add(client)
            servers.add(server)
    assert clients == {"n1", "n2", "n3", "n4"}
    assert servers == {"n2", "n3", "n4"}
    for at_s in range(300, 600, 10):
        harness.probe_scheduler.tick(float(at_s))
    assert "n1" in {server for _, server in harness.sent.tested()}


# Results of leases.


class IngestHarness:
    """An ingestor with a probe scheduler, and two boards under lease."""

    def __init__(self) -> None:
        self.harness = ProbeHarness("n1", "n2")
        self.state = self.harness.telemetry.state
        self.ingestor = TelemetryIngestor(CLUSTER, self.state, self.harness.probe_scheduler)
        self.boards = {name: BoardMessages(name, session=2) for name in ("n1", "n2")}
        self.harness.probe_scheduler.tick(100.0)
        (_, self.serving), (_, self.testing) = self.harness.sent.tests  # n1 is the client

    def take(self, node: str, message: pb.RttReport | pb.BandwidthReport) -> None:
        topic = self.boards[node].topic(kind_of(message))
        self.ingestor.ingest(topic, encode(message), topics.SCHEMA, 101.0, retained=False)

    def known(self) -> list[tuple[float | None, float | None]]:
        return [(link.rtt_ms, link.bandwidth_mbps) for link in self.state.links(101.0)]

    def bound_mbps(self, mbps: float) -> Any:
        """What is known after a test of this rate, which is short."""
        seconds = self.serving.max_bytes / 2 * 8e-6 / mbps
        return pytest.approx(mbps * seconds / (seconds + 0.005), rel=1e-3)


def test_a_bandwidth_counts_once_both_ends_have_reported() -> None:
    ingest = IngestHarness()
    ingest.take("n2", ingest.boards["n2"].received(ingest.serving, 90.0))
    assert ingest.known() == []
    ingest.take("n1", ingest.boards["n1"].sent(ingest.testing))
    assert ingest.known() == [(None, ingest.bound_mbps(90.0))]
    ingest.take("n2", ingest.boards["n2"].received(ingest.serving, 91.0))
    ingest.take("n1", ingest.boards["n1"].sent(ingest.testing))
    assert ingest.known() == [(None, ingest.bound_mbps(90.0))]
    assert ingest.state.refused == {"not_leased": 2}


def test_a_bandwidth_over_its_lease_leaves_it_open_and_no_message_counts_as_lost() -> None:
    ingest = IngestHarness()
    n1, n2 = ingest.boards["n1"], ingest.boards["n2"]
    ingest.take("n1", n1.sent(ingest.testing))
    too_fast = n2.received(ingest.serving, 90.0)
    too_fast.bandwidth_mbps = 900_000.0
    ingest.take("n2", too_fast)
    assert ingest.known() == []
    ingest.take("n2", n2.received(ingest.serving, 90.0))
    assert ingest.known() == [(None, ingest.bound_mbps(90.0))]
    assert ingest.state.refused == {"over_lease": 1}
    assert ingest.state.board("n2", 0.0).lost == 0


def test_a_result_for_an_earlier_controller_is_refused_and_counted() -> None:
    before, after = IngestHarness(), IngestHarness()
    after.take("n1", after.boards["n1"].sent(before.testing))
    after.take("n2", after.boards["n2"].received(before.serving, 90.0))
    assert after.known() == []
    assert after.state.refused == {"not_leased": 2}


def test_leases_of_a_former_leader_expire() -> None:
    ingest = IngestHarness()
    ingest.harness.probe_scheduler.tick_as_standby(150.0)
    assert ingest.harness.probe_scheduler.ping_peers("n1") == {"n2"}
    ingest.harness.probe_scheduler.tick_as_standby(1000.0)
    assert ingest.harness.probe_scheduler.ping_peers("n1") == set()
    ingest.take("n1", ingest.boards["n1"].sent(ingest.testing))
    ingest.take("n2", ingest.boards["n2"].received(ingest.serving, 90.0))
    assert ingest.known() == []
    assert ingest.state.refused == {"not_leased": 2}


def test_round_trips_count_for_leased_peers_only() -> None:
    ingest = IngestHarness()
    ingest.harness.telemetry.birth("n3")
    n1 = ingest.boards["n1"]
    ingest.take("n1", n1.rtt(("n2", 1.5), ("n3", 0.1)))
    assert [(x.a, x.b, x.rtt_ms) for x in ingest.state.links(101.0)] == [("n1", "n2", 1.5)]
    assert ingest.state.refused == {"not_leased": 1}
    stranger = BoardMessages("n3", session=2)
    topic = stranger.topic(topics.Kind.RTT)
    ingest.ingestor.ingest(
        topic, encode(stranger.rtt(("n1", 0.1))), topics.SCHEMA, 101.0, retained=False
    )
    assert ingest.state.refused == {"not_leased": 2}


def test_round_trips_that_come_too_often_are_refused() -> None:
    ingest = IngestHarness()
    n1 = ingest.boards["n1"]
    for _ in range(100):
        ingest.take("n1", n1.rtt(("n2", 1.5)))
    assert 90 <= ingest.state.refused["too_often"] < 100
    assert ingest.state.board("n1", 0.0).lost == 0


def test_a_round_trip_that_met_a_test_of_either_end_is_kept_out() -> None:
    ingest = IngestHarness()  # at 100 s; n1 and n2 are under test from there
    n1, n2 = ingest.boards["n1"], ingest.boards["n2"]

    def round_trips(board: BoardMessages, rtt_ms: float, at_s: float) -> list[float | None]:
        message = board.rtt((n2.node if board is n1 else n1.node, rtt_ms))
        topic = board.topic(topics.Kind.RTT)
        ingest.ingestor.ingest(topic, encode(message), topics.SCHEMA, at_s, retained=False)
        return [link.rtt_ms for link in ingest.state.links(at_s)]

    assert round_trips(n1, 1.0, 101.0) == [1.0]  # there is nothing yet to compare it with
    assert round_trips(n2, 40.0, 101.1) == [1.0]
    assert round_trips(n1, 1.1, 111.0) == [pytest.approx(1.05)]  # it is no longer than believed
    ingest.take("n1", n1.sent(ingest.testing))
    ingest.take("n2", n2.received(ingest.serving, 90.0))
    # After the test they count: the path may have changed.
    assert round_trips(n1, 40.0, 120.0) == [pytest.approx(1.1)]
    assert round_trips(n1, 40.0, 130.0) == [40.0]
    assert ingest.state.refused == {}


def test_packets_lost_in_a_test_do_not_count_but_those_of_two_rounds_in_a_row_do() -> None:
    ingest = IngestHarness()  # at 100 s; n1 and n2 are under test until they report
    n1 = ingest.boards["n1"]

    def ping(at_s: float, received: int) -> tuple[str, float | None]:
        message = n1.rtt(("n2", 1.0 if received else None))
        message.peers[0].received = received
        topic = n1.topic(topics.Kind.RTT)
        ingest.ingestor.ingest(topic, encode(message), topics.SCHEMA, at_s, retained=False)
        (link,) = ingest.state.links(at_s)
        return link.rtt_source, link.loss

    assert ping(101.0, 3) == ("measured", 0.0)
    assert ping(105.0, 0) == ("measured", 0.0)
    assert ping(111.0, 3) == ("measured", 0.0)
    assert ping(113.0, 2) == ("measured", 0.0)
    assert ping(121.0, 0)[1] == pytest.approx(3 / (3 * (1 + 7 / 8 + 7**2 / 8**2)))
    assert [ping(at_s, 0)[0] for at_s in (131.0, 141.0)] == ["measured", "unreachable"]
    assert ingest.state.refused == {}


def test_a_peer_that_stops_replying_is_noticed_although_it_is_tested_all_the_time() -> None:
    ingest = IngestHarness()
    n1 = ingest.boards["n1"]
    sources = []
    for at_s in range(101, 171, 10):
        ingest.harness.probe_scheduler.tick(float(at_s))
        ingest.harness.probe_scheduler.is_under_test = lambda *_: True  # type: ignore[method-assign]
        message = n1.rtt(("n2", 1.0 if at_s == 101 else None))
        message.peers[0].received = 3 if at_s == 101 else 0
        topic = n1.topic(topics.Kind.RTT)
        ingest.ingestor.ingest(topic, encode(message), topics.SCHEMA, at_s, retained=False)
        sources += [link.rtt_source for link in ingest.state.links(at_s)]
    assert sources == [*["measured"] * 6, "unreachable"]


# End to end: boards that speak the wire protocol over a real broker.

QUICK = ProbeLimits(interval_s=0.2, duration_ms=300, ttl_ms=1000, ping_ttl_s=3, ping_peers=2)


class BrokerHarness:
    """A controller's MQTT session and probe scheduler, and boards that obey their leases.

    tested: (client, server, lease) of each test. overlaps: how often a board had two tests at once.
    """

    def __init__(self, broker: Broker) -> None:
        self.state = TelemetryState(TimesToLive())
        nodes = {name: Node(name, addresses=("192.0.2.1",)) for name in ("n1", "n2", "n3")}
        self.probe_scheduler = ProbeScheduler(
            self.state,
            lambda lease: self.session.send(lease),
            ProbeSettings(QUICK, AMPLE),
            lambda: nodes,
        )
        ingestor = TelemetryIngestor(CLUSTER, self.state, self.probe_scheduler)
        settings = BrokerSettings(broker.host, broker.port, CLUSTER, "controller")
        self.session = BrokerSession(settings, ingestor)
        self.pings: Counter[str] = Counter()
        self.tested: list[tuple[str, str, str]] = []
        self.served: list[str] = []
        self.at_work = {name: threading.Semaphore(1) for name in nodes}
        self.overlaps = 0
        self._over = threading.Event()
        self._ticking = threading.Thread(target=self._tick)

    def __enter__(self) -> "BrokerHarness":
        self.session.start()
        self._ticking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ticking.join()
        self.session.stop()

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self.probe_scheduler.tick(time.monotonic())

    @contextmanager
    def board(self, broker: Broker, name: str) -> Iterator[WireClient]:
        board = BoardMessages(name)
        with connected(broker, will=board) as client:

            def work(lease: pb.Lease) -> None:
                if lease.WhichOneof("work") == "ping":
                    self.pings[name] += 1
                    client.send_soon(board, board.rtt(*[(p.node, 1.5) for p in lease.ping.peers]))
                else:
                    threading.Thread(
                        target=self._test, args=(client, board, lease.bandwidth)
                    ).start()

            client.listen(board, work)
            client.send(board, board.status(online=True))
            client.send(board, board.birth())
            yield client

    def _test(self, client: WireClient, board: BoardMessages, lease: pb.BandwidthLease) -> None:
        """The server needs the client's time and does not wait for it: it reports first."""
        alone = self.at_work[board.node].acquire(blocking=False)
        self.overlaps += not alone
        is_server = lease.role == pb.BandwidthLease.SERVER
        if is_server:
            self.served.append(lease.lease_id)
        else:
            time.sleep(0.05)
            self.tested.append((board.node, lease.peer.node, lease.lease_id))
        if alone:
            self.at_work[board.node].release()
        client.send_soon(board, board.received(lease, 90.0) if is_server else board.sent(lease))


@pytest.mark.broker
def test_a_cluster_measures_its_links_under_leases() -> None:
    with mosquitto() as broker, BrokerHarness(broker) as broker_harness, ExitStack() as boards:
        for name in ("n1", "n2", "n3"):
            boards.enter_context(broker_harness.board(broker, name))
        wait_until(
            lambda: len({frozenset(test[:2]) for test in broker_harness.tested}) == 3,
            "each pair is tested",
        )
        enough = len(broker_harness.tested) + 6
        wait_until(lambda: len(broker_harness.tested) >= enough, "and again")
        wait_until(
            lambda: min(broker_harness.pings[n] for n in ("n1", "n2", "n3")) >= 3, "pings go on"
        )
        ids = {lease_id for _, _, lease_id in broker_harness.tested}
        wait_until(lambda: ids <= set(broker_harness.served), "each test had a server")
        now_s = time.monotonic()
        known = {(link.a, link.b): link for link in broker_harness.state.links(now_s)}
    assert set(known) == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}
    assert {link.rtt_ms for link in known.values()} == {1.5}
    # 64 KiB at 90 Mbit/s are so few that a shaper's burst may have let them pass at once.
    assert all(33.0 < (link.bandwidth_mbps or 0.0) <= 90.0 for link in known.values())
    assert broker_harness.overlaps == 0
    assert {test[0] for test in broker_harness.tested} == {"n1", "n2", "n3"}


@pytest.mark.broker
def test_a_client_that_dies_does_not_block_the_other_tests() -> None:
    with (
        mosquitto() as broker,
        BrokerHarness(broker) as broker_harness,
        broker_harness.board(broker, "n1"),
        broker_harness.board(broker, "n2") as client,
        broker_harness.board(broker, "n3"),
    ):
        wait_until(lambda: broker_harness.tested, "tests begin")
        client.drop()
        wait_until(
            lambda: [set(pair[:2]) for pair in broker_harness.tested[-3:]] == [{"n1", "n3"}] * 3,
            "the others are tested on",
            timeout_s=40,
        )
    assert broker_harness.overlaps == 0

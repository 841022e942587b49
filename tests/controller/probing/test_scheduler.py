"""The probe scheduler, with a state and recorded leases."""

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.probing import scheduler
from leadline_controller.probing.budgets import Uplink
from leadline_controller.probing.planning import DELIVERY_S
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.state import BANDWIDTHS
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.harness import LIMITS, LeaseRecorder, ProbeHarness
from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.telemetry_builder import BOOT_ID, TelemetryBuilder


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

from itertools import combinations, pairwise

import numpy as np
import pytest
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.telemetry import links as storage
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.link_bandwidth import NodeLink
from leadline_controller.telemetry.state import BROKER, TelemetryState

from tests.controller.telemetry.telemetry_builder import BOOT_ID, NAN, TTL, TelemetryBuilder, table

ALL_KNOWN = (10.0, 40.0, 120.0, 80.0, 5000.0)


def test_a_value_keeps_its_age_and_is_unknown_again_after_its_time() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n1", *ALL_KNOWN, at_s=100.0)
    assert builder.state.board("n1", 130.0).values["cpu_percent"] == (10.0, 30.0)
    assert builder.state.board("n1", 130.0).age_s == 30.0
    assert builder.state.board("n1", 160.0).report is not None
    assert builder.state.metrics(table("n1"), 160.0).cpu_percent[0] == 10.0

    late_s = 160.1
    assert builder.state.board("n1", late_s).values == {}
    assert builder.state.board("n1", late_s).report is None
    assert builder.state.board("n1", late_s).age_s == pytest.approx(60.1)
    assert np.isnan(builder.state.metrics(table("n1"), late_s).cpu_percent[0])


def test_what_was_never_measured_is_unknown_and_not_zero() -> None:
    builder = TelemetryBuilder("n1")
    metrics = builder.state.metrics(table("n1", "never-heard"), 100.0)
    assert all(np.isnan(getattr(metrics, name)).all() for name in METRICS)
    assert builder.state.board("n1", 100.0).values == {}
    assert builder.state.board("never-heard", 100.0).values == {}
    assert builder.state.board("n1", 100.0).age_s is None
    assert builder.state.board("never-heard", 100.0).report is None
    assert builder.state.board("never-heard", 0.0).lost == 0


def test_a_measured_zero_is_known() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.report("n1", 0.0, at_s=100.0)
    builder.bandwidth("n1", "n2", 0.0, 100.0)
    assert builder.state.board("n1", 100.0).values == {
        "cpu_percent": (0.0, 0.0),
        "bandwidth_mbps": (0.1, 0.0),  # the slowest link that there is
    }


def test_a_value_that_a_report_leaves_out_keeps_its_age() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n1", *ALL_KNOWN, at_s=100.0)
    builder.report("n1", 20.0, at_s=130.0)
    known = builder.state.board("n1", 140.0).values
    assert known["cpu_percent"] == (20.0, 10.0)
    assert known["memory_percent"] == (40.0, 40.0)
    assert set(builder.state.board("n1", 170.0).values) == {"cpu_percent"}


def test_a_report_without_an_age_does_not_become_current() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n1", *ALL_KNOWN, at_s=100.0)
    assert not builder.report("n1", 99.0, at_s=float("-inf"))
    assert builder.state.board("n1", 100.0).values["cpu_percent"] == (10.0, 0.0)
    assert builder.state.refused == {"late": 1}


def test_refused_reports_leave_the_state_untouched() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n1", *ALL_KNOWN, at_s=100.0)
    accepted = builder.state.accepted
    assert not builder.report("n1", 99.0, at_s=101.0, sequence=2)
    assert not builder.report("n1", 99.0, at_s=101.0, sequence=1)
    assert not builder.report("n1", 99.0, at_s=101.0, session=0, sequence=9)
    assert builder.state.refused == {"duplicate": 1, "out_of_order": 1, "late": 1}
    assert builder.state.accepted == accepted
    assert builder.state.board("n1", 101.0).values["cpu_percent"] == (10.0, 1.0)


def test_gaps_are_counted_by_node() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.report("n1", at_s=1.0, sequence=6)
    assert builder.state.board("n1", 0.0).lost == 4
    assert builder.state.board("n2", 0.0).lost == 0


def test_a_nodes_bandwidth_is_its_best_links_until_it_is_too_old() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    builder.bandwidth("n1", "n2", 90.0, 0.0)
    builder.bandwidth("n1", "n3", 10.0, 100.0)
    nodes = table("n1", "n2", "n3")

    def known(now_s: float) -> list[float]:
        return [float(mbps) for mbps in builder.state.metrics(nodes, now_s).bandwidth_mbps]

    assert known(100.0) == [90.0, 90.0, 10.0]
    assert known(TTL.bandwidth_s) == [90.0, 90.0, 10.0]
    # n1 can do at least what its test with the slow n3 showed.
    np.testing.assert_equal(known(TTL.bandwidth_s + 1), [10.0, NAN, 10.0])
    assert np.isnan(known(100.0 + TTL.bandwidth_s + 1)).all()


def test_a_suspect_counts_with_the_lower_value_and_what_clears_its_peer_shows_at_once() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    nodes = table("n1", "n2", "n3")
    for at_s, client, server in ((0.0, "n1", "n2"), (1.0, "n2", "n3"), (2.0, "n3", "n1")):
        builder.bandwidth(client, server, 100.0, at_s)
    builder.bandwidth("n1", "n2", 5.0, 10.0)
    assert list(builder.state.metrics(nodes, 10.0).bandwidth_mbps) == [5.0, 5.0, 100.0]
    builder.bandwidth("n1", "n3", 5.0, 20.0)
    assert list(builder.state.metrics(nodes, 20.0).bandwidth_mbps) == [5.0, 100.0, 100.0]


# Passive knowledge.


def carry(builder: TelemetryBuilder, at_s: float, **values: float) -> None:
    builder.state.report("n1", builder.stamp("n1", measured_s=at_s), BoardReading(values))


def believed(builder: TelemetryBuilder, now_s: float) -> tuple[float, bool, str] | None:
    (link,) = builder.state.node_links(("n1",), now_s)
    known = link.bandwidth
    return None if known is None else (known.mbps, known.lower_bound, known.source)


def measured_exactly(builder: TelemetryBuilder, mbps: float, at_s: float) -> None:
    """A peer that is known to be faster measures n1."""
    for name, peer in (("fast", "faster"), ("faster", "fast")):
        builder.state.birth(Agent(name), builder.stamp(name))
        builder.bandwidth(name, peer, 1000.0, at_s)
    for peer in ("fast", "faster"):
        builder.bandwidth("n1", peer, mbps, at_s)


def test_a_pull_shows_a_lower_bound_and_is_believed_as_little_as_traffic() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.state.pulled("n1", 80.0, 0.0)
    assert believed(builder, 0.0) == (80.0, True, "pulls")
    builder.state.pulled("n1", 5000.0, 10.0)
    assert believed(builder, 10.0) == (100.0, True, "pulls")  # nobody else has measured it
    measured_exactly(builder, 60.0, 20.0)
    assert believed(builder, 20.0) == (60.0, False, "tests")
    builder.state.pulled("n1", 5000.0, 30.0)
    assert believed(builder, 30.0) == (60.0, False, "tests"), "a test has to confirm it"
    (link,) = builder.state.node_links(("n1",), 30.0)
    assert link.contradicted_s == 30.0
    builder.state.pulled("strange", 80.0, 40.0)
    assert builder.state.node_links(("strange",), 40.0)[0].bandwidth is None


def test_the_speed_of_the_interface_limits_what_a_pull_shows() -> None:
    builder = TelemetryBuilder("n1", "n2")
    carry(builder, 0.0, used_mbps=0.0, link_mbps=10.0)
    builder.state.pulled("n1", 80.0, 1.0)
    assert believed(builder, 1.0) == (10.0, True, "pulls")


def test_a_link_can_do_at_least_what_it_carried() -> None:
    builder = TelemetryBuilder("n1", "n2")
    carry(builder, 0.0, used_mbps=0.5)
    assert believed(builder, 0.0) is None
    carry(builder, 10.0, used_mbps=80.0, link_mbps=100.0)
    assert believed(builder, 10.0) == (80.0, True, "counters")
    carry(builder, 20.0, used_mbps=900.0, link_mbps=100.0)
    assert believed(builder, 20.0) == (100.0, True, "counters")  # its interface does no more
    carry(builder, 30.0, used_mbps=3.0, link_mbps=100.0)
    assert believed(builder, 30.0) == (100.0, True, "counters")
    measured_exactly(builder, 60.0, 40.0)  # now another node has measured it
    assert believed(builder, 40.0) == (60.0, False, "tests")
    assert builder.state.board("n1", 40.0).values["bandwidth_mbps"] == (60.0, 0.0)


def test_a_first_test_replaces_what_a_node_says_of_itself_even_if_it_was_short() -> None:
    builder = TelemetryBuilder("n1", "n2")
    carry(builder, 0.0, used_mbps=900.0, link_mbps=1000.0)
    builder.bandwidth("n1", "n2", 90.0, 1.0, lower_bound=True)
    carry(builder, 10.0, used_mbps=900.0, link_mbps=1000.0)
    assert believed(builder, 10.0) == (90.0 / 0.8, True, "counters")  # the two agree
    measured_exactly(builder, 90.0, 20.0)  # it was a lie
    carry(builder, 30.0, used_mbps=900.0, link_mbps=1000.0)
    assert (believed(builder, 30.0) or (0.0,))[0] <= 90.0 / 0.8


def test_traffic_over_an_exact_value_only_asks_for_a_test() -> None:
    builder = TelemetryBuilder("n1", "n2")
    measured_exactly(builder, 60.0, 0.0)
    carry(builder, 10.0, used_mbps=70.0, link_mbps=1000.0)
    assert builder.state.node_links(("n1",), 10.0)[0].contradicted_s == -np.inf
    carry(builder, 20.0, used_mbps=90.0, link_mbps=1000.0)
    assert believed(builder, 20.0) == (60.0, False, "tests")
    assert builder.state.node_links(("n1",), 20.0)[0].contradicted_s == 20.0


def test_traffic_raises_a_lower_bound_of_tests() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.bandwidth("n1", "n2", 60.0, 0.0, lower_bound=True)
    carry(builder, 10.0, used_mbps=70.0, link_mbps=1000.0)
    assert believed(builder, 10.0) == (70.0, True, "counters")


def test_without_tests_the_interface_counts() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.state = TelemetryState(TTL, is_passive=True)
    carry(builder, 0.0, used_mbps=20.0)  # the speed of Wi-Fi is unknown
    assert believed(builder, 0.0) == (20.0, True, "counters")
    carry(builder, 10.0, used_mbps=5.0, link_mbps=1000.0)
    assert believed(builder, 10.0) == (1000.0, False, "interface")
    assert builder.state.metrics(table("n1"), 10.0).bandwidth_mbps.tolist() == [1000.0]


def test_round_trips_that_jump_with_two_peers_ask_for_a_test() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    for at_s in (0.0, 10.0):
        builder.rtt("n1", "n2", 2.0, at_s)
        builder.rtt("n1", "n3", 2.0, at_s)
    builder.rtt("n1", "n2", 40.0, 20.0)
    assert builder.state.node_links(("n1",), 20.0)[0].contradicted_s == -np.inf
    builder.rtt("n3", "n1", 30.0, 25.0)
    jumped = {x.name: x.contradicted_s for x in builder.state.node_links(("n1", "n2", "n3"), 25.0)}
    assert jumped == {"n1": 25.0, "n2": -np.inf, "n3": -np.inf}


def test_a_result_about_an_unknown_node_is_ignored() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.bandwidth("n1", "n2", 90.0, 0.0)
    builder.bandwidth("n1", "never-heard", 999.0, 10.0)
    builder.bandwidth("never-heard", "n1", 999.0, 10.0)
    assert builder.state.board("n1", 10.0).values == {"bandwidth_mbps": (90.0, 10.0)}
    assert [link.bandwidth_mbps for link in builder.state.links(10.0)] == [90.0]


def test_only_a_changed_bandwidth_counts_as_a_change() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    told = [builder.state.bandwidth_changes]
    for peer, mbps, at_s in (
        ("n2", 90.0, 0.0),
        ("n2", 90.0, 10.0),
        ("n3", 10.0, 30.0),  # n1 has a better link
        ("n2", 90.0, 40.0),
    ):
        builder.bandwidth("n1", peer, mbps, at_s)
        told.append(builder.state.bandwidth_changes)
    assert [after > before for before, after in pairwise(told)] == [True, False, True, False]
    builder.state.metrics(table("n1"), 41.0 + TTL.bandwidth_s)  # it is unknown now
    builder.bandwidth("n1", "n2", 80.0, 50.0 + TTL.bandwidth_s)
    assert builder.state.bandwidth_changes > told[-1]


def test_what_is_known_of_a_link_has_its_speed_traffic_and_last_peer() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    reading = BoardReading({"link_mbps": 1000.0, "used_mbps": 12.0})
    builder.state.report("n1", builder.stamp("n1", measured_s=100.0), reading)
    builder.bandwidth("n1", "n2", 400.0, 100.0)
    (n1, n3) = builder.state.node_links(("n1", "n3"), 110.0)
    assert (n1.link_mbps, n1.used_mbps, n1.last_peer) == (1000.0, 12.0, "n2")
    assert n1.bandwidth is not None
    assert (n1.bandwidth.mbps, n1.bandwidth.at_s) == (400.0, 100.0)
    assert n3 == NodeLink("n3")
    (late,) = builder.state.node_links(("n1",), 100.0 + TTL.bandwidth_s + 1)
    assert (late.link_mbps, late.used_mbps, late.bandwidth) == (None, 0.0, None)


def test_a_short_test_between_far_nodes_is_a_lower_bound() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    builder.rtt("n1", "n2", 40.0, 100.0)
    builder.rtt("n1", "n3", 1.0, 100.0)
    near, far = (
        BandwidthTest("n1", "n3", 9.0, 0.1, 100.0),
        BandwidthTest("n1", "n2", 9.0, 0.075, 99.0),
    )
    builder.state.bandwidth(far)
    builder.state.bandwidth(near)
    bounds = {(x.a, x.b): x.lower_bound for x in builder.state.links(100.0) if x.bandwidth_mbps}
    assert bounds == {("n1", "n2"): True, ("n1", "n3"): False}
    assert builder.state.rtt_ms("n2", "n1", 100.0) == 40.0
    assert builder.state.rtt_ms("n2", "n3", 100.0) is None


def test_columns_follow_the_node_table_and_include_new_boards() -> None:
    builder = TelemetryBuilder("n2")
    builder.report("n2", 2.0, at_s=100.0)
    nodes = table("n1", "n2", "n3")
    assert builder.state.metrics(nodes, 100.0).cpu_percent[1] == 2.0
    builder.report("n3", 3.0, at_s=100.0)
    builder.report("n1", 1.0, at_s=100.0)
    assert builder.state.metrics(nodes, 100.0).cpu_percent.tolist() == [1.0, 2.0, 3.0]
    assert builder.state.metrics(table("n3", "n1"), 100.0).cpu_percent.tolist() == [3.0, 1.0]
    assert builder.state.metrics(nodes, 100.0).cpu_percent.tolist() == [1.0, 2.0, 3.0]


def test_a_report_of_one_of_many_boards_counts_within_a_tenth_of_a_second() -> None:
    names = [f"n{i:03}" for i in range(600)]
    builder = TelemetryBuilder(*names)
    nodes = table(*names)
    builder.report("n000", 1.0, at_s=100.0)
    before = builder.state.metrics(nodes, 100.01)
    builder.report("n000", 2.0, at_s=100.0)
    assert builder.state.metrics(nodes, 100.02) is before
    assert builder.state.metrics(nodes, 100.11).cpu_percent[0] == 2.0


def test_a_bandwidth_and_a_new_board_among_many_count_at_once() -> None:
    names = [f"n{i:03}" for i in range(600)]
    builder = TelemetryBuilder(*names[1:])
    nodes = table(*names)
    builder.report("n001", 1.0, at_s=100.0)
    assert np.isnan(builder.state.metrics(nodes, 100.01).bandwidth_mbps).all()
    builder.bandwidth("n001", "n002", 90.0, 100.01)
    assert builder.state.metrics(nodes, 100.01).bandwidth_mbps[1] == 90.0
    builder.report("n000", 7.0, at_s=100.01)
    assert builder.state.metrics(nodes, 100.01).cpu_percent[0] == 7.0


def test_the_columns_grow_with_the_boards() -> None:
    names = [f"n{i:03}" for i in range(200)]
    builder = TelemetryBuilder(*names)
    for i, name in enumerate(names):
        builder.report(name, float(i), at_s=100.0)
        builder.rtt(name, names[i - 1], i + 1.0, 100.0)
    metrics = builder.state.metrics(table(*names), 100.0)
    assert metrics.cpu_percent.tolist() == [float(i) for i in range(200)]
    links = builder.state.link_table(table(*names), 100.0)
    assert [links.rtt_ms_from(i)[i - 1] for i in range(200)] == [i + 1.0 for i in range(200)]


def test_later_reports_do_not_change_a_view() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n1", 1.0, at_s=100.0)
    metrics = builder.state.metrics(table("n1"), 100.0)
    builder.report("n1", 2.0, at_s=101.0)
    assert metrics.cpu_percent[0] == 1.0


def test_links_without_fresh_values_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "_FEW_LINKS", 3)
    names = [f"n{i:02}" for i in range(12)]
    builder = TelemetryBuilder(*names)
    for i, name in enumerate(names[1:]):
        builder.rtt(name, "n00", float(i), 100.0)
    builder.rtt("n11", "n10", 5.0, 1000.0)
    builder.bandwidth("n11", "n00", 90.0, 1000.0, lower_bound=True)
    before = builder.state.links(1000.0)
    builder.state.set_members(None, 1000.0)
    assert builder.state.links(1000.0) == before
    assert len(builder.state._links._rows) == 1
    assert len(builder.state._links.tests._tests) == 1
    assert builder.state.board("n11", 1000.0).values.keys() == {"bandwidth_mbps"}
    builder.rtt("n01", "n00", 7.0, 1001.0)
    seen = builder.state.link_table(table(*names), 1001.0)
    assert seen.rtt_ms_from(0)[1] == 7.0
    assert seen.rtt_ms_from(11)[10] == 5.0
    (link,) = [x for x in builder.state.links(1001.0) if x.bandwidth_mbps]
    assert (link.a, link.b, link.lower_bound) == ("n00", "n11", True)


# Births and deaths.


def test_a_birth_means_online_but_a_retained_one_does_not() -> None:
    builder = TelemetryBuilder()
    assert builder.birth("kept", retained=True)
    assert builder.state.agents()["kept"].online is None
    assert builder.birth("live")
    assert builder.state.agents()["live"].online is True


def test_a_status_may_arrive_before_the_retained_birth() -> None:
    builder = TelemetryBuilder()
    builder.state.status("n1", BOOT_ID, 1, online=True)
    builder.birth("n1", address="192.0.2.7", retained=True)
    assert builder.state.agents()["n1"] == Agent("n1", online=True, address="192.0.2.7")


def test_a_will_of_an_earlier_session_is_ignored() -> None:
    builder = TelemetryBuilder("n1")
    builder.birth("n1", session=2)
    builder.state.status("n1", BOOT_ID, 1, online=False)
    assert builder.state.agents()["n1"].online is True
    builder.state.status("n1", BOOT_ID, 2, online=False)
    assert builder.state.agents()["n1"].online is False


def test_an_old_birth_is_ignored() -> None:
    builder = TelemetryBuilder("n1")
    builder.birth("n1", "192.0.2.2", session=2)
    assert not builder.birth("n1", "192.0.2.3", session=1, measured_boot_ms=1000)
    assert builder.state.agents()["n1"].address == "192.0.2.2"


# Round trips.


def links(
    builder: TelemetryBuilder, now_s: float
) -> dict[tuple[str, str], tuple[float | None, str]]:
    return {(x.a, x.b): (x.rtt_ms, x.rtt_method) for x in builder.state.links(now_s)}


def test_a_round_trip_belongs_to_both_nodes_and_expires() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.rtt("n2", "n1", 1.5, 100.0)
    assert links(builder, 100.0) == {("n1", "n2"): (1.5, "icmp")}
    seen = builder.state.link_table(table("n1", "n2"), 280.0)
    assert seen.rtt_ms_from(0)[1] == seen.rtt_ms_from(1)[0] == 1.5
    assert links(builder, 280.1) == {}
    gone = builder.state.link_table(table("n1", "n2"), 281.0)
    assert np.isnan(gone.rtt_ms_from(0)).all()


def test_the_newer_measurement_counts_from_either_end() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.rtt("n1", "n2", 1.0, 100.0)
    builder.rtt("n2", "n1", 9.0, 50.0)  # from the other end's buffer
    builder.bandwidth("n1", "n2", 90.0, 100.0)
    builder.bandwidth("n2", "n1", 9.0, 50.0, lower_bound=True)
    (link,) = builder.state.links(100.0)
    assert (link.rtt_ms, link.rtt_at_s) == (1.0, 100.0)
    assert (link.bandwidth_mbps, link.bandwidth_at_s, link.lower_bound) == (90.0, 100.0, False)


def test_an_echo_without_reply_and_an_unknown_peer_make_no_link() -> None:
    builder = TelemetryBuilder("n1", "n2")
    assert builder.rtt("n1", "n2", None, 100.0)
    assert builder.rtt("n1", "n1", 1.0, 100.0)
    assert builder.rtt("n1", "never-heard", 1.0, 100.0)
    assert links(builder, 100.0) == {}


def test_two_legs_to_the_broker_bound_the_round_trip() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    builder.rtt("n1", BROKER, 2.0, 100.0)
    builder.rtt("n2", BROKER, 3.0, 90.0)
    builder.rtt("n3", BROKER, 5.0, 100.0)
    builder.rtt("n1", "n3", 1.0, 100.0)
    expected = {
        ("n1", "n2"): (5.0, "mqtt"),
        ("n1", "n3"): (1.0, "icmp"),
        ("n2", "n3"): (8.0, "mqtt"),
    }
    assert links(builder, 100.0) == expected
    (n1_n2,) = [x for x in builder.state.links(100.0) if (x.a, x.b) == ("n1", "n2")]
    assert n1_n2.rtt_at_s == 90.0  # as old as its older leg
    seen = builder.state.link_table(table("n1", "n2", "n3"), 100.0)
    assert seen.rtt_ms_from(1).tolist() == [5.0, pytest.approx(NAN, nan_ok=True), 8.0]
    assert set(links(builder, 271.0)) == {("n1", "n3")}


def test_a_link_has_a_bandwidth_and_a_round_trip_over_the_broker() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.rtt("n1", BROKER, 2.0, 100.0)
    builder.rtt("n2", BROKER, 3.0, 100.0)
    builder.bandwidth("n1", "n2", 90.0, 100.0, lower_bound=True)
    (link,) = builder.state.links(100.0)
    assert (link.rtt_ms, link.rtt_method) == (5.0, "mqtt")
    assert link.lower_bound
    assert link.bandwidth_mbps == pytest.approx(90 * 0.0001 / 0.0051)


def test_broker_legs_are_bounded_and_old_ones_are_replaced() -> None:
    old, new = [f"a{i:02}" for i in range(64)], ["b1", "b2"]
    builder = TelemetryBuilder(*old, *new)
    for name in old:
        builder.rtt(name, BROKER, 1.0, 100.0)
    builder.rtt("b1", BROKER, 1.0, 101.0)
    assert len(links(builder, 101.0)) == 64 * 63 // 2
    for name in new:
        builder.rtt(name, BROKER, 1.0, 300.0)
    assert links(builder, 300.0) == {("b1", "b2"): (2.0, "mqtt")}
    pairs = builder.state.pairs(300.0)
    assert [[pairs.names[each] for each in pair] for pair in pairs.ends.tolist()] == [["b1", "b2"]]
    assert (pairs.rtt_ms.tolist(), pairs.error_ms.tolist()) == ([2.0], [2.0])
    assert len(builder.state.pairs(300.0, by_broker=False).ends) == 0


def test_the_table_of_links_follows_nodes_values_and_time() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    nodes = table("n1", "n2")
    builder.rtt("n1", "n2", 1.0, 100.0)
    builder.rtt("n1", "n3", 7.0, 100.0)
    first = builder.state.link_table(nodes, 100.0)
    assert builder.state.link_table(nodes, 100.5) is first
    builder.rtt("n1", "n2", 2.0, 100.0)
    assert builder.state.link_table(nodes, 100.5).rtt_ms_from(0)[1] == 1.5  # the median
    assert builder.state.link_table(table("n3", "n1"), 100.5).rtt_ms_from(0)[1] == 7.0
    assert np.isnan(builder.state.link_table(nodes, 300.0).rtt_ms_from(0)).all()


def test_throttling_is_known_while_the_report_is_fresh() -> None:
    builder = TelemetryBuilder("n1")
    reading = BoardReading({"cpu_celsius": 80.0}, ["throttled"])
    builder.state.report("n1", builder.stamp("n1", measured_s=100.0), reading)
    assert builder.state.board("n1", 100.0).report == reading
    assert builder.state.board("n1", 100.0).values == {"cpu_celsius": (80.0, 0.0)}


def test_pairs_that_are_too_old_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MAX_LINKS", 10)
    names = [f"n{i}" for i in range(6)]
    builder = TelemetryBuilder(*names)
    pairs = list(combinations(names[:5], 2))
    for at, (a, b) in enumerate(pairs):
        builder.rtt(a, b, 1.0 + at, 0.0 if at in (0, 5) else 200.0)
    builder.rtt("n0", "n5", 20.0, 200.0)
    assert builder.state.refused == {"too_many_pairs": 1}
    builder.state.set_members(set(names), 200.0)  # two rows of ten are too old
    builder.state.set_members(set(names), 211.0)
    builder.rtt("n0", "n5", 20.0, 211.0)
    builder.rtt("n1", "n5", 21.0, 211.0)
    builder.rtt("n2", "n5", 22.0, 211.0)
    assert builder.state.refused == {"too_many_pairs": 2}
    found = {(link.a, link.b): link.rtt_ms for link in builder.state.links(211.0)}
    kept = {pair: 1.0 + at for at, pair in enumerate(pairs) if at not in (0, 5)}
    assert found == {**kept, ("n0", "n5"): 20.0, ("n1", "n5"): 21.0}


def test_the_links_of_one_node_are_those_of_all_that_have_it() -> None:
    names = [f"n{i}" for i in range(8)]
    builder = TelemetryBuilder(*names)
    for a, b in combinations(names[:7], 2):
        if (a, b) not in (("n0", "n1"), ("n2", "n3")):
            builder.rtt(a, b, 5.0 + int(a[1]) + int(b[1]), 100.0)
    for at_s in (101.0, 102.0, 103.0):
        builder.rtt("n0", "n2", None, at_s)
    builder.bandwidth("n0", "n7", 90.0, 104.0)
    builder.bandwidth("n3", "n4", 80.0, 104.0)
    builder.state.estimate_rtts(105.0)
    every = builder.state.links(105.0, ("n0",))
    of_n0 = builder.state.links(105.0, ("n0",), "n0")
    assert {link.rtt_source for link in of_n0} >= {"measured", "unreachable", ""}
    assert {link.b for link in of_n0} == {"n1", "n2", "n3", "n4", "n5", "n6", "n7"}
    assert of_n0 == [link for link in every if "n0" in (link.a, link.b)]
    assert builder.state.links(105.0, (), "nobody") == []

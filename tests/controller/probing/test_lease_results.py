"""Results of leases."""

from typing import Any

import pytest
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_wire import topics
from leadline_wire.codec import encode, kind_of
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.harness import ProbeHarness
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages


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


def test_a_peer_that_stops_replying_is_noticed_although_it_is_tested_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ingest = IngestHarness()
    n1 = ingest.boards["n1"]
    sources = []
    for at_s in range(101, 171, 10):
        ingest.harness.probe_scheduler.tick(float(at_s))
        monkeypatch.setattr(ingest.harness.probe_scheduler, "is_under_test", lambda *_: True)
        message = n1.rtt(("n2", 1.0 if at_s == 101 else None))
        message.peers[0].received = 3 if at_s == 101 else 0
        topic = n1.topic(topics.Kind.RTT)
        ingest.ingestor.ingest(topic, encode(message), topics.SCHEMA, at_s, retained=False)
        sources += [link.rtt_source for link in ingest.state.links(at_s)]
    assert sources == [*["measured"] * 6, "unreachable"]

"""Which of the boards' reports of traffic count, and what waits for the graph."""

from math import inf

import pytest
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.telemetry.traffic import BoardTraffic, CountedFlow, TrafficReports
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages, payload

NOW_S = 1000.0
WEB, DB, NODE = bytes((10, 42, 1, 5)), bytes((10, 42, 2, 6)), bytes((192, 0, 2, 1))
FLOW = pb.Flow(
    source=WEB,
    destination=DB,
    port=5432,
    bytes_sent=1,
    bytes_received=2,
    packets_sent=3,
    packets_received=4,
    connections=5,
    translated_source=NODE,
    translated=True,
)


class Ingest:
    """An ingestor, and a board."""

    def __init__(self) -> None:
        self.state = TelemetryState(TimesToLive())
        self.ingestor = TelemetryIngestor(CLUSTER, self.state, PermissiveLeases())
        self.board = BoardMessages("n1")

    def take(
        self, message: codec.TelemetryMessage, sent_s: float = NOW_S, *, retained: bool = False
    ) -> None:
        topic = self.board.topic(codec.kind_of(message))
        self.ingestor.ingest(topic, payload(message), topics.SCHEMA, sent_s, retained=retained)

    def waiting(self, now_s: float = NOW_S) -> list[BoardTraffic]:
        return self.state.traffic.take(now_s)


@pytest.fixture
def ingest() -> Ingest:
    made = Ingest()
    made.take(made.board.birth())
    return made


def test_a_report_waits_with_the_time_at_which_it_was_counted(ingest: Ingest) -> None:
    ingest.take(ingest.board.traffic(FLOW, age_ms=2500, omitted_bytes=77))
    flow = CountedFlow(
        *("10.42.1.5", "10.42.2.6", 5432, 1, 2, 3, 4, 5),
        translated_source="192.0.2.1",
        translated=True,
    )
    assert ingest.waiting() == [BoardTraffic("n1", 997.5, 60.0, (flow,), 77)]
    assert ingest.waiting() == []
    assert ingest.state.accepted_kinds["traffic"] == 1


def test_an_address_of_ipv6_is_text_in_canonical_form(ingest: Ingest) -> None:
    mapped = bytes(10) + b"\xff\xff" + WEB
    ingest.take(ingest.board.traffic(pb.Flow(source=mapped, destination=b"\xfd" + bytes(15))))
    ((flow,),) = [report.flows for report in ingest.waiting()]
    assert (flow.source, flow.destination, flow.translated_source) == ("10.42.1.5", "fd00::", "")


def test_a_second_report_within_half_a_minute_does_not_count(ingest: Ingest) -> None:
    for sent_s in (NOW_S, NOW_S + 29.0, NOW_S + 58.0):
        ingest.take(ingest.board.traffic(FLOW), sent_s)
    assert [report.counted_s for report in ingest.waiting()] == [NOW_S, NOW_S + 58.0]
    assert ingest.state.refused == {"too_often": 1}
    # Its number is known, so it does not count as lost.
    assert ingest.state.board("n1", NOW_S).lost == 0


def test_a_report_that_nobody_can_date_does_not_count(ingest: Ingest) -> None:
    ingest.take(ingest.board.traffic(FLOW, age_ms=None))
    ingest.take(ingest.board.traffic(FLOW), -inf)
    ingest.take(ingest.board.traffic(FLOW), retained=True)
    assert ingest.waiting() == []
    assert ingest.state.accepted_kinds["traffic"] == 0
    assert ingest.state.refused == {"late": 2, "too_old": 1}


def test_a_report_that_comes_twice_counts_once(ingest: Ingest) -> None:
    message = ingest.board.traffic(FLOW)
    ingest.take(message)
    ingest.take(message, NOW_S + 40.0)
    assert len(ingest.waiting()) == 1
    assert ingest.state.refused == {"duplicate": 1}


def test_what_is_older_than_ten_minutes_is_dropped(ingest: Ingest) -> None:
    ingest.take(ingest.board.traffic(FLOW, age_ms=540_000))
    ingest.take(ingest.board.traffic(FLOW, age_ms=1000))
    assert [report.counted_s for report in ingest.waiting(NOW_S + 61.0)] == [NOW_S - 1]


def report(node: str, counted_s: float) -> BoardTraffic:
    return BoardTraffic(node, counted_s, 60.0, ())


def test_of_each_board_the_newest_twelve_wait() -> None:
    reports = TrafficReports()
    assert reports.is_empty()
    for minute in range(20):
        reports.add(report("n1", 60.0 * minute))
    reports.add(report("n2", 0.0))
    assert not reports.is_empty()
    taken = reports.take(600.0)
    assert [each.counted_s for each in taken if each.node == "n1"] == [
        60.0 * minute for minute in range(8, 20)
    ]
    assert [each.node for each in taken].count("n2") == 1


def test_invented_boards_take_a_bounded_room_and_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leadline_controller.telemetry.traffic._MOST_BOARDS", 5)
    reports = TrafficReports()
    for number in range(9):
        reports.add(report(f"x{number}", NOW_S))
    assert len(reports.take(NOW_S)) == 5
    reports.add(report("n1", NOW_S + 601.0))
    assert reports.take(NOW_S + 601.0) == []
    reports.add(report("n1", NOW_S + 601.0))
    assert len(reports.take(NOW_S + 601.0)) == 1

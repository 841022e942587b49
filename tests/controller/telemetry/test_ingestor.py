import logging
from collections.abc import Callable
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from leadline_controller.framework.view import NodeTable
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.builders import node
from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import BOOT_ID, CLUSTER, BoardMessages, payload
from tests.support.examples import examples

NOW_S = 1000.0
SCHEMA = topics.SCHEMA


class IngestHarness:
    """An ingestor with its state and recorded leases."""

    def __init__(self) -> None:
        self.state = TelemetryState(TimesToLive())
        self.leases = PermissiveLeases()
        self.births, self.tests = self.leases.births, self.leases.tests
        self.ingestor = TelemetryIngestor(CLUSTER, self.state, self.leases)

    def take(
        self,
        board: BoardMessages,
        message: codec.TelemetryMessage,
        *,
        sent_s: float = NOW_S,
        retained: bool = False,
    ) -> None:
        topic = board.topic(codec.kind_of(message))
        self.ingestor.ingest(topic, payload(message), SCHEMA, sent_s, retained=retained)

    def snapshot(self) -> Any:
        """All readable content of the state except the count of refusals."""
        names = sorted(self.state.agents())
        return (
            self.state.agents(),
            self.state.accepted,
            self.state.links(NOW_S),
            [self.state.board(name, NOW_S) for name in names],
        )


@pytest.fixture
def ingest() -> IngestHarness:
    return IngestHarness()


@pytest.fixture
def board(ingest: IngestHarness) -> BoardMessages:
    """A board with measurements in the state, which a bad message could corrupt."""
    n1, n2 = BoardMessages("n1"), BoardMessages("n2")
    for one in (n1, n2):
        ingest.take(one, one.birth())
        ingest.take(one, one.report())
    ingest.take(n1, n1.rtt(("n2", 1.5)))
    ingest.take(n1, n1.bandwidth("n2", 90.0))
    return n1


# Valid messages.


def test_a_report_becomes_the_metrics_of_the_papers(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    interfaces = [
        pb.NetworkInterface(
            name=name,
            packets_sent_per_s=sent,
            packets_received_per_s=received,
            bytes_sent_per_s=sent * 1e5,
            bytes_received_per_s=received * 1e5,
            link_mbps=mbps,
        )
        for name, sent, received, mbps in (("wlan0", 20, 30, 54), ("eth0", 100, 50, 1000))
    ]
    report = board.report(
        age_ms=2500,
        cpu=pb.Cpu(busy_percent=12.5, throttled=True, under_voltage=False),
        memory=pb.Memory(total_bytes=4000, available_bytes=3000),
        disk=pb.Disk(read_bytes_per_s=1000, written_bytes_per_s=500),
        network=interfaces,
        temperature=pb.Temperature(cpu_celsius=-3.5),
    )
    ingest.take(board, report)
    assert ingest.state.board("n1", NOW_S).values == {
        "cpu_percent": (12.5, 2.5),
        "memory_percent": (25.0, 2.5),
        "packets_sent_per_s": (120.0, 2.5),
        "packets_received_per_s": (80.0, 2.5),
        "disk_bytes_per_s": (1500.0, 2.5),
        "cpu_celsius": (-3.5, 2.5),
        "link_mbps": (1000.0, 2.5),
        "used_mbps": (80.0, 2.5),
        "bandwidth_mbps": (80.0, 2.5),  # at least, because it just carried this
    }
    seen = ingest.state.board("n1", NOW_S).report
    assert seen is not None
    assert seen.notes == ["throttled"]


@given(st.lists(st.integers(1000, 30_000), min_size=1, max_size=20), st.floats(0, 100, width=32))
def test_a_report_that_comes_early_counts_for_the_time_since_the_one_before(
    gaps_ms: list[int], percent: float
) -> None:
    ingest, board = IngestHarness(), BoardMessages("n1")
    age_ms = sum(gaps_ms)
    ingest.take(board, board.birth())
    ingest.take(board, board.report(age_ms))
    for gap_ms in gaps_ms:
        age_ms -= gap_ms
        ingest.take(board, board.report(age_ms, cpu=pb.Cpu(busy_percent=percent)))
        interval_s, _ = ingest.state.report_timing("n1")
        assert interval_s == pytest.approx(gap_ms / 1000)
    known = ingest.state.board("n1", NOW_S)
    assert (known.values["cpu_percent"], known.lost) == ((percent, 0.0), 0)


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"cpu": pb.Cpu(load_1m=1)}, "cpu_percent"),
        ({"memory": pb.Memory(available_bytes=0)}, "memory_percent"),
        ({"memory": pb.Memory(total_bytes=4000)}, "memory_percent"),
        ({"memory": pb.Memory(total_bytes=0, available_bytes=0)}, "memory_percent"),
        ({"disk": pb.Disk(read_bytes_per_s=5)}, "disk_bytes_per_s"),
        ({"disk": pb.Disk(written_bytes_per_s=5)}, "disk_bytes_per_s"),
        ({"temperature": pb.Temperature()}, "packets_sent_per_s"),
        (
            {"network": [pb.NetworkInterface(packets_sent_per_s=5)]},
            "packets_received_per_s",
        ),
        (
            {"network": [pb.NetworkInterface(packets_received_per_s=5)]},
            "packets_sent_per_s",
        ),
        (
            {
                "network": [
                    pb.NetworkInterface(packets_sent_per_s=5, packets_received_per_s=5),
                    pb.NetworkInterface(name="new", packets_sent_per_s=5),
                ]
            },
            "packets_received_per_s",
        ),
    ],
)
def test_a_missing_value_is_unknown_and_not_zero(
    ingest: IngestHarness, fields: dict[str, Any], unknown: str
) -> None:
    board = BoardMessages("n1")
    ingest.take(board, board.report(**fields))
    assert ingest.state.accepted == 1
    assert unknown not in ingest.state.board("n1", NOW_S).values
    column = getattr(ingest.state.metrics(NodeTable([node("n1")]), NOW_S), unknown)
    assert isnan(column[0])


def test_the_known_half_of_an_interface_is_still_known(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    ingest.take(board, board.report(network=[pb.NetworkInterface(packets_sent_per_s=5)]))
    assert set(ingest.state.board("n1", NOW_S).values) == {"packets_sent_per_s"}


@pytest.mark.parametrize(("sent", "received"), [(5.0, None), (None, 5.0)])
def test_traffic_is_unknown_unless_both_directions_are_known(
    ingest: IngestHarness, sent: float | None, received: float | None
) -> None:
    board = BoardMessages("n1")
    interface = pb.NetworkInterface(
        link_mbps=100, bytes_sent_per_s=sent, bytes_received_per_s=received
    )
    ingest.take(board, board.report(network=[interface]))
    assert set(ingest.state.board("n1", NOW_S).values) == {"link_mbps"}


def test_a_report_of_one_end_without_a_result_changes_no_bandwidth(
    ingest: IngestHarness, board: BoardMessages
) -> None:
    ingest.take(board, board.bandwidth("n2", None, lease_id="x-2"))
    assert ingest.tests[-1] == ("n1", "x-2")
    assert ingest.state.board("n1", NOW_S).values["bandwidth_mbps"][0] == 90.0
    assert ingest.state.refused == {}


def test_births_and_finished_tests_reach_the_probe_scheduler(
    ingest: IngestHarness, board: BoardMessages
) -> None:
    assert ingest.births == ["n1", "n2"]
    assert ingest.tests == [("n1", "x-1")]
    agent = ingest.state.agents()["n1"]
    assert (agent.address, agent.probes, agent.online) == ("192.0.2.1", ("icmp", "iperf3"), True)


def test_the_texts_of_a_birth_are_shortened(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    birth = board.birth("a" * 500, ["p" * 500] * 50, agent_version="v" * 500)
    ingest.take(board, birth)
    agent = ingest.state.agents()["n1"]
    assert (len(agent.address), len(agent.version), len(agent.probes)) == (120, 120, 16)
    assert {len(probe) for probe in agent.probes} == {120}


def test_the_texts_of_a_birth_have_no_control_characters(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    ingest.take(board, board.birth("a\nb", hardware_model="\x1b[2JPi 5", agent_version="1\r2"))
    agent = ingest.state.agents()["n1"]
    assert (agent.address, agent.hardware_model, agent.version) == ("ab", "[2JPi 5", "12")


def test_which_collectors_failed_is_kept_short_and_without_control_characters(
    ingest: IngestHarness,
) -> None:
    board = BoardMessages("n1")
    failed = pb.CollectorRun.FAILED
    runs = [
        pb.CollectorRun(name="cpu", outcome=pb.CollectorRun.OK),  # as the first release sends it
        pb.CollectorRun(name="temperature", outcome=pb.CollectorRun.ABSENT),
        pb.CollectorRun(name="disk", outcome=failed, why="EIO\x1b[2J" + "x" * 500),
        *(pb.CollectorRun(name=f"{number:02}" * 50, outcome=failed) for number in range(60)),
    ]
    report = board.report(cpu=pb.Cpu(load_1m=0.5, frequency_mhz=600), collectors=runs)
    ingest.take(board, report)
    reading = ingest.state.board("n1", NOW_S).report
    assert reading is not None
    assert (reading.collectors["cpu"], reading.collectors["disk"]) == (True, False)
    assert len(reading.failed) == 16
    assert reading.failed["disk"].startswith("EIO[2Jx")
    assert reading.notes[0] == f"disk failed: {reading.failed['disk']}"
    assert max(len(text) for each in reading.failed.items() for text in each) <= 200
    measured = ingest.state.board("n1", NOW_S).values
    assert (measured["load_1m"][0], measured["frequency_mhz"][0]) == (0.5, 600)


def test_a_birth_says_what_the_board_is(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    facts: dict[str, Any] = {
        "architecture": "aarch64",
        "kernel": "6.1",
        "cores": 4,
        "memory_bytes": 1 << 30,
    }
    ingest.take(board, board.birth(**facts, interval_s=30))
    agent = ingest.state.agents()["n1"]
    assert {name: getattr(agent, name) for name in facts} == facts
    assert agent.interval_s == 30


def test_the_last_will_says_offline(ingest: IngestHarness, board: BoardMessages) -> None:
    ingest.take(board, board.status(online=False), retained=True)
    assert ingest.state.agents()["n1"].online is False
    ingest.take(board, board.status(online=True))
    assert ingest.state.agents()["n1"].online is True


@pytest.mark.parametrize("kind", [topics.Kind.BIRTH, topics.Kind.STATUS])
def test_a_cleared_retained_message_is_not_an_error(
    ingest: IngestHarness, board: BoardMessages, kind: topics.Kind
) -> None:
    before = ingest.snapshot()
    ingest.ingestor.ingest(board.topic(kind), b"", None, NOW_S, retained=False)
    assert ingest.snapshot() == before
    assert ingest.state.refused == {}


@pytest.mark.parametrize(
    ("outcome", "mbps"),
    [
        (pb.BandwidthReport.REFUSED, None),
        (pb.BandwidthReport.FAILED, 55.0),
        (pb.BandwidthReport.ABSENT, None),
        (99, 55.0),
    ],
)
def test_a_failed_test_ends_its_lease_and_is_logged_in_one_line(
    ingest: IngestHarness,
    board: BoardMessages,
    caplog: pytest.LogCaptureFixture,
    outcome: int,
    mbps: float | None,
) -> None:
    with caplog.at_level(logging.INFO):
        message = board.bandwidth("n2", mbps, outcome=outcome, lease_id="x-2", detail="no\nway")
        ingest.take(board, message)
    assert ingest.tests[-1] == ("n1", "x-2")
    assert ingest.state.board("n1", NOW_S).values["bandwidth_mbps"][0] == 90.0
    (record,) = caplog.records
    assert "'no\\nway'" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert ingest.state.refused == {}


# Ages.


def test_the_age_includes_the_time_on_the_board_and_at_the_broker(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    ingest.take(board, board.report(age_ms=3000), sent_s=NOW_S - 7)
    assert ingest.state.board("n1", NOW_S).values == {"cpu_percent": (12.5, 10.0)}


def test_links_have_ages_too(ingest: IngestHarness, board: BoardMessages) -> None:
    ingest.take(board, board.rtt(("n2", 2.5), age_ms=1000), sent_s=NOW_S + 8)
    ingest.take(board, board.bandwidth("n2", 80.0, age_ms=2000), sent_s=NOW_S + 8)
    (link,) = ingest.state.links(NOW_S + 10)
    assert (link.rtt_ms, link.rtt_at_s) == (2.0, NOW_S + 7)  # the median with an earlier 1.5
    assert (link.bandwidth_mbps, link.bandwidth_at_s) == (80.0, NOW_S + 6)


@pytest.mark.parametrize(
    ("age_ms", "sent_s"), [(None, NOW_S), (0, -inf)], ids=["not sent in this boot", "kept"]
)
def test_a_message_of_unknown_age_does_not_become_current(
    ingest: IngestHarness, board: BoardMessages, age_ms: int | None, sent_s: float
) -> None:
    before = ingest.snapshot()
    ingest.take(board, board.report(age_ms, cpu=pb.Cpu(busy_percent=99)), sent_s=sent_s)
    ingest.take(board, board.rtt(("n2", 99.0), age_ms=age_ms), sent_s=sent_s)
    ingest.take(board, board.bandwidth("n2", 99.0, age_ms), sent_s=sent_s)
    assert ingest.snapshot() == before
    assert ingest.state.refused == {"late": 3}


def test_buffered_messages_of_an_earlier_boot_are_late(
    ingest: IngestHarness, board: BoardMessages
) -> None:
    before = ingest.snapshot()
    old = {"boot_id": bytes(16), "session": 9, "sequence": 77}
    ingest.take(board, board.report(None, origin=old, cpu=pb.Cpu(busy_percent=99)))
    assert ingest.snapshot() == before
    ingest.take(board, board.report())
    assert ingest.state.accepted == before[1] + 1


# What is not believed: counted by its kind, the state untouched.

Bad = Callable[[BoardMessages], codec.TelemetryMessage]
BAD: dict[str, tuple[str, Bad]] = {
    "nan": ("not_finite", lambda b: b.report(cpu=pb.Cpu(busy_percent=nan))),
    "infinite": ("not_finite", lambda b: b.report(disk=pb.Disk(read_bytes_per_s=inf))),
    "nan celsius": ("not_finite", lambda b: b.report(temperature=pb.Temperature(cpu_celsius=nan))),
    "nan among interfaces": (
        "not_finite",
        lambda b: b.report(network=[pb.NetworkInterface(bytes_sent_per_s=nan)]),
    ),
    "nan rtt": ("not_finite", lambda b: b.rtt(("n2", nan))),
    "infinite rtt": ("not_finite", lambda b: b.rtt(("n2", 1.0), ("n3", inf))),
    "nan bandwidth": ("not_finite", lambda b: b.bandwidth("n2", nan)),
    "negative": ("out_of_range", lambda b: b.report(cpu=pb.Cpu(load_1m=-1))),
    "negative packets": (
        "out_of_range",
        lambda b: b.report(network=[pb.NetworkInterface(packets_sent_per_s=-1)]),
    ),
    "negative rtt": ("out_of_range", lambda b: b.rtt(("n2", -0.1))),
    "negative bandwidth": ("out_of_range", lambda b: b.bandwidth("n2", -1.0)),
    "over 100 %": ("out_of_range", lambda b: b.report(cpu=pb.Cpu(busy_percent=100.5))),
    "more memory than there is": (
        "out_of_range",
        lambda b: b.report(memory=pb.Memory(total_bytes=1, available_bytes=2)),
    ),
    "more replies than requests": (
        "out_of_range",
        lambda b: pb.RttReport(
            origin=b.origin(), timing=b.timing(), peers=[pb.Rtt(peer="n2", sent=1, received=2)]
        ),
    ),
    "too many peers": ("too_long", lambda b: b.rtt(*((f"n{i}", 1.0) for i in range(257)))),
    "future": (
        "future_dated",
        lambda b: pb.Report(
            origin=b.origin(),
            timing=pb.Timing(measured_boot_ms=5001, sent_boot_ms=5000),
            cpu=pb.Cpu(busy_percent=1),
        ),
    ),
    "of another node": ("wrong_node", lambda b: b.report(origin={"node": "n2"})),
    "of nobody": ("wrong_node", lambda b: b.report(origin={"node": ""})),
    "status of another node": (
        "wrong_node",
        lambda b: pb.Status(origin=pb.Origin(node="n2", boot_id=BOOT_ID, session=1)),
    ),
    "boot id": ("broken", lambda b: b.report(origin={"boot_id": b"short"})),
    "no number": ("broken", lambda b: b.report(origin={"sequence": 0})),
    "duplicate": ("duplicate", lambda b: b.report(origin={"sequence": 4})),
    "out of order": ("out_of_order", lambda b: b.report(origin={"sequence": 2})),
    "earlier session": ("late", lambda b: b.report(origin={"session": 0})),
}


@pytest.mark.parametrize(("kind", "make"), BAD.values(), ids=BAD.keys())
def test_a_bad_message_is_counted_and_changes_nothing(
    ingest: IngestHarness, board: BoardMessages, kind: str, make: Bad
) -> None:
    before = ingest.snapshot()
    ingest.take(board, make(board))
    assert ingest.snapshot() == before
    assert ingest.state.refused == {kind: 1}
    told = (list(ingest.births), list(ingest.tests))
    assert told == (["n1", "n2"], [("n1", "x-1")])


GOOD = payload(BoardMessages("n1").report(origin={"sequence": 50}))
RAW: dict[str, tuple[str, str, bytes, str | None]] = {
    "broken": ("broken", "leadline/v1/lab/n1/report", b"\xff\xff\xff", SCHEMA),
    "cut off": ("broken", "leadline/v1/lab/n1/report", GOOD[:-1], SCHEMA),
    "empty": ("broken", "leadline/v1/lab/n1/report", b"", SCHEMA),
    "oversized": ("oversized", "leadline/v1/lab/n1/report", b"x" * 65_537, SCHEMA),
    "no schema": ("unknown_schema", "leadline/v1/lab/n1/report", GOOD, None),
    "later schema": ("unknown_schema", "leadline/v1/lab/n1/report", GOOD, "leadline.v2"),
    "huge schema": ("unknown_schema", "leadline/v1/lab/n1/report", GOOD, "x" * 60_000),
    "wrong cluster": ("topic", "leadline/v1/home/n1/report", GOOD, SCHEMA),
    "wrong node": ("wrong_node", "leadline/v1/lab/n2/report", GOOD, SCHEMA),
    "unknown kind": ("topic", "leadline/v1/lab/n1/gossip", GOOD, SCHEMA),
    "not for us": ("topic", "leadline/v1/lab/n1/lease", GOOD, SCHEMA),
    "other version": ("topic", "leadline/v2/lab/n1/report", GOOD, SCHEMA),
    "too short": ("topic", "leadline/v1", GOOD, SCHEMA),
    "no text": ("topic", "leadline/v1/lab/\ufffd/report", GOOD, SCHEMA),
    "nothing": ("topic", "", GOOD, SCHEMA),
}


@pytest.mark.parametrize(("kind", "topic", "sent", "schema"), RAW.values(), ids=RAW.keys())
def test_bad_bytes_are_counted_and_change_nothing(
    ingest: IngestHarness,
    board: BoardMessages,
    kind: str,
    topic: str,
    sent: bytes,
    schema: str | None,
) -> None:
    before = ingest.snapshot()
    ingest.ingestor.ingest(topic, sent, schema, NOW_S, retained=False)
    assert ingest.snapshot() == before
    assert ingest.state.refused == {kind: 1}


def test_an_internal_error_is_counted_and_logged(
    board: BoardMessages, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(PermissiveLeases):
        def on_birth(self, node: str) -> None:
            raise RuntimeError("a bug\nof two lines")

    state = TelemetryState(TimesToLive())
    ingestor = TelemetryIngestor(CLUSTER, state, Careless())
    ingestor.ingest(
        board.topic(topics.Kind.BIRTH), payload(board.birth()), SCHEMA, NOW_S, retained=False
    )
    assert state.refused == {"unexpected": 1}
    assert "a bug\\nof two lines" in caplog.records[0].getMessage()


# Logs.


def test_a_refusal_is_one_readable_line(
    ingest: IngestHarness, board: BoardMessages, caplog: pytest.LogCaptureFixture
) -> None:
    liar = board.report(origin={"node": "x\n2026-01-01 forged line"})
    ingest.take(board, liar)
    ingest.ingestor.ingest(
        "leadline/v1/lab\nforged/" + "y" * 900, GOOD, SCHEMA, NOW_S, retained=False
    )
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("\n" not in line and len(line) < 400 for line in lines)
    assert "leadline/v1/lab/n1/report" in lines[0]


# Anything at all.

texts = st.text(max_size=40) | st.sampled_from(
    [f"leadline/v1/lab/n1/{kind}" for kind in topics.Kind] + ["leadline/v1/lab/n2/report"]
)
numbers = st.floats(width=32) | st.none()
uints = st.integers(0, 2**64 - 1) | st.none()
origins = st.builds(
    pb.Origin,
    node=st.sampled_from(["n1", "n1", "n1", "n2", ""]),
    boot_id=st.sampled_from([BOOT_ID, BOOT_ID, bytes(16), b""]),
    session=st.integers(0, 3) | uints,
    sequence=st.integers(0, 30) | uints,
)
timings = st.builds(pb.Timing, measured_boot_ms=uints, sent_boot_ms=uints)
interfaces = st.lists(
    st.builds(pb.NetworkInterface, packets_sent_per_s=numbers, packets_received_per_s=numbers),
    max_size=3,
)
stamped = {"origin": origins, "timing": timings}
drawn_messages = st.one_of(
    st.builds(
        pb.Report,
        **stamped,
        cpu=st.builds(pb.Cpu, busy_percent=numbers, throttled=st.booleans() | st.none()),
        memory=st.builds(pb.Memory, total_bytes=uints, available_bytes=uints),
        disk=st.builds(pb.Disk, read_bytes_per_s=numbers, written_bytes_per_s=numbers),
        network=interfaces,
    ),
    st.builds(
        pb.RttReport,
        **stamped,
        peers=st.lists(
            st.builds(pb.Rtt, peer=st.sampled_from(["n1", "n2", "@broker", ""]), rtt_ms=numbers),
            max_size=3,
        ),
    ),
    st.builds(
        pb.BandwidthReport,
        **stamped,
        peer=st.sampled_from(["n2", "", "\n"]),
        outcome=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 4),
        bandwidth_mbps=numbers,
        detail=st.text(max_size=5),
    ),
    st.builds(
        pb.Birth, **stamped, address=st.text(max_size=5), interval_s=st.integers(0, 2**32 - 1)
    ),
    st.builds(pb.Status, origin=origins, online=st.booleans()),
)
some_fuzz = examples(100)


@some_fuzz
@given(
    topic=texts,
    sent=st.binary(max_size=200),
    schema=st.none() | st.just(SCHEMA),
    kept=st.booleans(),
)
@example(topic="leadline/v1/lab/n1/report", sent=GOOD, schema=SCHEMA, kept=True)
def test_no_bytes_raise(topic: str, sent: bytes, schema: str | None, kept: bool) -> None:
    ingest = IngestHarness()
    ingest.ingestor.ingest(topic, sent, schema, NOW_S, retained=kept)
    state = ingest.state
    assert "unexpected" not in state.refused
    assert state.refused.total() + state.accepted <= 1


@some_fuzz
@given(
    st.lists(
        st.tuples(drawn_messages, st.booleans(), st.sampled_from([NOW_S, NOW_S - 50, -inf])),
        min_size=1,
        max_size=12,
    )
)
def test_no_sequence_of_messages_raises_or_corrupts_the_state(
    series: list[tuple[codec.TelemetryMessage, bool, float]],
) -> None:
    ingest = IngestHarness()
    table = NodeTable([node("n1"), node("n2"), node("n3")])
    for message, kept, sent_s in series:
        topic = topics.topic(CLUSTER, "n1", codec.kind_of(message))
        ingest.ingestor.ingest(topic, payload(message), SCHEMA, sent_s, retained=kept)
        assert "unexpected" not in ingest.state.refused
        for value, age_s in ingest.state.board("n1", NOW_S).values.values():
            assert 0 <= value < inf
            assert 0 <= age_s <= TimesToLive().bandwidth_s
        seen = ingest.state.metrics(table, NOW_S)
        assert isnan(seen.cpu_percent[2])
        for link in ingest.state.links(NOW_S):
            assert link.rtt_ms is None or link.rtt_ms >= 0
        assert ingest.state.link_table(table, NOW_S).worst_rtt_ms != inf
        assert 0 <= ingest.state.board("n1", 0.0).lost <= 2**63


def test_a_report_tells_by_how_much_the_boards_clock_is_ahead() -> None:
    state = TelemetryState(TimesToLive())
    ingestor = TelemetryIngestor(CLUSTER, state, PermissiveLeases(), lambda: 1_800_000_000.0)
    board = BoardMessages("n1")

    def sent(ahead_s: float, age_ms: int = 0) -> None:
        report = board.report(age_ms=age_ms)
        report.timing.sent_unix_ms = round(1000 * (1_800_000_000 + NOW_S + ahead_s))
        topic = board.topic(topics.Kind.REPORT)
        ingestor.ingest(topic, payload(report), SCHEMA, NOW_S, retained=False)

    assert state.board("n1", NOW_S).clock_ahead_s is None
    sent(-600)
    assert state.board("n1", NOW_S).clock_ahead_s == pytest.approx(-600)
    sent(3.5, age_ms=5000)  # measured earlier, and sent now
    assert state.board("n1", NOW_S).clock_ahead_s == pytest.approx(3.5)
    assert state.board("n1", NOW_S + 61).clock_ahead_s is None
    ingestor.ingest(
        board.topic(topics.Kind.REPORT), payload(board.report()), SCHEMA, NOW_S, retained=False
    )
    assert state.board("n1", NOW_S).clock_ahead_s is None  # of an agent before this field


def test_a_wall_clock_beyond_all_bounds_is_refused(ingest: IngestHarness) -> None:
    board = BoardMessages("n1")
    report = board.report()
    report.timing.sent_unix_ms = 2**63
    ingest.take(board, report)
    assert ingest.state.refused == {"out_of_range": 1}

"""Agents of another release than the controller: older ones lack fields, newer ones have more.

What the other side does not have costs only what depends on it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from leadline_controller.telemetry.ingestor import OVER_LEASE, TelemetryIngestor
from leadline_controller.telemetry.state import TelemetryState
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.bandwidth_reports import granted, received, sent
from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.telemetry_builder import TTL
from tests.proto.other_wires import first, from_later

NOW_S = 1000.0
Bytes = Callable[[Any], bytes]


class Heard:
    """A controller's state, and what one agent tells it; `spoken` makes bytes of a message."""

    def __init__(self, spoken: Bytes) -> None:
        self.state, self.leases = TelemetryState(TTL), PermissiveLeases()
        self._ingestor = TelemetryIngestor(CLUSTER, self.state, self.leases)
        self._spoken = spoken

    def hear(self, board: BoardMessages, message: Any) -> None:
        topic = board.topic(codec.kind_of(message))
        self._ingestor.ingest(topic, self._spoken(message), topics.SCHEMA, NOW_S, retained=False)

    def known(self) -> Any:
        """All that the state knows."""
        names = sorted(self.state.agents())
        return (
            self.state.agents(),
            self.state.links(NOW_S),
            [self.state.board(name, NOW_S) for name in names],
            self.state.refused,
            self.leases.tests,
        )


def told_by(spoken: Bytes) -> Heard:
    """What is known after an agent has told all that an agent tells."""
    heard = Heard(spoken)
    for message_of in every_message():
        heard.hear(*message_of)
    return heard


def every_message() -> Iterator[tuple[BoardMessages, Any]]:
    n1, n2 = BoardMessages("n1"), BoardMessages("n2")
    for board in (n1, n2):
        yield board, board.birth(agent_version="9.9.9", cores=4)
        yield board, board.status(online=True)
    network = {"packets_sent_per_s": 5, "packets_received_per_s": 6, "link_mbps": 1000}
    yield (
        n1,
        n1.report(
            age_ms=500,
            cpu=pb.Cpu(busy_percent=12.5, throttled=True),
            memory=pb.Memory(total_bytes=4000, available_bytes=3000),
            disk=pb.Disk(read_bytes_per_s=1, written_bytes_per_s=2),
            network=[pb.NetworkInterface(name="eth0", **network)],
            temperature=pb.Temperature(cpu_celsius=40),
            collectors=[pb.CollectorRun(name="cpu", outcome="OK", duration_us=3)],
        ),
    )
    yield n1, n1.rtt(("n2", 1.5))
    yield n2, n2.bandwidth("n1", 90.0, hindrances=["CPU_BOUND"], steady=True)


def test_a_newer_agents_fields_that_nobody_knows_change_nothing() -> None:
    assert told_by(from_later).known() == told_by(codec.encode).known()


def test_of_an_agent_of_the_first_release_all_but_later_fields_is_known() -> None:
    def in_first(message: Any) -> bytes:
        return bytes(first(message).SerializeToString())

    old, new = told_by(in_first).state, told_by(codec.encode).state
    assert old.refused == {}
    assert old.agents() == new.agents()
    measured = dict(new.board("n1", NOW_S).values)
    assert measured.pop("link_mbps") == (1000.0, 0.5)
    assert old.board("n1", NOW_S).values == measured


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_later_hindrance_that_nobody_knows_is_still_one(end: str) -> None:
    grants, hindered = granted(), {"hindrances": [99]}
    grants.report("a", sent(**(hindered if end == "client" else {})), 4.0)
    _, result = grants.report("b", received(**(hindered if end == "server" else {})), 5.0)
    assert result is not None
    assert result.is_hindered


def test_a_later_outcome_that_nobody_knows_is_no_result() -> None:
    grants = granted()
    grants.report("a", sent(), 4.0)
    later = received(outcome=99)
    assert grants.refusal("b", later, 5.0) is None
    charged, result = grants.report("b", later, 5.0)
    assert (bool(charged), result) == (True, None)


def test_a_bandwidth_without_the_time_that_it_was_measured_over_does_not_count() -> None:
    """The first agents did not tell it."""
    assert granted().refusal("b", received(measured_us=None), 5.0) == OVER_LEASE


def test_a_later_kind_of_message_is_refused_and_nothing_else() -> None:
    heard, board = Heard(codec.encode), BoardMessages("n1")
    topic = board.topic(topics.Kind.REPORT).replace("/report", "/weather")
    heard._ingestor.ingest(topic, b"\x0a\x01x", topics.SCHEMA, NOW_S, retained=False)
    heard.hear(board, board.report())
    assert heard.state.refused == {"topic": 1}
    assert heard.state.board("n1", NOW_S).values["cpu_percent"] == (12.5, 0.0)

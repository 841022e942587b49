"""The relay's two halves on a pair of datagram sockets: held, in order, bounded."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from leadline_controller.lab import relay
from leadline_controller.lab.relay import Direction

Ends = tuple[socket.socket, socket.socket, Direction]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Where frames come from, where they go to, and a direction of 10 ms between the two."""
    left, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sink, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for one in (source, sink, right):
        one.setblocking(False)
    yield left, right, Direction(source, sink, delay_s=0.010)
    for one in (left, source, sink, right):
        one.close()


def test_frames_are_held_for_the_delay_and_keep_their_order(ends: Ends) -> None:
    left, right, way = ends
    left.send(b"first")
    way.take(now_s=1.000)
    left.send(b"second")
    way.take(now_s=1.004)
    way.give(now_s=1.009)
    with pytest.raises(BlockingIOError):
        right.recv(100)
    assert way.wait_s(1.009) == pytest.approx(0.001)
    way.give(now_s=1.0101)
    assert right.recv(100) == b"first"
    assert way.wait_s(1.010) == pytest.approx(0.004)
    way.give(now_s=1.5)
    assert right.recv(100) == b"second"
    assert way.wait_s(1.5) is None


def test_a_full_queue_drops_the_newest(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_QUEUED_FRAMES", 2)
    left, right, way = ends
    for frame in (b"1", b"2", b"3"):
        left.send(frame)
    way.take(now_s=0.0)
    assert (len(way.queue), way.dropped) == (2, 1)
    way.give(now_s=1.0)
    assert [right.recv(10), right.recv(10)] == [b"1", b"2"]


def test_a_sink_that_is_full_loses_frames_and_goes_on(ends: Ends) -> None:
    _, right, way = ends
    frames = 2000
    way.queue.extend((0.0, b"x" * 1000) for _ in range(frames))
    way.give(now_s=1.0)
    assert way.dropped > 0
    assert _drain(right) + way.dropped == frames


def _drain(end: socket.socket) -> int:
    received = 0
    with suppress(BlockingIOError):
        while end.recv(2000):
            received += 1
    return received


def test_an_interface_that_is_not_there_ends_it_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        assert relay.main(["none-a", "none-b", "--delay-ms", "1"]) in (0, 1)
    assert "none-a - none-b:" in caplog.text

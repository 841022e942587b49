"""The relay between datagram sockets: delay, order and a bounded queue."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from leadline_lab import relay
from leadline_lab.relay import Direction

Ends = tuple[socket.socket, socket.socket, Direction]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Sockets to send and to receive frames, and a direction of 10 ms between them."""
    left, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    destination, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (source, destination, right):
        end.setblocking(False)
    yield left, right, Direction(source, destination, delay_s=0.010)
    for end in (left, source, destination, right):
        end.close()


def test_frames_are_held_for_the_delay_and_keep_their_order(ends: Ends) -> None:
    left, right, direction = ends
    left.send(b"first")
    direction.receive(now_s=1.000)
    left.send(b"second")
    direction.receive(now_s=1.004)
    direction.send_due(now_s=1.009)
    with pytest.raises(BlockingIOError):
        right.recv(100)
    assert direction.wait_s(1.009) == pytest.approx(0.001)
    direction.send_due(now_s=1.0101)
    assert right.recv(100) == b"first"
    assert direction.wait_s(1.010) == pytest.approx(0.004)
    direction.send_due(now_s=1.5)
    assert right.recv(100) == b"second"
    assert direction.wait_s(1.5) is None


def test_a_full_queue_drops_the_newest(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_QUEUED_FRAMES", 2)
    left, right, direction = ends
    for frame in (b"1", b"2", b"3"):
        left.send(frame)
    direction.receive(now_s=0.0)
    assert (len(direction.queue), direction.dropped) == (2, 1)
    direction.send_due(now_s=1.0)
    assert [right.recv(10), right.recv(10)] == [b"1", b"2"]


def test_a_full_destination_loses_frames_and_the_relay_continues(ends: Ends) -> None:
    _, right, direction = ends
    frames = 2000
    direction.queue.extend((0.0, b"x" * 1000) for _ in range(frames))
    direction.send_due(now_s=1.0)
    assert direction.dropped > 0
    assert _drain(right) + direction.dropped == frames


def _drain(end: socket.socket) -> int:
    received = 0
    with suppress(BlockingIOError):
        while end.recv(2000):
            received += 1
    return received


def test_a_missing_interface_ends_the_relay_with_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        assert relay.main(["none-a", "none-b", "--delay-ms", "1"]) in (0, 1)
    assert "none-a - none-b:" in caplog.text

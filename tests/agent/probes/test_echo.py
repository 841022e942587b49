"""One echo: the kernel's times, what is discarded, and who may answer."""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import ENOPROTOOPT
from pathlib import Path
from typing import Any

import ping3
import pytest
from leadline_agent.probes import echo
from leadline_agent.probes.echo import (
    ClockSetError,
    TimedSocket,
    clock_was_set,
    echo_ms,
    keep_stamping,
)

from tests.support.namespaces import Namespace, linked_namespace

SLOW_S = 0.05  # Python, in a test of what does not count


@pytest.mark.parametrize(
    ("moved_ns", "took_ns", "expected"),
    [
        (0, 1_000_000, False),
        (15_000, 1_000_000, False),  # the thread was preempted
        (500_000, 1_000_000_000, False),  # NTP slews by 500 ppm
        (3_600_000_000_000, 1_000_000, True),
        (-3_600_000_000_000, 1_000_000, True),
        (100_000, 1_000_000, True),
    ],
)
def test_a_clock_that_moves_against_the_other_was_set(
    moved_ns: int, took_ns: int, expected: bool
) -> None:
    assert clock_was_set(moved_ns, took_ns) is expected


class Answered:
    """An echo without a network: what the socket noted, and what ping3 does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rtt_ns = 1000
        self.took_ns = 1_000_000
        self.leads_ns = [0, 0]
        self.failure: Exception | None = None
        monkeypatch.setattr(echo, "_open", self.open)
        monkeypatch.setattr(TimedSocket, "prepare", lambda *_: None)
        monkeypatch.setattr(ping3, "send_one_ping", lambda *_: None)
        monkeypatch.setattr(ping3, "receive_one_ping", self.receive)
        monkeypatch.setattr(echo, "_lead_ns", lambda: self.leads_ns.pop(0))
        clock = iter(range(0, 1 << 62, self.took_ns))
        monkeypatch.setattr(time, "monotonic_ns", lambda: next(clock))

    def open(self, family: socket.AddressFamily) -> TimedSocket:
        return TimedSocket(family, socket.SOCK_DGRAM)

    def receive(self, line: TimedSocket, *_: object) -> float:
        if self.failure:
            raise self.failure
        line.sent_ns, line.received_ns = 1 << 60, (1 << 60) + self.rtt_ns
        return float("nan")  # its own time is not used


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Answered:
    return Answered(monkeypatch)


def test_the_time_between_the_kernels_times_counts(answered: Answered) -> None:
    assert echo_ms("192.0.2.1", 0) == 0.001


@pytest.mark.parametrize("rtt_ns", [0, -1, -4_000_000_000_000, 1_000_001])
def test_a_time_that_the_monotonic_clock_contradicts_is_discarded(
    answered: Answered, rtt_ns: int
) -> None:
    answered.rtt_ns = rtt_ns
    with pytest.raises(ClockSetError):
        echo_ms("192.0.2.1", 0)


@pytest.mark.parametrize("failure", [None, TimeoutError()], ids=["a reply", "no reply"])
def test_an_echo_during_which_the_clock_was_set_is_discarded(
    answered: Answered, failure: Exception | None
) -> None:
    answered.leads_ns, answered.failure = [0, 4_000_000], failure
    with pytest.raises(ClockSetError):
        echo_ms("192.0.2.1", 0)


@pytest.mark.parametrize(
    "failure",
    [TimeoutError(), OverflowError(), struct.error(), IndexError(), KeyError("id"), OSError()],
)
def test_an_exception_is_no_reply(answered: Answered, failure: Exception) -> None:
    answered.failure = failure
    assert echo_ms("192.0.2.1", 0) is None


class ScriptedSocket(TimedSocket):
    """Receives what `arrives` returns, and nothing else."""

    arrives: Callable[[], tuple[bytes, list[Any], int, Any]]

    def recvmsg(self, _size: int, _space: int = 0, flags: int = 0, /) -> Any:
        if flags & socket.MSG_ERRQUEUE:
            raise BlockingIOError
        return self.arrives()


@pytest.fixture
def scripted() -> Iterator[ScriptedSocket]:
    with ScriptedSocket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        yield line


def test_the_packets_of_other_hosts_are_not_received(scripted: ScriptedSocket) -> None:
    stamp = struct.pack("@ll", 7, 5)
    kernels = [(socket.SOL_SOCKET, echo._SO_TIMESTAMPNS, stamp)]
    packets = iter([(b"forged", [], 0, ("192.0.2.9", 0)), (b"reply", kernels, 0, ("192.0.2.1", 0))])
    scripted.arrives = lambda: next(packets)
    scripted.prepare("192.0.2.1", 10.0)
    assert scripted.recvfrom(1500) == (b"reply", ("192.0.2.1", 0))
    assert scripted.received_ns == 7_000_000_005


def test_a_flood_of_other_hosts_ends_with_the_time_out(scripted: ScriptedSocket) -> None:
    scripted.arrives = lambda: (b"forged", [], 0, ("192.0.2.9", 0))
    scripted.prepare("192.0.2.1", 0.01)
    with pytest.raises(TimeoutError):
        scripted.recvfrom(1500)


def test_microseconds_are_taken_from_a_kernel_without_nanoseconds() -> None:
    ancillary = [(socket.SOL_SOCKET, echo._SO_TIMESTAMP, struct.pack("@ll", 7, 5))]
    assert echo._time_ns(ancillary) == 7_000_005_000
    assert echo._time_ns([(socket.IPPROTO_IP, echo._SO_TIMESTAMP, b"")]) == 0


# With real packets.


@pytest.fixture(scope="module")
def other() -> Iterator[Namespace]:
    with linked_namespace() as namespace, keep_stamping():
        yield namespace


@pytest.fixture
def slow_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """ping3 is slow before it sends and before it looks for the reply."""
    send, receive = ping3.send_one_ping, ping3.receive_one_ping

    def slow_send(*arguments: Any) -> None:
        time.sleep(SLOW_S)
        send(*arguments)

    def slow_receive(*arguments: Any) -> Any:
        time.sleep(SLOW_S)
        return receive(*arguments)

    monkeypatch.setattr(ping3, "send_one_ping", slow_send)
    monkeypatch.setattr(ping3, "receive_one_ping", slow_receive)


def measured_ms(address: str) -> float:
    """The quickest of some echoes, as a busy machine may lose one or hold it up."""
    replies: list[float] = []
    for sequence in range(20):
        with suppress(ClockSetError):
            reply = echo_ms(address, sequence)
            replies += [] if reply is None else [reply]
        if len(replies) == 3:
            break
    return min(replies)


def without(*missing: int) -> Callable[..., None]:
    """setsockopt of a kernel that lacks these options."""

    def setsockopt(line: socket.socket, level: int, option: int, *value: Any) -> None:
        if option in missing:
            raise OSError(ENOPROTOOPT, os.strerror(ENOPROTOOPT))
        socket.socket.setsockopt(line, level, option, *value)

    return setsockopt


@pytest.mark.network
@pytest.mark.parametrize("kind", [socket.SOCK_RAW, socket.SOCK_DGRAM], ids=["raw", "unprivileged"])
@pytest.mark.parametrize("version", [4, 6])
def test_the_times_of_python_do_not_count(
    other: Namespace,
    slow_python: None,
    monkeypatch: pytest.MonkeyPatch,
    kind: socket.SocketKind,
    version: int,
) -> None:
    address = other.address if version == 4 else "::1"
    protocol = socket.IPPROTO_ICMP if version == 4 else socket.IPPROTO_ICMPV6
    monkeypatch.setattr(echo, "_open", lambda family: TimedSocket(family, kind, protocol))
    groups = Path("/proc/sys/net/ipv4/ping_group_range")
    before = groups.read_text()
    groups.write_text("0 2147483647")
    try:
        assert 0 < measured_ms(address) < 1000 * SLOW_S
    finally:
        groups.write_text(before)


@pytest.mark.network
@pytest.mark.parametrize(
    ("missing", "has_pythons_time"),
    [
        ([echo._SO_TIMESTAMPNS], False),
        ([echo._SO_TIMESTAMPING], False),
        ([echo._SO_TIMESTAMPNS, echo._SO_TIMESTAMPING], False),  # microseconds of arrival
        ([echo._SO_TIMESTAMPNS, echo._SO_TIMESTAMPING, echo._SO_TIMESTAMP], True),
    ],
    ids=["no nanoseconds", "no sending", "emulated", "nothing"],
)
def test_a_kernel_without_some_times_gives_the_others(
    other: Namespace,
    slow_python: None,
    monkeypatch: pytest.MonkeyPatch,
    missing: list[int],
    has_pythons_time: bool,
) -> None:
    monkeypatch.setattr(TimedSocket, "setsockopt", without(*missing))
    assert (measured_ms(other.address) >= 1000 * SLOW_S) is has_pythons_time


@pytest.mark.network
def test_ping3_sends_and_receives_by_the_socket_that_it_is_given(other: Namespace) -> None:
    """These functions of ping3 are not its documented ones: see the bound in pyproject.toml."""
    with echo._open(socket.AF_INET) as line:
        line.prepare(other.address, 10.0)
        ping3.send_one_ping(line, other.address, 4711, 7, 56)
        assert 0 < line.sent_ns < time.time_ns()
        assert line.received_ns == 0
        assert ping3.receive_one_ping(line, 4711, 7, 10.0) > 0
        assert line.sent_ns < line.received_ns < time.time_ns()

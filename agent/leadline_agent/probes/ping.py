"""Measures round-trip times to the peers of a ping lease, in one thread.

Where ICMP is not permitted, the round trip to the broker is measured instead.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.lease import Peer, PingLease, is_unicast
from leadline_agent.probes.base import Probe, ProbeContext
from leadline_agent.probes.echo import (
    TIMEOUT_S,
    ClockSetError,
    echo_ms,
    icmp_permitted,
    keep_stamping,
)
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
# The name of the peer when a board measured its round trip to the broker.
BROKER = "@broker"
HANG_S = 10.0  # a round that exceeds its time-outs by more than this hangs
# After this many time-outs the round goes on with the next peer.
MAX_TIMEOUTS = 2
MAX_COUNT = 20
MAX_INTERVAL_S, MAX_TTL_S = 3600, 86_400

Echo = Callable[[str, int], float | None]


def summary(peer: str, method: pb.Rtt.Method, replies: Sequence[float | None]) -> pb.Rtt:
    """One peer's round: the median and the population standard deviation of its replies.

    replies: milliseconds, None for a time-out. With the method MQTT the peer is BROKER.
    """
    times_ms = sorted(reply for reply in replies if reply is not None)
    rtt = pb.Rtt(peer=peer, method=method, sent=len(replies), received=len(times_ms))
    if times_ms:
        # Importing `statistics` for it would cost the agent 250 kB of memory.
        middle, mean_ms = len(times_ms) // 2, sum(times_ms) / len(times_ms)
        rtt.rtt_ms = (times_ms[middle] + times_ms[~middle]) / 2
        variance = sum((time_ms - mean_ms) ** 2 for time_ms in times_ms) / len(times_ms)
        rtt.deviation_ms = variance**0.5
    return rtt


def echoes(peer: Peer, count: int, sequence: int, echo: Echo = echo_ms) -> list[float | None]:
    """Up to `count` echoes to one peer, without the discarded ones."""
    replies: list[float | None] = []
    for number in range(count):
        try:
            replies.append(echo(peer.address, (sequence + number) & 0xFFFF))
        except ClockSetError:
            continue
        if replies.count(None) >= MAX_TIMEOUTS:
            break
    return replies


def refusal(lease: PingLease, max_peers: int) -> str:
    """Why this board refuses the lease, as a sentence; "" if it accepts."""
    left_s = lease.expires_s - time.monotonic()
    reasons = {
        f"{len(lease.peers)} peers are asked, {max_peers} are allowed here": (
            len(lease.peers) > max_peers
        ),
        f"{lease.count} echoes are asked, 1 to {MAX_COUNT} are allowed": (
            not 1 <= lease.count <= MAX_COUNT
        ),
        f"a round every {lease.interval_s} s is asked, {MAX_INTERVAL_S} s is the longest": (
            lease.interval_s > MAX_INTERVAL_S
        ),
        f"{left_s:.0f} s are asked, {MAX_TTL_S} s are allowed": left_s > MAX_TTL_S,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


class Ping(Probe):
    """Runs one ping lease at a time; a newer one replaces it."""

    def __init__(
        self,
        context: ProbeContext,
        permitted: Callable[[], bool] = icmp_permitted,
        echo: Echo = echo_ms,
    ) -> None:
        self._has_icmp = permitted()
        super().__init__("ping", ("icmp" if self._has_icmp else "mqtt",))
        self._context = context
        self._echo = echo
        self._sequence = 0
        self._lease: PingLease | None = None
        self._expires_s = 0.0
        self._changed = threading.Condition()
        self._stamping = keep_stamping()
        if not self._has_icmp:
            LOG.warning(
                "ping: ICMP is not permitted (no CAP_NET_RAW, and net.ipv4.ping_group_range is "
                "closed): measuring the round trip to the broker instead"
            )
        self.start()

    def start_lease(self, lease: PingLease) -> None:
        """Start the lease at once; one that equals the current lease only extends it.

        A lease over the board's limits is refused. A peer without a valid address is left out, so
        that the other peers are still measured.
        """
        if reason := refusal(lease, self._context.limits.max_ping_peers):
            LOG.warning("ping: refused a lease: %s", reason)
            return
        for peer in lease.peers:
            if not is_unicast(peer.address):
                LOG.warning(
                    "ping: left out %s: expected an IP address of one host, found %s",
                    *(peer.node, one_line(repr(peer.address), 80)),
                )
        lease = replace(lease, peers=tuple(p for p in lease.peers if is_unicast(p.address)))
        with self._changed:
            self._expires_s = lease.expires_s
            if self._lease is None or lease != replace(self._lease, expires_s=lease.expires_s):
                self._lease = lease
                self._changed.notify()

    def stop(self) -> None:
        """Stop; a running round ends after its current echo."""
        with self._changed:
            self._stopped.set()
            self._lease = None
            self._changed.notify()
        self._end(2 * TIMEOUT_S)
        self._stamping.close()

    def _run(self) -> None:
        round_number = 0
        while (lease := self._wait_for_lease()) is not None:
            start_s = time.monotonic()
            # A round ends after its interval, but its last peer may still use up its time-outs.
            self.begin(max(lease.interval_s, 1) + MAX_COUNT * TIMEOUT_S + HANG_S)
            if samples := self._round(lease, round_number):
                timing = pb.Timing(measured_boot_ms=boot_ms())
                self._context.report(pb.RttReport(timing=timing, peers=samples))
            self.done()
            round_number += 1
            self._sleep(start_s + max(lease.interval_s, 1), lease)

    def _wait_for_lease(self) -> PingLease | None:
        with self._changed:
            while not self._stopped.is_set():
                if self._lease and time.monotonic() < self._expires_s:
                    return self._lease
                self._lease = None
                self._changed.wait()
        return None

    def _sleep(self, until_s: float, lease: PingLease) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._lease is not lease, max(0.0, until_s - time.monotonic())
            )

    def _round(self, lease: PingLease, round_number: int) -> list[pb.Rtt]:
        if not self._has_icmp:
            replies = self._context.broker_rtts_ms()
            return [summary(BROKER, pb.Rtt.MQTT, replies)] if replies else []
        # Peers that time out may use up the round, so each round starts with another peer.
        first = round_number % len(lease.peers) if lease.peers else 0
        deadline_s = time.monotonic() + max(lease.interval_s, 1)
        samples = []
        for peer in lease.peers[first:] + lease.peers[:first]:
            if self._lease is not lease or time.monotonic() > deadline_s:
                break
            replies = echoes(peer, lease.count, self._sequence, self._echo)
            self._sequence += lease.count
            if replies:
                samples.append(summary(peer.node, pb.Rtt.ICMP, replies))
        return samples

"""Measures the available bandwidth to one peer with iperf3, under a lease of the controller.

A lease limits bytes and time. iperf3 can stop at only one of them, so the test runs for the time
and its sender is paced to stay below the bytes; a result at that pace is a lower bound. The client
is iperf3 in a child process, which is monitored because the server can make it start again. The
server is in iperf3_server.
"""

import json
import logging
import math
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.lease import BandwidthLease, is_unicast
from leadline_agent.probes import iperf3_child
from leadline_agent.probes.base import Probe, ProbeContext
from leadline_agent.probes.iperf3_child import EXIT_ABSENT, LIBRARY
from leadline_agent.probes.iperf3_server import (
    ALLOWANCE_BYTES,
    GRACE_S,
    IperfError,
    LeaseExceededError,
    serve,
)
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
LIBRARY_FOLDERS = ("usr/lib/", "usr/lib/*-linux-*/", "usr/local/lib/", "usr/lib64/")
# iperf3 writes in blocks of this size and always completes a block.
BLOCK_BYTES = 128 * 1024
MIN_BYTES = 2 * BLOCK_BYTES
LOWER_BOUND_SHARE = 0.95
# Bounds on what the receiver may claim, as shares of the lease's duration and rate.
SHORTEST_SHARE, HIGHEST_SHARE = 0.9, 1.1
POLL_S = 0.05
MAX_OUTPUT_BYTES = 1 << 20
RETRY_S = 0.3
MAX_TTL_S = 120.0
NOT_LISTENING_YET = "unable to connect"
UNREADABLE = "what iperf3 said cannot be read"


def is_installed() -> bool:
    """Whether the iperf3 program or library is installed. Loads neither."""
    libraries = (file for folder in LIBRARY_FOLDERS for file in Path("/").glob(folder + LIBRARY))
    return shutil.which("iperf3") is not None or next(libraries, None) is not None


def refusal(lease: BandwidthLease, context: ProbeContext, now_s: float) -> str | None:
    """Why this board refuses the lease, as a sentence; None if it accepts."""
    open_s = lease.expires_s - now_s
    most_ms = context.limits.max_bandwidth_duration_ms
    most_bytes = context.limits.max_bandwidth_bytes
    reasons = {
        "the lease has expired": open_s <= 0,
        f"the lease is open for {open_s:.0f} s, over {MAX_TTL_S:g}": open_s > MAX_TTL_S,
        f"{lease.duration_ms} ms are asked, {most_ms} are allowed here": lease.duration_ms
        > most_ms,
        f"{lease.duration_ms} ms are asked, iperf3 needs a second": lease.duration_ms < 1000,
        f"{lease.max_bytes} bytes are asked, {most_bytes} are allowed here": (
            lease.max_bytes > most_bytes
        ),
        f"{lease.max_bytes} bytes are asked, iperf3 needs {MIN_BYTES}": lease.max_bytes < MIN_BYTES,
        f"port {lease.port} is asked, 1024 to 65535 are allowed": not 1024 <= lease.port <= 65535,
        f"{one_line(repr(lease.peer.address), 80)} is no IP address of one host": (
            not is_unicast(lease.peer.address)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def duration_s(lease: BandwidthLease) -> int:
    """The whole seconds for which the test may send."""
    return lease.duration_ms // 1000


def pace_bits_per_s(lease: BandwidthLease) -> int:
    """The sender's rate, bits per second, at which the byte limit lasts for the duration."""
    return (lease.max_bytes - BLOCK_BYTES) * 8 // duration_s(lease)


def parse(text: str, lease: BandwidthLease) -> pb.BandwidthReport:
    """What was measured, from a client's output. Raises IperfError.

    They are the other end's claims, so they are checked against the lease.
    """
    try:
        output = json.loads(text)
        if "error" in output:
            raise IperfError(one_line(f"iperf3: {output['error']}"))
        received, sent = output["end"]["sum_received"], output["end"]["sum_sent"]
        bits_per_s, seconds = float(received["bits_per_second"]), float(received["seconds"])
        transferred_bytes, sent_bytes = int(received["bytes"]), int(sent["bytes"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise IperfError(UNREADABLE) from None
    if transferred_bytes <= 0 or not 0 < bits_per_s < math.inf:
        raise IperfError("nothing arrived at the other end")
    shortest_s, longest_s = SHORTEST_SHARE * duration_s(lease), duration_s(lease) + GRACE_S
    highest_bits_per_s = HIGHEST_SHARE * lease.max_bytes * 8 / duration_s(lease)
    if (
        transferred_bytes > min(sent_bytes, lease.max_bytes + ALLOWANCE_BYTES)
        or not shortest_s <= seconds <= longest_s
        or bits_per_s > highest_bits_per_s
    ):
        raise IperfError(
            f"the other end says that it received {transferred_bytes:.3g} bytes in {seconds:.3g} s "
            f"at {bits_per_s / 1e6:.3g} Mbit/s, which the lease rules out"
        )
    return pb.BandwidthReport(
        bandwidth_mbps=bits_per_s / 1e6,
        lower_bound=bits_per_s >= LOWER_BOUND_SHARE * pace_bits_per_s(lease),
        transferred_bytes=transferred_bytes,
        duration_ms=round(seconds * 1000),
    )


class Iperf3(Probe):
    """Runs one lease at a time, as client or server.

    The client reports how the lease ended. The server reports only failures.
    """

    def __init__(self, context: ProbeContext) -> None:
        super().__init__("bandwidth", ("iperf3",) if is_installed() else ())
        self._context = context
        self._lease_id = ""
        self._lease: BandwidthLease | None = None
        self._changed = threading.Condition()
        self._ended_s = float("-inf")
        self.start()

    def start_lease(self, lease: BandwidthLease) -> None:
        """Start the lease, or report why not. A lease that is delivered twice runs once."""
        if lease.lease_id == self._lease_id:
            return
        reason = refusal(lease, self._context, time.monotonic())
        with self._changed:
            if reason is None and self._lease:
                reason = f"busy with lease {self._lease_id}"
            if reason is None:
                self._lease_id, self._lease = lease.lease_id, lease
                self._changed.notify()
                return
        self._context.report(unmeasured(lease, pb.BandwidthReport.REFUSED, reason))

    def has_loaded_since(self, since_s: float) -> bool:
        """Whether a test is running, or ended after that time."""
        return self._lease is not None or self._ended_s >= since_s

    def stop(self) -> None:
        """Abort a running test."""
        with self._changed:
            self._stopped.set()
            self._changed.notify()
        self._end(GRACE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lease or self._stopped.is_set())
                lease = self._lease
            if lease is None:
                return
            # A test itself may take one GRACE_S to end.
            self.begin(_hard_limit_s(lease) - time.monotonic() + 2 * GRACE_S)
            failure: Exception | None = None
            try:
                result = self._result(lease)
            except Exception as error:  # noqa: BLE001 - the lease is answered, then it is raised
                why = one_line(f"unexpected {type(error).__name__}: {error}")
                failure, result = error, unmeasured(lease, pb.BandwidthReport.FAILED, why)
            self._ended_s = time.monotonic()
            self._lease = None
            if result:
                self._context.report(result)
            if failure:
                raise failure
            self.done()

    def _result(self, lease: BandwidthLease) -> pb.BandwidthReport | None:
        """The result; None where the other end reports it."""
        try:
            if lease.role == pb.BandwidthLease.SERVER:
                serve(lease, self._context.own_address(), self._stopped)
                return None
            result = unmeasured(lease, pb.BandwidthReport.DONE)
            result.MergeFrom(parse(self._measure(lease), lease))
            return result
        except FileNotFoundError:
            reason = "neither libiperf nor iperf3 is installed here"
            return unmeasured(lease, pb.BandwidthReport.ABSENT, reason)
        except (IperfError, OSError) as error:
            reason = one_line(str(error))
            if isinstance(error, LeaseExceededError):
                LOG.warning("bandwidth: the test with %s was %s", lease.peer.node, reason)
            return unmeasured(lease, pb.BandwidthReport.FAILED, reason)

    def _measure(self, lease: BandwidthLease) -> str:
        """iperf3's output. A client retries until the lease expires: the server may start late."""
        while True:
            text = self._run_child(lease)
            too_early = NOT_LISTENING_YET in text
            if not too_early or time.monotonic() + RETRY_S >= lease.expires_s:
                return text
            self._stopped.wait(RETRY_S)

    def _run_child(self, lease: BandwidthLease) -> str:
        spec = {
            "host": lease.peer.address,
            "port": lease.port,
            "bind": self._context.own_address(),
            "duration_s": duration_s(lease),
            "bits_per_s": pace_bits_per_s(lease),
            "limit_s": max(1, round(_hard_limit_s(lease) - time.monotonic())),
        }
        # -P: the module iperf3.py beside that file would hide the library of the same name.
        command = [sys.executable, "-P", iperf3_child.__file__, json.dumps(spec)]
        with subprocess.Popen(  # noqa: S603 - our own file; the lease is one JSON argument
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                text = self._output(child, lease)
            finally:
                child.kill()
        if child.returncode == EXIT_ABSENT:
            raise FileNotFoundError
        return text

    def _output(self, child: subprocess.Popen[bytes], lease: BandwidthLease) -> str:
        """What the child writes until it exits. Raises IperfError when it must be killed."""
        monitor = _LeaseMonitor(child.pid, lease)
        output = b""
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        while True:
            if select.select((child.stdout,), (), (), POLL_S)[0]:
                piece = os.read(child.stdout.fileno(), MAX_OUTPUT_BYTES)
                output += piece
                if len(output) > MAX_OUTPUT_BYTES:
                    raise IperfError(UNREADABLE)
                if not piece:
                    try:
                        child.wait(GRACE_S)
                    except subprocess.TimeoutExpired:
                        raise IperfError("iperf3 did not end") from None
                    return output.decode(errors="replace")
            if self._stopped.is_set():
                raise IperfError("the agent is stopping")
            monitor.check(time.monotonic())


class _LeaseMonitor:
    """Keeps a client's process within its lease; its server can make it start again."""

    def __init__(self, pid: int, lease: BandwidthLease) -> None:
        self._process = psutil.Process(pid)
        self._lease = lease
        self._begun_s: float | None = None
        self._bytes_before = 0

    def check(self, now_s: float) -> None:
        """Raises IperfError (LeaseExceededError is one) when the process must be killed."""
        lease = self._lease
        if self._begun_s is None and self._is_connected():
            self._begun_s, self._bytes_before = now_s, self._moved_bytes()
        if self._begun_s is None:
            if now_s >= lease.expires_s:
                raise IperfError("the other end did not come before the lease expired")
            return
        if self._moved_bytes() - self._bytes_before > lease.max_bytes + ALLOWANCE_BYTES:
            raise LeaseExceededError(f"cut off: more than {lease.max_bytes} bytes were moved")
        if now_s > self._begun_s + duration_s(lease) + GRACE_S:
            raise IperfError("the test did not end in time")

    def _is_connected(self) -> bool:
        try:
            connections = self._process.net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(c.status == psutil.CONN_ESTABLISHED for c in connections)

    def _moved_bytes(self) -> int:
        """Bytes by read and write, as iperf3 uses sockets; 0 if the kernel does not count."""
        try:
            counters = self._process.io_counters()
        except (psutil.Error, AttributeError):
            return 0
        return int(counters.read_chars + counters.write_chars)


def _hard_limit_s(lease: BandwidthLease) -> float:
    """When a test must have ended, on the monotonic clock."""
    return lease.expires_s + duration_s(lease) + GRACE_S


def unmeasured(
    lease: BandwidthLease, outcome: pb.BandwidthReport.Outcome, detail: str = ""
) -> pb.BandwidthReport:
    """A result without a measurement."""
    return pb.BandwidthReport(
        timing=pb.Timing(measured_boot_ms=boot_ms()),
        lease_id=lease.lease_id,
        peer=lease.peer.node,
        outcome=outcome,
        detail=detail,
    )

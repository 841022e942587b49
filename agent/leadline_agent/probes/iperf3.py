"""Measures the available bandwidth to one peer with iperf3, under a lease of the controller.

The client sends the lease's bytes as fast as the path allows, until the lease's time is up. It is
iperf3 in a child process, which is monitored because iperf3 has no limit of time below a second and
trusts its server. The server, in iperf3_server, measures.
"""

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
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
    BLOCK_BYTES,
    GRACE_S,
    LEAST_SHARE,
    RESULTS_S,
    IperfError,
    LeaseExceededError,
    leased_bytes,
    serve,
)
from leadline_agent.probes.processor_wait import ProcessorWait
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
LIBRARY_FOLDERS = ("usr/lib/", "usr/lib/*-linux-*/", "usr/local/lib/", "usr/lib64/")
MIN_BYTES = 64 * 1024
MIN_DURATION_MS = 100
POLL_S = 0.05
LOOK_S = 0.01  # a thread of iperf3 that sends lives no longer than the test
MAX_OUTPUT_BYTES = 1 << 20
RETRY_S = 0.3
LEASES_REMEMBERED = 16
MAX_TTL_S = 120.0
NOT_LISTENING_YET = "unable to connect"
UNREADABLE = "what iperf3 said cannot be read"
# What psutil raises where a file of /proc is missing, empty or strange.
_UNREADABLE_PROC = (psutil.Error, OSError, ValueError, RuntimeError, LookupError, AttributeError)


def is_installed() -> bool:
    """Whether the iperf3 program or library is installed. Loads neither."""
    # shutil.which does the same, and shutil imports three compressors: half a megabyte.
    if any(os.access(Path(folder, "iperf3"), os.X_OK) for folder in os.get_exec_path()):
        return True
    try:
        return any(any(Path("/").glob(folder + LIBRARY)) for folder in LIBRARY_FOLDERS)
    except OSError:
        return False


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
        f"{lease.duration_ms} ms are asked, a test needs {MIN_DURATION_MS}": (
            lease.duration_ms < MIN_DURATION_MS
        ),
        f"{lease.max_bytes} bytes are asked, {most_bytes} are allowed here": (
            lease.max_bytes > most_bytes
        ),
        f"{lease.max_bytes} bytes are asked, a test needs {MIN_BYTES}": lease.max_bytes < MIN_BYTES,
        f"port {lease.port} is asked, 1024 to 65535 are allowed": not 1024 <= lease.port <= 65535,
        f"{one_line(repr(lease.peer.address), 80)} is no IP address of one host": (
            not is_unicast(lease.peer.address)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@dataclass(frozen=True, slots=True)
class ClientRun:
    """One run of iperf3's client, as this end saw it."""

    output: str
    elapsed_s: float  # from before the connection to the results
    # What the process wrote, with iperf3's own messages; 0 if the kernel does not count.
    sent_bytes: int
    was_connected: bool
    hindrances: Sequence[pb.BandwidthReport.Hindrance] = ()
    waited_us: int = 0  # for a processor


def client_report(run: ClientRun, lease: BandwidthLease) -> pb.BandwidthReport:
    """What the client knows of its test. Raises IperfError.

    The server measures. What iperf3 says that the server says is the other end's claim, and is only
    checked against the lease and against what this end saw.
    """
    most_bytes = leased_bytes(lease)
    try:
        sent_bytes = min(_sent_bytes(run, lease), most_bytes)
    except IperfError:
        # The server ends the test without results when the time is up.
        if not run.was_connected or run.elapsed_s * 1000 < lease.duration_ms:
            raise
        sent_bytes = min(run.sent_bytes, most_bytes)
    if sent_bytes < LEAST_SHARE * most_bytes:
        raise IperfError(
            f"cut off: {sent_bytes} of {most_bytes} bytes went in {run.elapsed_s * 1000:.0f} ms"
        )
    return pb.BandwidthReport(
        transferred_bytes=sent_bytes,
        duration_ms=max(1, round(run.elapsed_s * 1000)),
        hindrances=run.hindrances,
        waited_us=run.waited_us,
    )


def _sent_bytes(run: ClientRun, lease: BandwidthLease) -> int:
    try:
        output = json.loads(run.output)
        if "error" in output:
            raise IperfError(one_line(f"iperf3: {output['error']}"))
        received, sent = output["end"]["sum_received"], output["end"]["sum_sent"]
        seconds, received_bytes = float(received["seconds"]), int(received["bytes"])
        sent_bytes = int(sent["bytes"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise IperfError(UNREADABLE) from None
    if received_bytes <= 0:
        raise IperfError("nothing arrived at the other end")
    if (
        not received_bytes <= sent_bytes <= leased_bytes(lease) + ALLOWANCE_BYTES
        or not 0 <= seconds <= run.elapsed_s
    ):
        raise IperfError(
            f"the other end says that it received {received_bytes:.3g} bytes in {seconds:.3g} s, "
            "which the lease rules out"
        )
    if received_bytes < LEAST_SHARE * leased_bytes(lease):
        raise IperfError(f"cut off: {received_bytes} of {leased_bytes(lease)} bytes came")
    return sent_bytes


class Iperf3(Probe):
    """Runs one lease at a time, as client or server. Both report how it ended."""

    def __init__(self, context: ProbeContext) -> None:
        super().__init__("bandwidth", ("iperf3",) if is_installed() else ())
        self._context = context
        # The newest last. A second copy of a lease may come after other leases.
        self._lease_ids: deque[str] = deque(maxlen=LEASES_REMEMBERED)
        self._lease: BandwidthLease | None = None
        self._changed = threading.Condition()
        self._ended_s = float("-inf")
        self.start()

    def start_lease(self, lease: BandwidthLease) -> None:
        """Start the lease, or report why not. A lease that is delivered twice is answered once:
        after a refusal the controller no longer waits for it."""
        if lease.lease_id in self._lease_ids:
            return
        self._lease_ids.append(lease.lease_id)
        reason = refusal(lease, self._context, time.monotonic())
        with self._changed:
            if reason is None and self._lease:
                reason = f"busy with lease {self._lease.lease_id}"
            if reason is None:
                self._lease = lease
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
            self._context.report(result)
            if failure:
                raise failure
            self.done()

    def _result(self, lease: BandwidthLease) -> pb.BandwidthReport:
        try:
            result = unmeasured(lease, pb.BandwidthReport.DONE)
            if lease.role == pb.BandwidthLease.SERVER:
                own_address, watch = self._context.own_address(), self._context.watch_hindrances
                result.MergeFrom(serve(lease, own_address, self._stopped, watch))
            else:
                result.MergeFrom(self._send(lease))
            return result
        except FileNotFoundError:
            reason = "neither libiperf nor iperf3 is installed here"
            return unmeasured(lease, pb.BandwidthReport.ABSENT, reason)
        except (IperfError, OSError) as error:
            reason = one_line(str(error))
            if isinstance(error, LeaseExceededError):
                LOG.warning("bandwidth: the test with %s was %s", lease.peer.node, reason)
            return unmeasured(lease, pb.BandwidthReport.FAILED, reason)

    def _send(self, lease: BandwidthLease) -> pb.BandwidthReport:
        """The client's part. It retries until the lease expires: the server may start late."""
        while True:
            run = self._run_child(lease)
            too_early = NOT_LISTENING_YET in run.output
            if not too_early or time.monotonic() + RETRY_S >= lease.expires_s:
                return client_report(run, lease)
            self._stopped.wait(RETRY_S)

    def _run_child(self, lease: BandwidthLease) -> ClientRun:
        spec = {
            "host": lease.peer.address,
            "port": lease.port,
            "bind": self._context.own_address(),
            "bytes": leased_bytes(lease),
            "block_bytes": BLOCK_BYTES,
            "limit_s": max(1, round(_hard_limit_s(lease) - time.monotonic())),
        }
        # -P: the module iperf3.py beside that file would hide the library of the same name.
        command = [sys.executable, "-P", iperf3_child.__file__, json.dumps(spec)]
        with subprocess.Popen(  # noqa: S603 - our own file; the lease is one JSON argument
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        ) as child:
            try:
                run = self._monitored(child, lease)
            finally:
                child.kill()
        if child.returncode == EXIT_ABSENT:
            raise FileNotFoundError
        return run

    def _monitored(self, child: subprocess.Popen[bytes], lease: BandwidthLease) -> ClientRun:
        """The child's run, until it exits or its time is up. Raises IperfError."""
        monitor = _LeaseMonitor(child.pid, lease)
        output = b""
        assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018 - pipes
        begin_s, result_s, check_s = time.monotonic(), None, 0.0
        hindrances, wait = self._context.watch_hindrances(), ProcessorWait()
        while not monitor.is_late(time.monotonic()):
            if select.select((child.stdout,), (), (), LOOK_S if output else POLL_S)[0]:
                piece = os.read(child.stdout.fileno(), MAX_OUTPUT_BYTES)
                if not output and piece:  # it is ready
                    hindrances = self._context.watch_hindrances()
                    wait = ProcessorWait.of_process(child.pid)
                    monitor.begin()
                    begin_s = time.monotonic()
                    child.stdin.write(b"\n")
                elif result_s is None:
                    result_s = time.monotonic()
                output += piece
                wait.look(child.pid)  # before it is gone
                if len(output) > MAX_OUTPUT_BYTES:
                    raise IperfError(UNREADABLE)
                if not piece:
                    try:
                        child.wait(GRACE_S)
                    except subprocess.TimeoutExpired:
                        raise IperfError("iperf3 did not end") from None
                    break
            wait.look(child.pid)
            if time.monotonic() < check_s:
                continue
            if self._stopped.is_set():
                raise IperfError("the agent is stopping")
            monitor.check(time.monotonic())
            check_s = time.monotonic() + POLL_S
        return ClientRun(
            output=output.decode(errors="replace"),
            elapsed_s=(result_s or time.monotonic()) - begin_s,
            sent_bytes=monitor.sent_bytes,
            was_connected=monitor.connected_s is not None,
            hindrances=hindrances(),
            waited_us=wait.us(),
        )


class _LeaseMonitor:
    """Keeps a client's process within its lease; its server can make it start again."""

    def __init__(self, pid: int, lease: BandwidthLease) -> None:
        self._process = psutil.Process(pid)
        self._lease = lease
        self._before: tuple[int, int] | None = None
        self.connected_s: float | None = None
        self.sent_bytes = 0  # at the last check

    def begin(self) -> None:
        """What the process has read and written by now does not count."""
        self._before = self._moved_bytes()

    def is_late(self, now_s: float) -> bool:
        """Whether it has to be cut off; the server may need RESULTS_S for its part."""
        limit_s = self._lease.duration_ms / 1000 + RESULTS_S
        return self.connected_s is not None and now_s > self.connected_s + limit_s

    def check(self, now_s: float) -> None:
        """Raises IperfError (LeaseExceededError is one) when the process must be killed."""
        lease = self._lease
        if self.connected_s is None and self._is_connected():
            self.connected_s = now_s
        if self.connected_s is None and now_s >= lease.expires_s:
            raise IperfError("the other end did not come before the lease expired")
        received, sent = self._moved_bytes()
        # Before `begin` it cannot send. Both are 0 once the process has ended.
        if self._before and sent:
            self.sent_bytes = sent - self._before[1]
            if received + sent - sum(self._before) > lease.max_bytes + ALLOWANCE_BYTES:
                raise LeaseExceededError(f"cut off: more than {lease.max_bytes} bytes were moved")

    def _is_connected(self) -> bool:
        try:
            connections = self._process.net_connections(kind="tcp")
        except _UNREADABLE_PROC:
            return False
        return any(c.status == psutil.CONN_ESTABLISHED for c in connections)

    def _moved_bytes(self) -> tuple[int, int]:
        """Bytes by read and by write, as iperf3 uses sockets; 0 if the kernel does not count."""
        try:
            counters = self._process.io_counters()
        except _UNREADABLE_PROC:
            return 0, 0
        return int(counters.read_chars), int(counters.write_chars)


def _hard_limit_s(lease: BandwidthLease) -> float:
    """When a test must have ended, on the monotonic clock."""
    return lease.expires_s + lease.duration_ms / 1000 + GRACE_S


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

"""Available bandwidth to one peer under a lease of the controller, with iperf3.

A lease caps bytes and time. iperf3 can stop at only one of them, so the test runs for the
time, and its sender is paced so that the bytes cannot be exceeded either; a result at the
pace is then a lower bound. The server's end listens for one test on its own address.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from leadline_agent.probes import iperf3_child
from leadline_agent.probes.base import Surroundings
from leadline_agent.probes.iperf3_child import EXIT_ABSENT, LIBRARY
from leadline_agent.sample import (
    BandwidthOutcome,
    BandwidthResult,
    BandwidthWork,
    Role,
    boot_ms,
)

LIBRARY_FOLDERS = ("usr/lib/", "usr/lib/*-linux-*/", "usr/local/lib/", "usr/lib64/")
# iperf3 writes in blocks of this size, and finishes the one that it has begun.
BLOCK_BYTES = 128 * 1024
MIN_BYTES = 2 * BLOCK_BYTES
LOWER_BOUND_SHARE = 0.95
# Setting up and exchanging results, over a link that the test itself has filled.
GRACE_S = 10.0
RETRY_S = 0.3
MAX_TTL_S = 120.0
NOT_LISTENING_YET = "unable to connect"
UNREADABLE = "what iperf3 said cannot be read"


class IperfError(Exception):
    """iperf3 ran and has no result; str() is its own sentence."""


def is_installed() -> bool:
    """Whether there is a program or a library, without loading either."""
    libraries = (file for folder in LIBRARY_FOLDERS for file in Path("/").glob(folder + LIBRARY))
    return shutil.which("iperf3") is not None or next(libraries, None) is not None


def refusal(work: BandwidthWork, around: Surroundings, now_s: float) -> str | None:
    """Why this board will not do it, as a sentence; None if it will."""
    open_s = work.expires_s - now_s
    most_ms, most_bytes = around.max_bandwidth_duration_ms, around.max_bandwidth_bytes
    reasons = {
        "the lease has expired": open_s <= 0,
        f"the lease is open for {open_s:.0f} s, over {MAX_TTL_S:g}": open_s > MAX_TTL_S,
        f"{work.duration_ms} ms are asked, {most_ms} are allowed here": work.duration_ms > most_ms,
        f"{work.duration_ms} ms are asked, iperf3 needs a second": work.duration_ms < 1000,
        f"{work.max_bytes} bytes are asked, {most_bytes} are allowed here": (
            work.max_bytes > most_bytes
        ),
        f"{work.max_bytes} bytes are asked, iperf3 needs {MIN_BYTES}": work.max_bytes < MIN_BYTES,
        f"port {work.port} is asked, 1024 to 65535 are allowed": not 1024 <= work.port <= 65535,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def duration_s(work: BandwidthWork) -> int:
    """Whole seconds for which the test may send."""
    return work.duration_ms // 1000


def pace_bits_per_s(work: BandwidthWork) -> int:
    """The sender's limit, bits per second, at which the byte cap lasts for the duration."""
    return (work.max_bytes - BLOCK_BYTES) * 8 // duration_s(work)


def said(text: str) -> dict[str, Any]:
    """iperf3's JSON. Raises IperfError if it is none, or an error."""
    try:
        output = json.loads(text)
    except ValueError:
        raise IperfError(UNREADABLE) from None
    if not isinstance(output, dict):
        raise IperfError(UNREADABLE)
    if "error" in output:
        raise IperfError(f"iperf3: {output['error']}"[:200])
    return output


def parse(text: str, pace: int) -> dict[str, Any]:
    """The fields of a BandwidthResult in a client's JSON. Raises IperfError."""
    output = said(text)
    try:
        received = output["end"]["sum_received"]
        bits_per_s = float(received["bits_per_second"])
        transferred_bytes, seconds = int(received["bytes"]), float(received["seconds"])
    except (ValueError, KeyError, TypeError):
        raise IperfError(UNREADABLE) from None
    if transferred_bytes <= 0 or not 0 < bits_per_s < float("inf"):
        raise IperfError("nothing arrived at the other end")
    return {
        "bandwidth_mbps": bits_per_s / 1e6,
        "lower_bound": bits_per_s >= LOWER_BOUND_SHARE * pace,
        "transferred_bytes": transferred_bytes,
        "duration_ms": round(seconds * 1000),
    }


class Iperf3:
    """Does one lease at a time and refuses what it must not do.

    A client reports how its lease ended. A server reports only what went wrong: the
    result is the client's to tell.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._lease_id = ""
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._ended_s = float("-inf")

    @property
    def abilities(self) -> tuple[str, ...]:
        """Nothing where iperf3 is not installed."""
        return ("iperf3",) if is_installed() else ()

    def take(self, work: BandwidthWork) -> None:
        """Start, or report why not. The same lease delivered twice is done once."""
        if work.lease_id == self._lease_id:
            return
        reason = refusal(work, self._around, time.monotonic())
        if reason is None and self._thread and self._thread.is_alive():
            reason = f"busy with lease {self._lease_id}"
        if reason:
            self._around.report(ended(work, BandwidthOutcome.REFUSED, reason))
            return
        self._lease_id = work.lease_id
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="bandwidth", daemon=True
        )
        self._thread.start()

    def has_loaded_since(self, since_s: float) -> bool:
        """Whether a test is running or ended after that."""
        return bool(self._thread and self._thread.is_alive()) or self._ended_s >= since_s

    def stop(self) -> None:
        """End a test under way."""
        self._stopped.set()
        if self._thread:
            self._thread.join(GRACE_S)

    def _run(self, work: BandwidthWork) -> None:
        try:
            text = self._measure(work)
            said(text)
            if work.role is Role.CLIENT:
                result = ended(work, BandwidthOutcome.DONE)
                self._around.report(replace(result, **parse(text, pace_bits_per_s(work))))
        except FileNotFoundError:
            reason = "neither libiperf nor iperf3 is installed here"
            self._around.report(ended(work, BandwidthOutcome.ABSENT, reason))
        except (IperfError, OSError) as error:
            self._around.report(ended(work, BandwidthOutcome.FAILED, str(error)))
        finally:
            self._ended_s = time.monotonic()

    def _measure(self, work: BandwidthWork) -> str:
        """iperf3's JSON. The other end may come up later: a client tries until it expires."""
        while True:
            text = self._run_child(work)
            too_early = work.role is Role.CLIENT and NOT_LISTENING_YET in text
            if not too_early or time.monotonic() + RETRY_S >= work.expires_s:
                return text
            self._stopped.wait(RETRY_S)

    def _run_child(self, work: BandwidthWork) -> str:
        hard_limit_s = work.expires_s + duration_s(work) + GRACE_S
        spec = {
            "role": work.role.value,
            "host": work.peer.address,
            "port": work.port,
            "bind": self._around.own_address(),
            "duration_s": duration_s(work),
            "bits_per_s": pace_bits_per_s(work),
            "limit_s": max(1, round(hard_limit_s - time.monotonic())),
        }
        # -P: beside that file lies this one, which has the library's name.
        command = [sys.executable, "-P", iperf3_child.__file__, json.dumps(spec)]
        with subprocess.Popen(  # noqa: S603 - our own file; the lease is one JSON argument
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            try:
                text = self._wait(child, work, hard_limit_s)
            finally:
                child.kill()
        if child.returncode == EXIT_ABSENT:
            raise FileNotFoundError
        return text

    def _wait(self, child: subprocess.Popen[str], work: BandwidthWork, hard_limit_s: float) -> str:
        has_begun = False
        while True:
            try:
                return child.communicate(timeout=0.1)[0]
            except subprocess.TimeoutExpired:
                now_s = time.monotonic()
            if self._stopped.is_set():
                raise IperfError("the agent is stopping")
            if now_s >= hard_limit_s:
                raise IperfError("the test did not end in time")
            if now_s >= work.expires_s and not has_begun:
                has_begun = is_connected(child.pid)
                if not has_begun:
                    raise IperfError("the other end did not come before the lease expired")


def is_connected(pid: int) -> bool:
    """Whether a child has a connection to another end."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_ESTABLISHED for c in connections)


def ended(work: BandwidthWork, outcome: BandwidthOutcome, detail: str = "") -> BandwidthResult:
    """The answer to a lease, without a measurement."""
    return BandwidthResult(boot_ms(), work.lease_id, work.peer.node, outcome, detail=detail)

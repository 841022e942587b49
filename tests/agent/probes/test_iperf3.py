"""iperf3: limits on leases, the pace within them, and real tests over loopback."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from leadline_agent.lease import BandwidthLease, Peer
from leadline_agent.probes import iperf3, iperf3_child
from leadline_agent.probes.iperf3 import Iperf3, pace_bits_per_s, parse, refusal
from leadline_agent.probes.iperf3_server import IperfError, LeaseExceededError
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.namespaces import linked_namespace
from tests.support.ports import free_port, wait_until

SERVER, CLIENT = pb.BandwidthLease.SERVER, pb.BandwidthLease.CLIENT


def bandwidth_lease(
    role: pb.BandwidthLease.Role = CLIENT, port: int = 5201, ttl_s: float = 10.0
) -> BandwidthLease:
    return BandwidthLease(
        lease_id="L1",
        role=role,
        peer=Peer("pi-2", "127.0.0.1"),
        port=port,
        duration_ms=1000,
        max_bytes=20_000_000,
        expires_s=time.monotonic() + ttl_s,
    )


def output(bits_per_second: float, bytes_: int = 12_500_000, seconds: float = 1.0) -> str:
    received = {"bits_per_second": bits_per_second, "bytes": bytes_, "seconds": seconds}
    sent = {"bytes": 15_000_000}
    return json.dumps({"start": {}, "end": {"sum_received": received, "sum_sent": sent}})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"expires_s": 0.0}, "expired"),
        ({"expires_s": 1e9}, "open for"),
        ({"duration_ms": 5001}, "5001 ms are asked, 5000 are allowed here"),
        ({"duration_ms": 999}, "needs a second"),
        ({"max_bytes": 100_000_001}, "100000000 are allowed here"),
        ({"max_bytes": 1000}, "iperf3 needs"),
        ({"port": 22}, "port 22"),
        ({"port": 2**32 - 1}, "port 4294967295"),
        ({"peer": Peer("pi-2", "example.com")}, "'example.com' is no IP address of one host"),
        ({"peer": Peer("pi-2", "255.255.255.255")}, "is no IP address of one host"),
    ],
)
def test_a_lease_over_the_limits_is_refused_with_a_sentence(
    harness: Any, change: dict[str, Any], reason: str
) -> None:
    asked = replace(bandwidth_lease(), **change)
    sentence = refusal(asked, harness.context(), time.monotonic())
    assert sentence is not None
    assert reason in sentence
    probe = Iperf3(harness.context())
    probe.start_lease(asked)
    probe.stop()
    result = harness.results.get(timeout=5)
    assert (result.outcome, result.detail) == (pb.BandwidthReport.REFUSED, sentence)
    assert (result.lease_id, result.peer) == ("L1", "pi-2")


def test_a_lease_within_the_limits_is_accepted(harness: Any) -> None:
    assert refusal(bandwidth_lease(), harness.context(), time.monotonic()) is None


@pytest.mark.parametrize("duration_ms", [1000, 1999, 2000, 5000])
@pytest.mark.parametrize("max_bytes", [1 << 18, 20_000_000])
def test_the_pace_respects_both_limits(duration_ms: int, max_bytes: int) -> None:
    asked = replace(bandwidth_lease(), duration_ms=duration_ms, max_bytes=max_bytes)
    sent = pace_bits_per_s(asked) / 8 * iperf3.duration_s(asked) + iperf3.BLOCK_BYTES
    assert iperf3.duration_s(asked) * 1000 <= duration_ms
    assert sent <= max_bytes


def test_the_receivers_count_is_the_result() -> None:
    assert parse(output(60e6, bytes_=7_500_000), bandwidth_lease()) == pb.BandwidthReport(
        bandwidth_mbps=60.0, lower_bound=False, transferred_bytes=7_500_000, duration_ms=1000
    )


def test_a_result_at_the_pace_is_a_lower_bound() -> None:
    text = output(0.96 * pace_bits_per_s(bandwidth_lease()))
    assert parse(text, bandwidth_lease()).lower_bound


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"error": "the server is busy"}', "the server is busy"),
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        (output(0.0, bytes_=0), "nothing arrived"),
        (output(float("nan")), "nothing arrived"),
        (output(float("inf")), "nothing arrived"),
        ('{"end": {"sum_received": {"bits_per_second": "x"}}}', "cannot be read"),
        (output(60e6, seconds=5e6), "which the lease rules out"),
        (output(60e6, seconds=1e308), "which the lease rules out"),
        (output(60e6, seconds=float("inf")), "which the lease rules out"),
        (output(60e6, seconds=float("nan")), "which the lease rules out"),
        (output(60e6, seconds=0.1), "which the lease rules out"),
        (output(60e6, bytes_=15_000_001), "which the lease rules out"),
        (output(1e12), "which the lease rules out"),
        (output(60e6).replace("12500000", "1e999"), "cannot be read"),
        (output(60e6).replace("12500000", "9" * 5000), "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"error": "\\ud800\\n"}', r"iperf3: \\ud800\\n"),
    ],
)
def test_output_without_a_result_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(IperfError, match=reason):
        parse(text, bandwidth_lease())


def test_the_program_and_the_library_run_the_same_test() -> None:
    spec = {"host": "10.0.0.2", "port": 5201, "bind": "10.0.0.1"}
    client = iperf3_child.arguments({**spec, "duration_s": 2, "bits_per_s": 8_000_000})
    assert " ".join(client[1:]) == (
        "--json --port 5201 --bind 10.0.0.1 --client 10.0.0.2 --parallel 1 --time 2 "
        "--bitrate 8000000"
    )
    unbound = iperf3_child.arguments({**spec, "bind": "", "duration_s": 2, "bits_per_s": 8_000_000})
    assert "--bind" not in unbound


def no_child_left() -> bool:
    children = psutil.Process().children(recursive=True)
    return not any(_is_iperf3(child) for child in children)


def _is_iperf3(child: psutil.Process) -> bool:
    try:
        return "iperf3_child" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # it has just ended, and may wait to be reaped
        return False


def pair(
    make_harness: Callable[[], Any],
    server: BandwidthLease,
    client: BandwidthLease,
    wait_s: float = 0.0,
) -> pb.BandwidthReport:
    """Run both ends, the server's `wait_s` later; the client's result."""
    benches = make_harness(), make_harness()
    probes = [Iperf3(harness.context()) for harness in benches]
    try:
        probes[1].start_lease(client)
        time.sleep(wait_s)
        probes[0].start_lease(server)
        result: pb.BandwidthReport = benches[1].results.get(timeout=30)
        wait_until(no_child_left, "both ends have ended")
        assert benches[0].results.empty()  # the result is the client's to tell
        return result
    finally:
        for probe in probes:
            probe.stop()


@pytest.mark.network
def test_a_real_test_stays_within_its_limits(make_harness: Callable[[], Any]) -> None:
    port = free_port()
    result = pair(
        make_harness,
        bandwidth_lease(SERVER, port),
        bandwidth_lease(CLIENT, port),
    )
    assert (result.outcome, result.detail) == (pb.BandwidthReport.DONE, "")
    assert result.HasField("bandwidth_mbps")
    assert 0 < result.transferred_bytes <= 20_000_000
    assert result.lower_bound == (
        result.bandwidth_mbps >= 0.95 * pace_bits_per_s(bandwidth_lease()) / 1e6
    )


@pytest.mark.network
def test_a_client_waits_for_a_server_that_starts_later(make_harness: Callable[[], Any]) -> None:
    port = free_port()
    result = pair(
        make_harness,
        bandwidth_lease(SERVER, port),
        bandwidth_lease(CLIENT, port),
        wait_s=1.0,
    )
    assert result.outcome == pb.BandwidthReport.DONE


@pytest.mark.network
@pytest.mark.parametrize("role", [SERVER, CLIENT])
def test_an_end_without_its_peer_fails_when_the_lease_expires(
    harness: Any, role: pb.BandwidthLease.Role
) -> None:
    probe = Iperf3(harness.context())
    probe.start_lease(bandwidth_lease(role, free_port(), ttl_s=1.5))
    result = harness.results.get(timeout=30)
    assert result.outcome == pb.BandwidthReport.FAILED
    assert not result.HasField("bandwidth_mbps")
    assert result.detail
    wait_until(no_child_left, "the child has ended")
    probe.stop()


@pytest.mark.network
def test_one_lease_runs_at_a_time_and_a_duplicate_is_ignored(harness: Any) -> None:
    probe = Iperf3(harness.context())
    try:
        lease = bandwidth_lease(SERVER, free_port())
        probe.start_lease(lease)
        probe.start_lease(lease)
        probe.start_lease(replace(lease, lease_id="L2"))
        result = harness.results.get(timeout=5)
        assert (result.lease_id, result.outcome) == ("L2", pb.BandwidthReport.REFUSED)
        assert "busy with lease L1" in result.detail
        assert harness.results.empty()
    finally:
        probe.stop()
    assert harness.results.get(timeout=5).detail == "the agent is stopping"
    assert no_child_left()


@pytest.mark.network
def test_a_throttled_link_is_measured_and_not_bounded(harness: Any) -> None:
    with linked_namespace(rate_mbps=20) as other:
        server = other.command("iperf3", "--server", "--one-off", "--port", "5201")
        with subprocess.Popen(server, stdout=subprocess.DEVNULL) as process:
            try:
                harness.address = other.own_address
                lease = replace(
                    bandwidth_lease(), peer=Peer("other", other.address), duration_ms=2000
                )
                Iperf3(harness.context()).start_lease(lease)
                result = harness.results.get(timeout=30)
            finally:
                process.kill()
    assert (result.outcome, result.lower_bound) == (pb.BandwidthReport.DONE, False)
    assert 10 < result.bandwidth_mbps <= 21


@pytest.mark.network
def test_the_program_serves_where_the_library_is_missing(
    make_harness: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(iperf3_child, "__file__", str(without_library(tmp_path)))
    port = free_port()
    result = pair(
        make_harness,
        bandwidth_lease(SERVER, port),
        bandwidth_lease(CLIENT, port),
    )
    assert result.outcome == pb.BandwidthReport.DONE


def test_neither_library_nor_program_is_absent_and_not_failed(
    harness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(iperf3_child, "__file__", str(without_library(tmp_path)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(sys.executable).is_absolute()
    probe = Iperf3(harness.context())
    probe.start_lease(bandwidth_lease())
    result = harness.results.get(timeout=30)
    probe.stop()
    assert result.outcome == pb.BandwidthReport.ABSENT
    assert not result.HasField("bandwidth_mbps")


def without_library(folder: Path) -> Path:
    """The child's own file, on a board that has no libiperf."""
    source = Path(iperf3_child.__file__).read_text()
    copy = folder / "iperf3_child.py"
    copy.write_text(source.replace("libiperf.so.0", "libnowhere.so.0"))
    return copy


def sender(listener: socket.socket, total: int) -> subprocess.Popen[bytes]:
    """A process that sends so much over one connection, as iperf3 does, and then holds it."""
    program = (
        "import os, socket, sys;"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1);"
        "[os.write(s.fileno(), bytes(100_000)) for _ in range(int(sys.argv[2]) // 100_000)];"
        "s.recv(1)"
    )
    port = listener.getsockname()[1]
    return subprocess.Popen([sys.executable, "-c", program, str(port), str(total)])


@pytest.mark.parametrize(("total", "is_cut_off"), [(19_000_000, False), (40_000_000, True)])
def test_a_client_that_its_server_restarts_is_cut_off(total: int, is_cut_off: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, sender(listener, total) as process:
        connection, _ = listener.accept()
        with connection:
            watch = iperf3._LeaseMonitor(process.pid, bandwidth_lease())
            watch.check(time.monotonic())
            connection.sendall(b"x")
            received = 0
            while received < total:
                received += len(connection.recv(1 << 20))
            if is_cut_off:
                with pytest.raises(LeaseExceededError, match="more than 20000000 bytes"):
                    watch.check(time.monotonic())
            else:
                watch.check(time.monotonic())
                with pytest.raises(IperfError, match="did not end in time"):
                    watch.check(time.monotonic() + 60)

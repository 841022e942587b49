"""Ping: the arithmetic, discarded samples, and real echoes over loopback."""

import time
from dataclasses import replace
from typing import Any

import pytest
from leadline_agent.lease import Peer, PingLease, is_unicast
from leadline_agent.probes.echo import ClockSetError
from leadline_agent.probes.ping import BROKER, Ping, echoes, summary
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.namespaces import linked_namespace

PEERS = (Peer("pi-2", "127.0.0.2"), Peer("pi-3", "127.0.0.3"))


def ping_lease(peers: tuple[Peer, ...] = PEERS, count: int = 3, ttl_s: float = 60.0) -> PingLease:
    return PingLease(peers, interval_s=1, count=count, expires_s=time.monotonic() + ttl_s)


def test_the_summary_has_the_median_and_the_population_deviation() -> None:
    sample = summary("pi-2", pb.Rtt.ICMP, [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert sample == pb.Rtt(
        peer="pi-2", method=pb.Rtt.ICMP, sent=8, received=8, rtt_ms=4.5, deviation_ms=2.0
    )


def test_an_echo_without_reply_counts_as_sent() -> None:
    assert summary("pi-2", pb.Rtt.ICMP, [None, 3.0, None]) == pb.Rtt(
        peer="pi-2", method=pb.Rtt.ICMP, sent=3, received=1, rtt_ms=3.0, deviation_ms=0.0
    )
    assert not summary("pi-2", pb.Rtt.ICMP, [None]).HasField("rtt_ms")


def test_a_sample_during_which_the_clock_was_set_is_discarded() -> None:
    answers: list[Any] = [1.0, ClockSetError(), 3.0]

    def echo(address: str, sequence: int) -> float | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return float(answer)

    assert echoes(PEERS[0], 3, 0, echo) == [1.0, 3.0]


def test_a_round_that_fails_is_tried_again(
    harness: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline_agent.probes.base.FIRST_BACK_OFF_S", 0.01)
    answers: list[Any] = [RuntimeError("a bug"), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    def echo(address: str, sequence: int) -> float | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return float(answer)

    probe = Ping(harness.context(), permitted=lambda: True, echo=echo)
    (round_,) = reports(harness, probe, ping_lease())
    assert [rtt.received for rtt in round_.peers] == [3, 3]
    assert probe.take_failed()
    assert caplog.text.count("a bug") == 1


@pytest.mark.parametrize(
    "address",
    [
        *("example.com", "localhost", "0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255"),
        *("240.0.0.1", "::", "ff02::1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1\n", ""),
        "1" * 20_000,
    ],
)
def test_a_peer_without_an_address_of_one_host_is_left_out(
    harness: Any, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    asked: list[str] = []

    def echo(address: str, sequence: int) -> float | None:
        asked.append(address)
        return 1.0

    probe = Ping(harness.context(), permitted=lambda: True, echo=echo)
    (round_,) = reports(harness, probe, ping_lease((Peer("odd", address), *PEERS)))
    assert [rtt.peer for rtt in round_.peers] == ["pi-2", "pi-3"]
    assert set(asked) == {peer.address for peer in PEERS}
    assert "left out odd" in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "::1", "fe80::1", "fd00::1"])
def test_the_address_of_one_host_may_be_leased(address: str) -> None:
    assert is_unicast(address)


def test_an_unreachable_peer_does_not_use_up_the_round() -> None:
    asked = []

    def echo(address: str, sequence: int) -> float | None:
        asked.append(sequence)
        return None

    assert echoes(PEERS[0], 10, 65_535, echo) == [None, None]
    assert asked == [65_535, 0]


def reports(harness: Any, probe: Ping, *leases: PingLease) -> list[pb.RttReport]:
    try:
        for lease in leases:
            probe.start_lease(lease)
        return [harness.results.get(timeout=90) for _ in leases]
    finally:
        probe.stop()


def test_a_lease_starts_at_once_and_every_peer_is_pinged(harness: Any) -> None:
    probe = Ping(harness.context(), permitted=lambda: True, echo=lambda a, s: float(a[-1]))
    (round_,) = reports(harness, probe, ping_lease())
    assert [(p.peer, p.sent, p.rtt_ms) for p in round_.peers] == [
        ("pi-2", 3, 2.0),
        ("pi-3", 3, 3.0),
    ]
    assert {p.method for p in round_.peers} == {pb.Rtt.ICMP}


def test_a_newer_lease_replaces_the_previous_one(harness: Any) -> None:
    probe = Ping(harness.context(), permitted=lambda: True, echo=lambda a, s: 1.0)
    try:
        probe.start_lease(ping_lease(PEERS[:1]))
        harness.results.get(timeout=90)
        probe.start_lease(ping_lease(PEERS[1:]))
        assert harness.results.get(timeout=90).peers[0].peer == "pi-3"
    finally:
        probe.stop()


def test_an_expired_lease_is_not_followed(harness: Any) -> None:
    asked: list[str] = []
    probe = Ping(harness.context(), permitted=lambda: True, echo=lambda a, s: asked.append(a))
    probe.start_lease(ping_lease(ttl_s=-1.0))
    probe.stop()
    assert asked == []


@pytest.mark.parametrize(
    "over",
    [
        ping_lease(PEERS * 5),
        ping_lease(count=0),
        ping_lease(count=10_000),
        ping_lease(ttl_s=2.0**32),
        replace(ping_lease(), interval_s=2**32 - 1),
    ],
    ids=["peers", "none", "echoes", "ttl", "interval"],
)
def test_a_lease_over_the_boards_caps_is_refused(
    harness: Any, caplog: pytest.LogCaptureFixture, over: PingLease
) -> None:
    asked: list[str] = []
    probe = Ping(harness.context(), permitted=lambda: True, echo=lambda a, s: asked.append(a))
    probe.start_lease(over)
    probe.stop()
    assert asked == []
    assert "refused a lease" in caplog.text


def test_without_icmp_the_round_trip_to_the_broker_is_reported(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    harness.broker_rtts_ms = [3.0, 1.0, 2.0]
    probe = Ping(harness.context(), permitted=lambda: False)
    assert probe.capabilities == ("mqtt",)
    (round_,) = reports(harness, probe, ping_lease())
    (leg,) = round_.peers
    assert (leg.peer, leg.method, leg.rtt_ms, leg.received) == (BROKER, pb.Rtt.MQTT, 2.0, 3)
    assert caplog.text.count("ICMP is not permitted") == 1


@pytest.mark.network
def test_real_echoes_over_loopback(harness: Any) -> None:
    probe = Ping(harness.context())
    assert probe.capabilities == ("icmp",)
    (round_,) = reports(harness, probe, ping_lease((Peer("self", "127.0.0.1"),), count=5))
    (sample,) = round_.peers
    assert (sample.sent, sample.received) == (5, 5)
    assert sample.HasField("rtt_ms")
    assert 0 < sample.rtt_ms < 1000


@pytest.mark.network
@pytest.mark.smoke
def test_a_real_host_that_answers_and_then_does_not(harness: Any) -> None:
    with linked_namespace() as other:
        peers = (Peer("other", other.address),)
        for _ in range(3):  # a busy machine may lose an echo
            (round_,) = reports(harness, Ping(harness.context()), ping_lease(peers))
            if round_.peers[0].received == 3:
                break
        assert round_.peers[0].received == 3
        other.run("sysctl", "-q", "net.ipv4.icmp_echo_ignore_all=1")
        (round_,) = reports(harness, Ping(harness.context()), ping_lease(peers))
    (sample,) = round_.peers
    assert (sample.sent, sample.received, sample.HasField("rtt_ms")) == (2, 0, False)

"""Values on which nothing is moved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from leadline_controller.framework.model import DeclaredPeer, PodAnnotations
from leadline_controller.rescheduling.quality import why_unreliable
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.link_bandwidth import COUNTERS, LinkBandwidth, NodeLink
from leadline_controller.telemetry.link_status import LinkStatus
from leadline_controller.telemetry.state import Board, TelemetryState, TimesToLive

from tests.controller.builders import node, pod, view

NOW_S = 10_000.0
GOOD = LinkBandwidth(90.0, NOW_S - 60)
MEASURED = LinkStatus("n1", "user", 5.0, NOW_S - 10, "icmp", "measured", 0.5)


@dataclass
class Known:
    """What the telemetry knows, in place of a TelemetryState."""

    bandwidths: dict[str, LinkBandwidth | None] = field(default_factory=dict)
    pairs: list[LinkStatus] = field(default_factory=list)
    ages_s: dict[str, float | None] = field(default_factory=dict)
    ttl: TimesToLive = field(default_factory=TimesToLive)

    def node_links(self, names: list[str], now_s: float) -> list[NodeLink]:
        return [NodeLink(name, bandwidth=self.bandwidths.get(name, GOOD)) for name in names]

    def links(self, now_s: float, estimated_from: Any, node: str) -> list[LinkStatus]:
        return self.pairs

    def board(self, node: str, now_s: float) -> Board:
        return Board(Agent(node), age_s=self.ages_s.get(node, 5.0))


def why(needs: tuple[str, ...], known: Known, stated: float | None = None) -> str:
    cluster = view([node("n1", bandwidth_mbps=stated), node("n2", bandwidth_mbps=stated)])
    reliable = why_unreliable(cast(TelemetryState, known), cluster, needs, NOW_S)
    return reliable(pod("p", annotations={"user-node": "user"}), "n1", "n2")


@pytest.mark.parametrize(
    ("changed", "of_source", "of_target"),
    [
        ({}, "", ""),
        ({"at_s": NOW_S - 901}, "measured 901 s ago", "measured 901 s ago"),
        ({"suspected_mbps": 50.0}, "another one is to decide", "another one is to decide"),
        ({"source": COUNTERS}, "not from a test", "not from a test"),
        ({"lower_bound": True}, "may do more", ""),
    ],
)
def test_bandwidths(changed: dict[str, Any], of_source: str, of_target: str) -> None:
    for name, said in (("n1", of_source), ("n2", of_target)):
        found = why(("bandwidth_mbps",), Known({name: replace(GOOD, **changed)}))
        assert said in found
        assert bool(said) is bool(found)
        assert why(("bandwidth_mbps",), Known({name: replace(GOOD, **changed)}), 100.0) == ""
        assert why((), Known({name: None})) == ""


def test_what_a_board_limited() -> None:
    @dataclass(frozen=True)
    class Limited(LinkBandwidth):
        is_host_limited: bool = True

    known = Known({"n2": Limited(90.0, NOW_S)})
    assert "limited by a board" in why(("bandwidth_mbps",), known)
    assert "unknown" in why(("bandwidth_mbps",), Known({"n1": None}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"rtt_source": "stale"}, "10 s ago"),
        ({"flapping": True}, "keeps changing"),
        ({"rtt_source": "unreachable", "rtt_ms": None}, "does not answer"),
        ({"rtt_ms": None}, "is unknown"),
        ({"rtt_source": "estimated", "rtt_error_ms": 1.2}, ""),
        ({"rtt_source": "estimated", "rtt_error_ms": 1.3}, "as 5 ms within 1.3 ms"),
        ({"rtt_source": "triangulated", "rtt_error_ms": None}, "by an unknown error"),
    ],
)
def test_round_trips(changed: dict[str, Any], said: str) -> None:
    pairs = [replace(MEASURED, **changed), replace(MEASURED, a="n2")]
    found = why(("rtt_ms",), Known(pairs=pairs))
    assert said in found
    assert bool(said) is bool(found)


def test_a_pair_that_nobody_measured() -> None:
    assert "is unknown" in why(("rtt_ms",), Known(pairs=[MEASURED]))


@pytest.mark.parametrize("age_s", [None, 31.0])
def test_reports(age_s: float | None) -> None:
    assert "report of n2 is old" in why(("cpu_percent",), Known(ages_s={"n2": age_s}))
    assert why(("bandwidth_mbps",), Known(ages_s={"n2": age_s})) == ""


@pytest.mark.parametrize(
    ("peer_is_user", "peer", "said"),
    [
        (True, "node/user", "the round trip of user and n2 is unknown"),
        (False, "node/user", ""),
        (True, "node/n1", "the round trip of n1 and n2 is unknown"),
        (True, "node/gone", ""),
    ],
)
def test_round_trips_to_the_main_peer(peer_is_user: bool, peer: str, said: str) -> None:
    cluster = view([node("n1"), node("n2"), node("user")])
    known = cast(TelemetryState, Known(pairs=[MEASURED]))
    reliable = why_unreliable(known, cluster, ("rtt_ms",), NOW_S, peer_is_user=peer_is_user)
    wanted = replace(pod("p"), annotations=PodAnnotations(peers=(DeclaredPeer(peer),)))
    assert reliable(wanted, "n1", "n2") == said

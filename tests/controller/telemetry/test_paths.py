"""Loss, jitter and flapping of pairs, and peers that do not reply."""

from math import inf

import numpy as np
import pytest
from leadline_controller.telemetry.link_status import LinkStatus

from tests.controller.telemetry.road import NAMES, road
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder, table

EVERY_S = 10.0
Rounds = list[float | None]


class PairOfNodes(TelemetryBuilder):
    """Two nodes, of which n1 pings n2 every 10 s from the time 0 on."""

    def __init__(self) -> None:
        super().__init__("n1", "n2")
        self.now_s = 0.0

    def ping(self, rounds: Rounds, by: str = "n1") -> LinkStatus:
        for rtt_ms in rounds:
            self.now_s += EVERY_S
            assert self.rtt(by, "n2" if by == "n1" else "n1", rtt_ms, self.now_s)
        return self.status()

    def status(self) -> LinkStatus:
        (found,) = self.state.links(self.now_s)
        return found


def test_the_first_round_says_nothing_about_jitter() -> None:
    first = PairOfNodes().ping([5.0])
    assert (first.loss, first.jitter_ms, first.flapping) == (0.0, None, False)


def test_lost_packets_are_a_share_that_fades() -> None:
    pair = PairOfNodes()
    assert pair.ping([5.0] * 20).loss == 0.0
    after_one, after_many = pair.ping([None]).loss, pair.ping([5.0] * 20).loss
    assert after_one == pytest.approx(1 / 8, rel=0.1)
    assert after_many is not None
    assert 0 < after_many < 0.015


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_the_loss_is_about_what_is_lost(share: float) -> None:
    random, pair = np.random.default_rng(1), PairOfNodes()
    seen = []
    for _ in range(300):
        received = int((random.random(2) >= share).sum())
        pair.ping([5.0 if received else None])
        seen.append(pair.status().loss or 0.0)
        assert not pair.status().flapping
    # A round counts as lost here when both its packets are.
    assert np.mean(seen) == pytest.approx(share**2, abs=0.02)


def test_jitter_is_the_mean_deviation_of_rounds() -> None:
    steady, jittery = PairOfNodes().ping([5.0] * 10), PairOfNodes().ping([5.0, 6.0, 4.0] * 20)
    assert steady.jitter_ms == 0.0
    assert jittery.jitter_ms == pytest.approx(2 / 3, abs=0.3)
    assert not jittery.flapping


def test_doubled_and_reordered_messages_count_once() -> None:
    pair = PairOfNodes()
    pair.ping([5.0, 6.0, None, 5.0])
    before = pair.status()
    repeated = {"sequence": 3, "measured_boot_ms": 3000}
    for _ in range(2):
        assert not pair.rtt("n1", "n2", 80.0, pair.now_s, **repeated)
        assert not pair.rtt("n1", "n2", None, 20.0, **repeated)
    assert pair.status() == before
    # The other end's round is older than the last one that is known.
    pair.rtt("n2", "n1", 80.0, pair.now_s - 1)
    pair.rtt("n2", "n1", None, pair.now_s - 1)
    assert pair.status() == before


def levels(*values: float | None, rounds: int = 4) -> Rounds:
    return [value for value in values for _ in range(rounds)]


@pytest.mark.parametrize(
    ("rounds", "flaps"),
    [
        (levels(5.0), False),
        (levels(5.0, 80.0), False),
        (levels(5.0, 80.0, 5.0), False),  # two changes: a repair
        (levels(5.0, 80.0, 5.0, 80.0), True),
        (levels(80.0, 5.0, 80.0, 5.0), True),
        (levels(5.0, None, 5.0), False),  # a restart
        (levels(5.0, None, 5.0, None, 5.0), True),
        ([5.0, 5.0, 5.0, 80.0] * 5, False),  # outliers are no changes
        ([5.0, 5.0, None, 5.0] * 5, False),
        (levels(0.3, 0.7, 0.3, 0.7, 0.3, 0.7), False),  # less than a millisecond
    ],
)
def test_a_path_flaps_from_its_third_change_on(rounds: Rounds, flaps: bool) -> None:
    assert PairOfNodes().ping(rounds).flapping == flaps


def test_a_flapping_path_has_the_higher_one_of_its_levels() -> None:
    pair = PairOfNodes()
    pair.ping(levels(5.0, 80.0, 5.0, 80.0))
    low = pair.ping(levels(5.0))
    assert (low.flapping, low.rtt_ms) == (True, 80.0)
    assert low.rtt_error_ms is not None
    assert low.rtt_error_ms >= 75.0
    nodes = table("n1", "n2")
    assert pair.state.link_table(nodes, pair.now_s).rtt_ms_from(0)[1] == 80.0
    # It stops when nothing changed for half an hour.
    assert pair.ping([5.0] * 100).flapping
    settled = pair.ping([5.0] * 200)
    assert (settled.flapping, settled.rtt_ms) == (False, 5.0)


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_noise_is_not_flapping(noise: float) -> None:
    random, jitters_ms = np.random.default_rng(1), []
    for _ in range(20):
        pair = PairOfNodes()
        pings_ms = 10.0 * np.maximum(1 + noise * random.standard_normal((360, 2)), 0.05)
        found = pair.ping(list(np.median(pings_ms, axis=1)))
        assert not found.flapping
        jitters_ms.append(found.jitter_ms or 0.0)
    # Of a round, the mean absolute deviation is 0.8 standard deviations.
    assert np.mean(jitters_ms) == pytest.approx(0.8 * 10 * noise / np.sqrt(2), rel=0.4)


def test_a_peer_that_does_not_reply_is_unreachable_and_not_estimated() -> None:
    builder, nodes = road(), table(*NAMES)
    builder.state.estimate_rtts(100.0)
    for at_s in (110.0, 120.0):
        builder.rtt("n1", "n0", None, at_s)
    assert builder.state.link_table(nodes, 121.0).rtt_ms_from(0)[1] == pytest.approx(2.0, rel=0.05)
    builder.rtt("n1", "n0", None, 130.0)
    builder.state.estimate_rtts(130.0)
    found = builder.state.link_table(nodes, 131.0)
    assert np.isnan(found.rtt_ms_from(0)[1])
    assert np.isnan(found.rtt_ms_from(1)[0])
    assert not np.isnan(found.rtt_ms_from(1)[2:]).any()
    assert not np.isnan(found.worst_rtt_ms)
    assert builder.state.rtt_ms("n0", "n1", 131.0) == inf
    pair = {(x.a, x.b): x for x in builder.state.links(131.0, NAMES)}["n0", "n1"]
    assert (pair.rtt_ms, pair.rtt_source, pair.loss) == (None, "unreachable", 1.0)
    builder.rtt("n1", "n0", 2.0, 140.0)
    assert builder.state.rtt_ms("n0", "n1", 141.0) == 2.0


def test_a_pair_that_never_replied_is_unreachable_until_it_is_too_old() -> None:
    pair = PairOfNodes()
    assert pair.ping([5.0]).rtt_ms == 5.0
    builder, nodes = road(), table(*NAMES)
    builder.state.estimate_rtts(100.0)
    for at_s in (110.0, 120.0, 130.0):
        builder.rtt("n0", "n5", None, at_s)
    assert np.isnan(builder.state.link_table(nodes, 131.0).rtt_ms_from(0)[5])
    assert builder.state.link_table(nodes, 311.0).rtt_ms_from(0)[5] > 0


def test_where_only_one_end_may_ping_its_round_trips_count_alone() -> None:
    pair = PairOfNodes()
    for _ in range(10):
        pair.ping([5.0], by="n2")
        pair.ping([None])
    found = pair.status()
    assert (found.rtt_ms, found.loss, found.flapping) == (5.0, 0.0, False)


def test_a_differing_round_is_to_be_repeated_from_both_ends_soon() -> None:
    pair = PairOfNodes()
    both: dict[str, list[str]] = {"n1": ["n2"], "n2": ["n1"]}
    neither: dict[str, list[str]] = {"n1": [], "n2": []}

    def wanted(after_s: float = 0.0) -> dict[str, list[str]]:
        return pair.state.pings_wanted(("n1", "n2"), pair.now_s + after_s)

    pair.ping([5.0, 5.0, 5.0])
    assert wanted() == neither
    pair.ping([80.0])
    assert wanted() == both
    pair.ping([80.0])  # it lasts
    assert wanted() == neither
    pair.ping([None])
    assert wanted() == both
    assert wanted(61.0) == neither


def test_after_a_restart_pairs_are_unknown_and_then_measured_anew() -> None:
    pair = PairOfNodes()
    pair.ping(levels(5.0, 80.0, 5.0, 80.0))
    again = PairOfNodes()
    assert again.state.links(1000.0) == []
    found = again.ping([5.0])
    assert (found.rtt_ms, found.loss, found.jitter_ms, found.flapping) == (5.0, 0.0, None, False)

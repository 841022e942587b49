"""What a bandwidth test would tell of links, and how many bytes that takes. No I/O.

A test measures each speed exactly up to that which its bytes and its peer's link allow; of a faster
link it only says so. What it tells is the entropy of what it may show, so a link that is unknown or
suspect, one that may do more than its bound, and one that has not been tested for long are the
same question: how much is to be learned for how much of the link's time.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import ceil, inf, log2

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.telemetry.bandwidth_tests import exact_s
from leadline_controller.telemetry.link_bandwidth import NodeLink
from leadline_controller.telemetry.link_belief import SPEEDS_MBPS, change_chance, later, prior

# Agents transfer whole blocks.
BLOCK_BYTES = 16 * 1024
# Fewer packets say nothing about a link.
LEAST_BYTES = 4 * BLOCK_BYTES
# A check tells 5 Mbit/s from 100 over round trips up to this many ms, and a larger one over others.
_FAR_MS = 20.0
FAR_BYTES = 2 * LEAST_BYTES
# The measurement is on the second half of the bytes.
_MEASURED_SHARE = 0.5
# Of an exact measurement: the link may be a step faster, and the round trip has an error.
_MARGIN = 1.25
_FIRST_MBPS = 50.0  # no test of an unknown link is charged as if it was faster
# A peer shows speeds up to this share of its own.
_REACH = 0.9
# Traffic or round trips contradict what is believed: the probability that the link changed.
_CHANGED = 0.3


class Purpose(IntEnum):
    """What is urgent about a test, the most urgent first."""

    SETTLE = 0  # one test contradicts what was believed
    FIRST = 1  # no other node has tested it
    ROUTINE = 2


class Knowledge:
    """What is known of the links of n nodes now, the rows in their order."""

    def __init__(self, links: Sequence[NodeLink], contradicted: Sequence[bool]) -> None:
        self.row = {link.name: at for at, link in enumerate(links)}
        speeds = np.array([link.link_mbps or inf for link in links])
        before = prior(speeds) if links else np.zeros((0, len(SPEEDS_MBPS)))
        belief = np.array(
            [p if x.belief is None else x.belief for x, p in zip(links, before, strict=True)]
        ).reshape(before.shape)
        changed = np.where(np.array(contradicted, dtype=np.bool_), _CHANGED, 0.0)
        belief = later(belief, changed, before)
        middle_mbps, likely_mbps, self._reach_mbps = (
            SPEEDS_MBPS[np.argmax(np.cumsum(belief, axis=1) >= share, axis=1)]
            for share in (0.5, 0.75, 0.9)
        )
        known = [link.bandwidth for link in links]
        self._planned_mbps = [
            min(mbps, _FIRST_MBPS) if x is None else likely if x.lower_bound else x.mbps
            for mbps, likely, x in zip(
                middle_mbps.tolist(), likely_mbps.tolist(), known, strict=True
            )
        ]
        self._shown_mbps = [
            mbps if x is None else x.mbps for mbps, x in zip(self._planned_mbps, known, strict=True)
        ]
        self._mbps = [
            min(mbps, max(2 * x.mbps, _FIRST_MBPS)) if x and x.lower_bound else mbps
            for mbps, x in zip(self._planned_mbps, known, strict=True)
        ]
        is_exact = [x is not None and not (x.lower_bound or x.is_suspect) for x in known]
        self.exact = {name for name, at in self.row.items() if is_exact[at]}
        # What is known exactly is known to a step of the speeds.
        self.gain = _gains(belief, np.array(is_exact, dtype=np.int64))
        self._most = self.gain.max(axis=1).tolist()

    def planned_mbps(self, node: str) -> float:
        """The speed for which tests are planned: what is believed, and of a bound what the link
        probably does."""
        return self._planned_mbps[self.row[node]]

    def shown_mbps(self, node: str) -> float:
        """The speed that tests have shown: the link does at least this much."""
        return self._shown_mbps[self.row[node]]

    def mbps(self, node: str) -> float:
        """The speed at which tests are charged: of a bound up to twice as much."""
        return self._mbps[self.row[node]]

    def most(self, node: str) -> float:
        """What the best test of the node would tell, nats."""
        return float(self._most[self.row[node]])

    def shortfall(self, node: str, peer: str) -> int:
        """How often the peer would have to be twice as fast to show all that the node may do."""
        ratio = self._reach_mbps[self.row[node]] / (_REACH * self._reach_mbps[self.row[peer]])
        return max(0, ceil(log2(ratio)))

    def tells(self, node: str, size: Ints, rtt_ms: float | None, peer: str = "") -> Floats:
        """What tests of so many bytes with a peer tell of the node, nats, shape of `size`."""
        most = _MEASURED_SHARE * size * 8e-6 / (_MARGIN * exact_s(rtt_ms))
        if peer:
            most = np.minimum(most, _REACH * self._reach_mbps[self.row[peer]])
        return np.asarray(self.gain[self.row[node], np.searchsorted(SPEEDS_MBPS, most, "right")])


def check_bytes(rtt_ms: float | None) -> int:
    """How many bytes the smallest test takes."""
    return FAR_BYTES if rtt_ms is not None and rtt_ms > _FAR_MS else LEAST_BYTES


def sizes(least: int, most: float) -> Ints:
    """The sizes to choose from, bytes: from the smallest, each a quarter more than the last."""
    count = max(0, int(np.log(max(most / least, 1.0)) / np.log(1.25)))
    blocks = np.ceil(least * 1.25 ** np.arange(count + 1) / BLOCK_BYTES)
    return np.asarray(blocks * BLOCK_BYTES, dtype=np.int64)


def change_tells(passed_s: float) -> float:
    """What a test tells of a link that was known exactly so many seconds ago, nats."""
    chance = change_chance(np.array([passed_s]))
    return float(_gains(later(_KNOWN, chance, _FLAT), np.ones(1, dtype=np.int64)).max())


def _gains(belief: Floats, same: Ints) -> Floats:
    """The entropy of what a test shows that measures the slowest k speeds exactly, and of the
    others only that it is one of them, nats. belief: shape (n, g). same: so many steps from the
    most probable speed are the same as it, shape (n,). Returns shape (n, g + 1)."""
    places = np.arange(belief.shape[1])
    wide = belief.copy()
    wide[:, 1:] += belief[:, :-1]
    wide[:, :-1] += belief[:, 1:]
    mode = wide.argmax(axis=1)[:, np.newaxis]
    is_same: Bools = np.abs(places - mode) <= same[:, np.newaxis]
    same = np.where(is_same, belief, 0.0).sum(axis=1, keepdims=True)
    groups = np.where(is_same, np.where(places == mode, same, 0.0), belief)
    parts = -groups * np.log(np.maximum(groups, 1e-12))
    start = np.zeros((len(belief), 1))
    shown = np.concatenate((start, np.cumsum(parts, axis=1)), axis=1)
    rest = 1.0 - np.concatenate((start, np.cumsum(groups, axis=1)), axis=1)
    return np.asarray(shown - rest * np.log(np.maximum(rest, 1e-12)))


_FLAT = prior(np.array([inf]))
_KNOWN = np.eye(1, len(SPEEDS_MBPS), len(SPEEDS_MBPS) // 2)

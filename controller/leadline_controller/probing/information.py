"""What a bandwidth test could show of a link, and what that takes. No I/O.

The planner of bandwidth.py decides by it which test is worth its cost.
"""

from enum import IntEnum
from math import inf

from leadline_controller.telemetry.bandwidth import (
    AGREEING_SHARE,
    TESTS,
    UNKNOWN_RTT_MS,
    LinkBandwidth,
    NodeLink,
    exact_s,
)

# Agents transfer whole blocks.
BLOCK_BYTES = 16 * 1024
# Fewer packets say nothing about a link.
LEAST_BYTES = 4 * BLOCK_BYTES
# A check tells 5 Mbit/s from 100 over round trips up to this many ms, and a larger one over others.
_FAR_MS = 20.0
FAR_BYTES = 2 * LEAST_BYTES
# The measurement is on the second half of the bytes.
_MEASURED_SHARE = 0.5
FIRST_MBPS = 50.0  # assumed for a link of unknown speed
_LARGER_EACH_TIME = 5.0  # the next test after a lower bound
# A board that waits for its processor now and then waits for a smaller share of a longer test. And
# a shaper's burst, which a bound leaves out, is so small a part of it that the bound reaches
# _SHARE_OF_LINK_SPEED, so that no more tests follow. But a short test shows little of a fast link,
# and one that is so much longer than it would be saved for in vain if the link is slow.
_LONGER_IF_HINDERED, _LONGER_THAN_LAST = 8.0, 16.0
_MARGIN = 1.1  # of an exact measurement, because the estimate of the round trip has an error
# A lower bound of this share of the interface's speed is as good as an exact value.
_SHARE_OF_LINK_SPEED = 0.8
# A checked value is measured exactly again after so long.
MEASURED_AGAIN_S = 900.0
_BOUND_AGAIN_S = 120.0  # if a peer's link was no faster, because another one may be


class Purpose(IntEnum):
    """What a test is for, the most urgent first."""

    SETTLE = 0
    FIRST = 1
    MEASURE = 2
    CHECK = 3


def wanted_bytes(link: NodeLink, other: NodeLink, purpose: Purpose, rtt_ms: float | None) -> float:
    """How many bytes a test of the link with the other one needs. rtt_ms: None if unknown."""
    if purpose is Purpose.FIRST:
        return LEAST_BYTES
    if purpose is Purpose.CHECK:
        is_far = (UNKNOWN_RTT_MS if rtt_ms is None else rtt_ms) > _FAR_MS
        is_short = is_open(link) and assumed_mbps(link) <= FIRST_MBPS
        return FAR_BYTES if is_far and not is_short else LEAST_BYTES
    known, mbps = link.bandwidth, min(expected_mbps(link), expected_mbps(other))
    if purpose is Purpose.SETTLE and known is not None:
        mbps = min(mbps, known.mbps, known.suspected_mbps)
    measured_bytes = _MARGIN * mbps * 1e6 / 8 * exact_s(rtt_ms)
    if known is not None and known.is_host_limited and not known.is_suspect:
        most_bytes = max(measured_bytes, _LONGER_THAN_LAST * known.measured_bytes)
        measured_bytes = min(_LONGER_IF_HINDERED * measured_bytes, most_bytes)
    return measured_bytes / _MEASURED_SHARE


def again_s(link: NodeLink) -> float:
    """How long an exact measurement is not repeated, or one that may show too little."""
    known = link.bandwidth
    is_bound = known is not None and (known.lower_bound or _is_claimed(known))
    return _BOUND_AGAIN_S if is_bound and not _is_near_speed(link) else MEASURED_AGAIN_S


def _is_claimed(bandwidth: LinkBandwidth) -> bool:
    """Whether one result showed more, and no other one confirmed it yet."""
    return bandwidth.claimed_mbps > bandwidth.settled_mbps / AGREEING_SHARE


def _is_near_speed(link: NodeLink) -> bool:
    """Whether what is known is nearly the speed of the node's interface: a lower bound is then as
    good as an exact value."""
    known, speed_mbps = link.bandwidth, link.link_mbps
    if known is None or speed_mbps is None:
        return False
    return known.mbps >= _SHARE_OF_LINK_SPEED * speed_mbps


def is_untested(bandwidth: LinkBandwidth) -> bool:
    """Whether it is only what the node's own counters, or its interface, say."""
    return bandwidth.source != TESTS and bandwidth.measured_s == -inf


def is_open(link: NodeLink) -> bool:
    """Whether a larger test could find more than is known."""
    bandwidth = link.bandwidth
    return bandwidth is not None and bandwidth.is_short and not _is_near_speed(link)


def is_useful(peer: NodeLink, link: NodeLink, purpose: Purpose = Purpose.CHECK) -> bool:
    """Whether a test with the peer can show what is to be known: of a lower bound, that the link
    can do more, or what it can do at most."""
    known = link.bandwidth
    if known is None or is_untested(known):
        return True
    if known.is_suspect:
        is_other = peer.name != known.suspect_peer
        return is_other and AGREEING_SHARE * expected_mbps(peer) > known.suspected_mbps
    if purpose is Purpose.MEASURE and known.lower_bound:
        least_mbps = min(known.mbps / AGREEING_SHARE, AGREEING_SHARE * expected_mbps(link))
        return expected_mbps(peer) > least_mbps
    # What nobody has confirmed is no reason to call a link checked.
    is_check = purpose is Purpose.CHECK
    return expected_mbps(peer, is_check=is_check) >= AGREEING_SHARE * known.mbps


def expected_mbps(link: NodeLink, *, is_check: bool = False) -> float:
    """What a test may find at most, as far as one can know. is_check: what is believed is to be
    checked, and not what one result showed since."""
    most = link.link_mbps or inf
    bandwidth = link.bandwidth
    if bandwidth is None:
        return min(FIRST_MBPS, most)
    expected = bandwidth.settled_mbps
    is_claimed = _is_claimed(bandwidth) and not is_check
    if is_claimed:
        expected = bandwidth.claimed_mbps
    if bandwidth.lower_bound or is_claimed:
        expected = max(expected * _LARGER_EACH_TIME, FIRST_MBPS)
    return min(max(expected, link.used_mbps), most)


def assumed_mbps(link: NodeLink) -> float:
    """The speed at which a test is charged. A test that was too short says little about it."""
    bandwidth, most = link.bandwidth, link.link_mbps or inf
    if bandwidth is None:
        return min(FIRST_MBPS, most)
    if bandwidth.is_suspect:
        return min(bandwidth.mbps, bandwidth.suspected_mbps)
    return min(max(2 * bandwidth.mbps, FIRST_MBPS), most) if bandwidth.is_short else bandwidth.mbps

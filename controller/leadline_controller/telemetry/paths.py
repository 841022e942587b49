"""What the rounds of pings between two nodes say about the path. Pure arithmetic on one path.

- Round trip: the median of the last three rounds. One round that met other traffic does not change
  it, and a lasting change does from its second round on.
- Loss: the share of echo requests without a reply, weighted exponentially by round.
- Jitter: the mean deviation of rounds from the round trip, as TCP keeps it (RTTVAR of RFC 6298,
  section 2). One round counts at most as a change does, so an outlier does not hide the next one.
- Change: the round trip moves by more than four times the jitter (the margin of TCP's time-out,
  RFC 6298), by half and by 1 ms at least; or the peer stops replying or replies again.
- Flapping: route flap damping (RFC 2439), with the usual defaults of routers. Each change adds 1
  to a penalty that halves in 15 minutes. A path flaps from a penalty above 2, which needs three
  changes, until it is below 0.75.
"""

from math import isnan, nan
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.view import Bools

LOST_ROUNDS = 3  # in a row, and the peer is unreachable
_LOSS_GAIN = 1 / 8
_JITTER_GAIN = 1 / 4
_JITTERS, _LEAST_CHANGE_SHARE, _LEAST_CHANGE_MS = 4.0, 0.5, 1.0
_HALF_LIFE_S, _FLAPPING_FROM, _FLAPPING_UNTIL, _MOST_PENALTY = 900.0, 2.0, 0.75, 12.0
LEAST_RTT_MS = 0.001  # of a relative error of zero nothing can be said


class PingRound(NamedTuple):
    """One round of pings to a peer."""

    rtt_ms: float | None  # the median of its replies, None without one
    sent: int = 1
    received: int = 1


class Path(NamedTuple):
    """The rounds of pings between two nodes, from either end."""

    rtt_ms: float = nan  # median of the last three rounds
    # at_s, lost_at_s: when the last round with, and without, replies was.
    at_s: float = -np.inf
    # older_ms, middle_ms, newest_ms: the rounds; NaN where there was none.
    older_ms: float = nan
    middle_ms: float = nan
    newest_ms: float = nan
    jitter_ms: float = nan
    lost_at_s: float = -np.inf
    lost_rounds: int = 0  # the last ones in a row
    # sent, received: packets, the older ones with less weight.
    sent: float = 0.0
    received: float = 0.0
    penalty: float = 0.0  # for changes, as of penalty_at_s
    penalty_at_s: float = 0.0
    is_flapping: bool = False
    higher_ms: float = nan  # the higher one of the last two levels

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the last round differs, and another one is to show if it lasts."""
        if self.lost_rounds:
            return self.lost_rounds < LOST_ROUNDS
        return abs(self.newest_ms - self.rtt_ms) > _margin_ms(self, self.newest_ms)


PATH = np.dtype([(name, type(getattr(Path(), name))) for name in Path._fields])


def after(path: Path, round_: PingRound, at_s: float, ttl_s: float) -> Path:
    """The path after one more round, whose packets count in any case. ttl_s: rounds before a longer
    gap do not count."""
    is_known = at_s - path.at_s <= ttl_s
    if not is_known and at_s - path.lost_at_s > ttl_s:
        path = path._replace(sent=0.0, received=0.0, lost_rounds=0)
    sent = path.sent * (1 - _LOSS_GAIN) + round_.sent
    received = path.received * (1 - _LOSS_GAIN) + round_.received
    if round_.rtt_ms is None:
        lost_rounds = min(path.lost_rounds + 1, LOST_ROUNDS)
        is_change = is_known and lost_rounds == LOST_ROUNDS > path.lost_rounds
        path = path._replace(sent=sent, received=received, lost_at_s=at_s, lost_rounds=lost_rounds)
        return _punished(path, at_s) if is_change else path
    rtt_ms, jitter_ms, before = max(round_.rtt_ms, LEAST_RTT_MS), nan, path
    rounds_ms = (nan, nan, rtt_ms)
    if is_known:
        rounds_ms = (path.middle_ms, path.newest_ms, rtt_ms)
        deviation_ms = min(abs(rtt_ms - path.rtt_ms), _margin_ms(path, rtt_ms))
        jitter_ms = deviation_ms
        if not isnan(path.jitter_ms):
            jitter_ms = path.jitter_ms + _JITTER_GAIN * (deviation_ms - path.jitter_ms)
    path = Path(
        median(each for each in rounds_ms if not isnan(each)),
        at_s,
        *rounds_ms,
        jitter_ms,
        path.lost_at_s,
        0,
        sent,
        received,
        path.penalty,
        path.penalty_at_s,
        path.is_flapping,
        path.higher_ms,
    )
    if not is_known:
        return path
    if before.lost_rounds == LOST_ROUNDS:
        path = _punished(path, at_s)
    # The median of two rounds is no level of the path.
    moved_ms = abs(path.rtt_ms - before.rtt_ms)
    if not isnan(before.older_ms) and moved_ms > _margin_ms(before, path.rtt_ms):
        path = _punished(path, at_s)._replace(higher_ms=max(path.rtt_ms, before.rtt_ms))
    return path


def flapping(paths: NDArray[np.void], now_s: float) -> Bools:
    """Which of the paths, an array of PATH, flap at this time."""
    passed_s = np.maximum(now_s - paths["penalty_at_s"], 0.0)
    left = paths["penalty"] * 0.5 ** (passed_s / _HALF_LIFE_S)
    still: Bools = paths["is_flapping"] & (left >= _FLAPPING_UNTIL)
    return still


def _margin_ms(path: Path, rtt_ms: float) -> float:
    """By how much more a value must differ from the round trip to be another level."""
    jitter_ms = 0.0 if isnan(path.jitter_ms) else path.jitter_ms
    least_ms = _LEAST_CHANGE_SHARE * min(path.rtt_ms, rtt_ms)
    return max(_JITTERS * jitter_ms, least_ms, _LEAST_CHANGE_MS)


def _punished(path: Path, at_s: float) -> Path:
    """The path after a change."""
    left = path.penalty * 0.5 ** (max(at_s - path.penalty_at_s, 0.0) / _HALF_LIFE_S)
    is_recent = left >= _FLAPPING_UNTIL
    penalty = min(left + 1.0, _MOST_PENALTY)
    return path._replace(
        penalty=penalty,
        penalty_at_s=at_s,
        is_flapping=(path.is_flapping and is_recent) or penalty > _FLAPPING_FROM,
        higher_ms=path.higher_ms if is_recent else nan,
    )

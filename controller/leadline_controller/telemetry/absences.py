"""What it costs that a board goes away and comes back, again and again.

Who comes while it is away waits for half of that time on average. Of all absences two sums are
kept, in which an older one counts less and less: so they are bounded, and a board that stays is as
good as new after some hours.
"""

from math import exp, inf
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import RESTART_S, Floats

# An absence of so long ago counts e times less; the rate is that of about so long.
MEMORY_S = 3 * 3600.0
# Kubernetes moves the pods of a node that is away for longer.
_LONGEST_S = 300.0
# A board that says nothing for less, or for less than so many intervals between its reports, was
# not away: a few messages got lost.
LEAST_AWAY_S, _INTERVALS = 30.0, 3


class Heard(NamedTuple):
    """When a message came from a board, and of which boot and session of its agent."""

    at_s: float = -inf
    boot_id: bytes = b""
    session: int = 0
    silent_s: float = 0.0  # for how long in all no board said anything until then


def absence_s(before: Heard, now: Heard, interval_s: float) -> float | None:
    """For how long users of the board waited at most, with the restart of its pods; None if it was
    not away. before: its message before this one. interval_s: between its reports."""
    silent_s = now.silent_s - before.silent_s
    gap_s = now.at_s - before.at_s - silent_s
    if not 0.0 <= gap_s < inf:
        return None
    if now.boot_id != before.boot_id:
        return min(gap_s, _LONGEST_S) + RESTART_S
    # Another session of the same boot: the agent restarted, and the board's pods ran on. After a
    # silence of all, the broker's, boards come back one after the other.
    if now.session != before.session or silent_s:
        return None
    if gap_s <= max(LEAST_AWAY_S, _INTERVALS * interval_s):
        return None
    return min(gap_s, _LONGEST_S)


class Absences(NamedTuple):
    """The sums of one board at a time. An absence of a s, t s ago, adds a^2 / 2 and 1, each times
    exp(-t / MEMORY_S)."""

    waited_s2: float = 0.0  # of the requests, if one came each second
    ended: float = 0.0  # how many
    at_s: float = -inf

    def after(self, away_s: float, now_s: float) -> "Absences":
        """With one more, which ends now."""
        left = exp(min((self.at_s - now_s) / MEMORY_S, 0.0))
        return Absences(left * self.waited_s2 + away_s**2 / 2, left * self.ended + 1.0, now_s)


def absence_waits_ms(absences: Floats, now_s: float) -> Floats:
    """What a request waits on average, ms, shape (n,). absences: a row for each board.

    One absence is no rate, as boards are restarted on purpose: of k as long as each other k - 1
    count, which is also what the rate between the first and the last of them is worth."""
    waited_s2, ended, at_s = absences.T
    left = np.exp(np.minimum((at_s - now_s) / MEMORY_S, 0.0))
    counted = ended * left
    share = np.maximum(counted - 1.0, 0.0) / np.maximum(counted, 1.0)
    found: Floats = 1000.0 * share * left * waited_s2 / MEMORY_S
    return found

"""The table of what other strategies would have decided, and what was measured of both boards
after that.

A row is a decision of one of them. Where it finds another node better, the ten minutes after
the decision are measured once they are in the series, which are kept for a day. These functions
are called by a Store, those that write in its transactions.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from leadline_controller.framework.cycle import Better
from leadline_controller.framework.view import Floats
from leadline_controller.history import series
from leadline_controller.history.times import Moment
from leadline_controller.telemetry.series import FINE, MEAN, RTT, SeriesKey, resampled

# What is measured later of both boards: series of theirs, and the round trip to the pod's user.
CPU, BANDWIDTH = "cpu_percent", "bandwidth_mbps"
LATER = (CPU, BANDWIDTH, RTT)
MINUTES = 10
_LEAST_MINUTES = 5  # of which there must be values
# These minutes, a quarter of an hour until its block is written, and some more.
_DUE_S = 60.0 * (MINUTES + 20)
_AT_ONCE = 256
_NOTHING = ""  # no JSON: there is nothing to measure

_Text = Annotated[str, Meta(max_length=2**16)]
# Metric -> what was measured on the node, and on the choice of the shadow.
Later = dict[str, tuple[float, float]]


class ShadowDecision(msgspec.Struct, array_like=True, frozen=True):
    """What a strategy would have decided about a pod, and what was decided. As JSON an array in
    this order; a later version adds fields at the end, with defaults."""

    strategy: _Text
    pod: _Text  # namespace/name
    uid: _Text
    workload: _Text  # namespace/name of whatever made the pod
    decided_by: _Text  # the strategy in force
    node: _Text  # where the pod went
    choice: _Text | None  # the strategy's; None if it finds no node good enough
    better: Better
    candidates: int
    # In the strategy's unit: of its choice, and of the node; None if unknown.
    total: float | None
    total_of_node: float | None
    rank: int | None  # of the node by the strategy's totals
    tied: bool  # whether the node is as good as the choice, so that only chance decides
    missed: int  # the decisions before this one that nobody looked at
    user: _Text  # the pod's user node, "" if none is known
    pod_cpu_percent: float  # of the node's CPU, what the pod is expected to use
    at: Moment = Moment("", 0.0, None)  # columns of their own in the table
    later: Later | None = None  # None if it is not measured yet

    @property
    def differs(self) -> bool:
        """Whether it is for another node that the strategy finds better, or for none."""
        return self.choice != self.node and not self.tied


_DECODER = msgspec.json.Decoder(ShadowDecision)
_LATER = msgspec.json.Decoder(Later)
_SELECT = (
    "SELECT shadows.id, boots.boot, up_s, boots.started_unix_s, record, outcome FROM shadows"
    " LEFT JOIN boots ON boots.id = shadows.boot"
)


def write(connection: sqlite3.Connection, decisions: Iterable[ShadowDecision]) -> None:
    """Store these, whose boots the file knows."""
    for each in decisions:
        is_due = each.choice is not None and each.differs
        bare = msgspec.structs.replace(each, at=Moment("", 0.0, None), later=None)
        connection.execute(
            "INSERT INTO shadows (boot, up_s, record, outcome)"
            " VALUES ((SELECT id FROM boots WHERE boot = ?), ?, ?, ?)",
            (
                *(each.at.boot, each.at.up_s, msgspec.json.encode(bare).decode()),
                None if is_due else _NOTHING,
            ),
        )


def below(connection: sqlite3.Connection, before: int) -> list[tuple[int, ShadowDecision | None]]:
    """Some of the rows with lower ids, the newest first; None for one that Leadline never wrote."""
    rest = f"{_SELECT} WHERE shadows.id < ? ORDER BY shadows.id DESC LIMIT ?"
    return list(_read(connection.execute(rest, (before, 4 * _AT_ONCE))))


def measure(
    connection: sqlite3.Connection,
    now: Moment,
    was_bound: Callable[[sqlite3.Connection, ShadowDecision], bool],
) -> bool:
    """Measure what is due, the oldest first. was_bound: whether the pod came to its node. Returns
    whether more may be due."""
    due = f"{_SELECT} WHERE outcome IS NULL ORDER BY shadows.id LIMIT ?"
    rows = connection.execute(due, (_AT_ONCE,)).fetchall()

    @cache
    def means(board: str, from_s: int) -> dict[SeriesKey, float]:
        return _means(connection, board, from_s)

    for number, decision in _read(iter(rows)):
        if decision is not None and decision.at.age_s(now) < _DUE_S:
            return False
        outcome, unix_s = _NOTHING, None if decision is None else decision.at.unix_s(now)
        if decision is not None and unix_s is not None and was_bound(connection, decision):
            from_s = int(unix_s // FINE.step_s + 1) * FINE.step_s
            outcome = msgspec.json.encode(_later(decision, from_s, means)).decode()
        connection.execute("UPDATE shadows SET outcome = ? WHERE id = ?", (outcome, number))
    return len(rows) == _AT_ONCE


def delete_old(connection: sqlite3.Connection, now: Moment, max_age_s: float) -> None:
    """From the oldest row up to the first that is young enough."""
    old = 0
    for number, decision in _read(connection.execute(f"{_SELECT} ORDER BY shadows.id")):
        if decision is not None and decision.at.age_s(now) <= max_age_s:
            break
        old = number
    if old:
        connection.execute("DELETE FROM shadows WHERE id <= ?", (old,))


def _read(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[int, ShadowDecision | None]]:
    for number, boot, up_s, started_unix_s, record, outcome in rows:
        try:
            at = msgspec.convert((boot, up_s, started_unix_s), Moment)
            later = _LATER.decode(outcome) if outcome else None
            found = _DECODER.decode(record)
            yield number, msgspec.structs.replace(found, at=at, later=later)
        except (ValueError, TypeError, RecursionError):
            yield number, None


def _later(
    decision: ShadowDecision, from_s: int, means: Callable[[str, int], dict[SeriesKey, float]]
) -> Later:
    """What is known of both boards."""
    found: Later = {}
    boards = (decision.node, decision.choice or "")
    for name in LATER:
        if name != RTT:
            values = [means(board, from_s).get(SeriesKey(name)) for board in boards]
        elif decision.user:
            values = [_rtt_ms(board, decision.user, from_s, means) for board in boards]
        else:
            continue
        if values[0] is not None and values[1] is not None:
            found[name] = (values[0], values[1])
    return found


def _rtt_ms(
    board: str, user: str, from_s: int, means: Callable[[str, int], dict[SeriesKey, float]]
) -> float | None:
    """As one of both measured it; 0 on the user's own node."""
    if board == user:
        return 0.0
    for a, b in ((board, user), (user, board)):
        if (found := means(a, from_s).get(SeriesKey(RTT, b))) is not None:
            return found
    return None


def _means(connection: sqlite3.Connection, board: str, from_s: int) -> dict[SeriesKey, float]:
    """The board's means over the minutes from then on, of what was measured in half of them."""
    to_s = from_s + MINUTES * FINE.step_s
    blocks = series.blocks(connection, board, from_s, to_s)
    fine = [block for block in blocks if block.resolution is FINE]
    found = {}
    for key, points in resampled(fine, from_s, MINUTES, FINE.step_s).items():
        values: Floats = points[:, MEAN][~np.isnan(points[:, MEAN])]
        if values.size >= _LEAST_MINUTES:
            found[key] = round(float(values.mean()), 4)
    return found

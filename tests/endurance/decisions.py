"""What a controller has recorded, read from its database by SQL and not by its own code."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from tests.endurance.bookkeeper import Bookkeeper

# Bound so long ago, a pod's decision is written; and it is not yet among those that made room.
_WRITTEN_S, _KEPT_S = 5.0, 120.0
_ROWS = 6000


def compare(path: Path, book: Bookkeeper, now_s: float) -> int:
    """Each pod that was bound a moment ago has one decision that says so, for its node. Returns how
    many were compared. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT record ->> 0, record ->> 1 FROM decisions WHERE record ->> 6 = 'bound'"
            " ORDER BY id DESC LIMIT ?",
            (_ROWS,),
        ).fetchall()
    recorded = defaultdict[str, list[str]](list)
    for uid, node in rows:
        recorded[uid].append(node)
    compared = 0
    for uid, account in book.pods.items():
        if account.node is None or not _WRITTEN_S < now_s - account.bound_s < _KEPT_S:
            continue
        compared += 1
        if recorded[uid] != [account.node]:
            what = f"{account.facts.key} is on {account.node}, recorded: {recorded[uid]}"
            book.violated("a decision is not recorded once", now_s, what)
    return compared

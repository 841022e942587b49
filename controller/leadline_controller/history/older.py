"""Converts the tables of versions 1 and 2 of the file once, when it is opened.

They had columns for what is JSON now, a table of rules, and explanations whose numbers followed the
JSON as columns of 32-bit floats. Series were as they are; the first version had none.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import numpy as np

from leadline_controller.framework.view import Floats
from leadline_controller.history.explanation import Count, Explanation, encode, rounded, unpacked
from leadline_controller.history.record import Stored

WITH_SERIES, WITH_RECORDS, WITH_SHADOWS = 2, 3, 4  # the versions that began to have them
_AT_ONCE = 500
_SELECT = (
    "SELECT decisions.id, pod, first_boot, first_up_s, boot, up_s, account,"
    " uid, node, why, strategy, better, options, outcome, times"
    " FROM older AS decisions JOIN rules ON rules.id = rule"
    " WHERE decisions.id > ? ORDER BY decisions.id LIMIT ?"
)


class _Head(msgspec.Struct):
    nodes: tuple[str, ...]
    parts: list[str]
    ages: list[str]
    scored: Count
    rejected: Count
    failing: dict[str, Count]
    reasons: list[tuple[tuple[str, ...], tuple[str, ...]]]
    pull: list[str] = []
    measured: list[str] = []


def begin(connection: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    """Rename the tables that are in the way. Returns the rows of the new one, oldest first; what
    is unreadable is left out."""
    connection.execute("ALTER TABLE decisions RENAME TO older")
    connection.execute("DROP INDEX decisions_of_pod")
    return _rows(connection)


def end(connection: sqlite3.Connection) -> None:
    """Delete the older tables."""
    connection.execute("DROP TABLE older")
    connection.execute("DROP TABLE rules")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    number = -1
    while rows := connection.execute(_SELECT, (number, _AT_ONCE)).fetchall():
        number = rows[-1][0]
        for *columns, account, uid, node, why, strategy, better, options, outcome, times in rows:
            with suppress(ValueError, TypeError, RecursionError):
                fields = (uid, node, why, strategy, better, json.loads(options), outcome, times)
                record = msgspec.json.encode(msgspec.convert(fields, Stored)).decode()
                yield *columns, record, _explanation(account)
        # Their pages take the new rows: the file does not grow.
        connection.execute("DELETE FROM older WHERE id <= ?", (number,))


def _explanation(account: bytes) -> bytes:
    """The explanation as it is encoded now; none if it cannot be read."""
    try:
        text, _, floats = unpacked(account).partition(b"\n")
        head = msgspec.json.decode(text, type=_Head)
        groups = (head.parts, head.ages, head.pull, head.measured)
        shape = 1 + sum(map(len, groups)), len(head.nodes)
        numbers = np.frombuffer(floats, dtype="<f4").astype(np.float64).reshape(shape)
        columns: Iterator[Floats] = iter(rounded(numbers))
        total = next(columns)
        parts, ages_s, pull, measured = ({name: next(columns) for name in each} for each in groups)
        reasons = {node: why for why, nodes in head.reasons for node in nodes}
        made = Explanation(
            *(head.nodes, total, parts, ages_s, pull, measured),
            *(head.scored, head.rejected, head.failing, reasons),
        )
        return encode(made)
    except (zlib.error, ValueError, TypeError, RecursionError):
        return b""

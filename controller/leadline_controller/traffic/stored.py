"""The boards' counts as bytes, for the database, so that a restart does not forget who talks to
whom. Ages instead of times: clocks begin anew, or are not set yet."""

import zlib
from collections.abc import Mapping

import msgspec
import numpy as np

from leadline_controller.framework.services import Service
from leadline_controller.traffic.counts import QUANTITIES, BoardCounts
from leadline_controller.traffic.join import Key, Place

_VERSION = 1
_MOST_BYTES = 64 * 2**20
_LEVEL = 6
_DIGITS = 5  # that a rate keeps

_Who = str | tuple[str, list[tuple[str, str]]]


class _Row(msgspec.Struct, array_like=True):
    """source, seen, destination: places in the document's list."""

    source: int
    seen: int
    destination: int
    port: int
    has_source: bool
    has_destination: bool
    enters: bool
    age_s: float
    sums: list[float]


class _Board(msgspec.Struct, array_like=True):
    node: str
    age_s: float
    known: list[float]
    omitted: list[float]
    rows: list[_Row]


class _Document(msgspec.Struct):
    version: int
    unix_s: float | None  # when it was written, None while the wall clock is not set
    places: list[tuple[_Who, str]]
    names: list[tuple[int, str]]  # of the workloads: a place of each, and what people call it
    boards: list[_Board]


def encode(
    boards: Mapping[str, BoardCounts],
    names: Mapping[Service, str],
    now_s: float,
    unix_s: float | None,
) -> bytes:
    """The document of these counts. unix_s: the wall clock's time now."""
    places: dict[Place, int] = {}

    def place(each: Place) -> int:
        return places.setdefault(each, len(places))

    made = [
        _Board(
            node,
            now_s - board.counted_s,
            board.known.tolist(),
            board.omitted.tolist(),
            [
                _Row(
                    *(place(key.source), place(key.seen), place(key.destination), key.port),
                    *(key.has_source, key.has_destination, key.enters),
                    now_s - float(board.row_s[row]),
                    [float(f"{x:.{_DIGITS}g}") for x in board.sums[row].ravel().tolist()],
                )
                for key, row in board.keys.items()
            ],
        )
        for node, board in boards.items()
        if board.keys
    ]
    called = {
        each.who: (number, names[each.who])
        for each, number in places.items()
        if not isinstance(each.who, str) and each.who in names
    }
    document = _Document(
        _VERSION,
        unix_s,
        [(_written(each.who), each.node) for each in places],
        list(called.values()),
        made,
    )
    return zlib.compress(msgspec.json.encode(document), _LEVEL)


def decode(
    data: bytes, now_s: float, unix_s: float | None
) -> tuple[dict[str, BoardCounts], dict[Service, str]]:
    """The counts and the names in a document, as if the controller had not been away: the time
    since is added to their ages where both clocks tell it. Raises ValueError."""
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(data, _MOST_BYTES)
        if not unpacked.eof:
            raise ValueError("the stored traffic cannot be read: its end is missing")
        document = msgspec.json.decode(text, type=_Document)
        if document.version != _VERSION:
            raise ValueError(f"version {document.version}, expected {_VERSION}")
        away_s = 0.0
        if unix_s is not None and document.unix_s is not None:
            away_s = max(0.0, unix_s - document.unix_s)
        places = [Place(_read(who), node) for who, node in document.places]
        names = {
            who: name
            for number, name in document.names
            if not isinstance(who := places[number].who, str)
        }
        return {each.node: _board(each, places, now_s - away_s) for each in document.boards}, names
    except (zlib.error, msgspec.MsgspecError, IndexError) as error:
        raise ValueError(f"the stored traffic cannot be read: {error}") from None


def _board(stored: _Board, places: list[Place], then_s: float) -> BoardCounts:
    rows = stored.rows
    sums = np.array([each.sums for each in rows], dtype=np.float64)
    known, omitted = np.array(stored.known), np.array(stored.omitted)
    if sums.size != len(rows) * 2 * QUANTITIES or known.shape != (2,) or omitted.shape != (3,):
        raise ValueError("the stored traffic has columns of the wrong length")
    keys = [
        Key(
            *(places[each.source], places[each.seen], places[each.destination], each.port),
            *(each.has_source, each.has_destination, each.enters),
        )
        for each in rows
    ]
    if len(set(keys)) < len(keys):
        raise ValueError("the stored traffic has a row twice")
    return BoardCounts(
        then_s - stored.age_s,
        {key: row for row, key in enumerate(keys)},
        np.zeros((len(rows), QUANTITIES)),
        sums.reshape(len(rows), 2, QUANTITIES),
        np.array([then_s - each.age_s for each in rows], dtype=np.float64),
        known,
        omitted,
    )


def _written(who: Service | str) -> _Who:
    return who if isinstance(who, str) else (who[0], sorted(who[1]))


def _read(who: _Who) -> Service | str:
    return who if isinstance(who, str) else (who[0], frozenset(who[1]))

"""Entries of a recording as bytes, some hundred at a time: a block, which can be read by itself.

Reports and pings are nearly all of a recording, and most bits of what they measure are noise. So a
block has them in columns, each number's bytes apart from those of the same weight in the next one,
and what they say again and again once. All else is MessagePack by the fields' names, without those
that have their defaults: a later version reads what an earlier one wrote as long as the fields that
are new have defaults.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any, Generic, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from leadline_controller.framework import ports
from leadline_controller.framework.cluster_objects import ClusterObject
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import PeerTraffic
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Counted,
    Decided,
    Entry,
    Learnt,
    Missed,
    Pulled,
    Recorded,
    Used,
)
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp

Item = TypeVar("Item")
# The kinds of entries by their number in a block. New ones come last.
_OF_CHANGES = (*get_args(ports.ClusterChange),)
_KINDS: tuple[type, ...] = (
    *(Began, Born, Reported, Pinged, Tested, Pulled, Learnt, Used, Decided, Missed),
    *_OF_CHANGES,
    Counted,
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_REPORTED, _PINGED = _NUMBERS[Reported], _NUMBERS[Pinged]
_OBJECTS = {kind.__name__: kind for kind in get_args(ClusterObject)}
_WORKLOADS = list[tuple[str, frozenset[tuple[str, str]], float, float]]
_COUNTED = tuple[
    list[tuple[Service, tuple[PeerTraffic, ...]]], Mapping[str, str], Mapping[str, float]
]


# Of what is no value of a recording's types: a text that is no Unicode, a number beyond 64 bits.
ENTRY_ERRORS = (TypeError, ValueError, OverflowError)
# Whatever a block made by a stranger brings about.
_BLOCK_ERRORS = (
    *(ValueError, TypeError, LookupError, ArithmeticError, RuntimeError),
    *(StopIteration, MemoryError),
)
_FRACTION = re.compile(r"-?[0-9]{1,200}(/[0-9]{1,200})?")  # no exponent, which takes hours


class BlockError(ValueError):
    """These bytes are no block of this version. str() says why, in one line."""


class _Messages(msgspec.Struct, array_like=True, frozen=True):
    """What n agents' messages have in common, in columns: the stamps. senders: node, boot and
    session of each; sender, shape, sequence, boot_ms, measured_s, retained: columns. shape: what
    kind of message it is, of a table."""

    senders: list[tuple[str, bytes, int]]
    sender: bytes
    shape: bytes
    sequence: bytes
    boot_ms: bytes
    measured_s: bytes
    retained: bytes


class _Block(msgspec.Struct, array_like=True, frozen=True):
    """n entries. kinds, at_s: columns. others: the entries that are neither reports nor pings."""

    kinds: bytes
    at_s: bytes
    others: list[Raw]
    reports: _Messages
    # Each kind of report: the columns that it has, then notes, flags, collectors and failed.
    readings: list[
        tuple[tuple[str, ...], list[str], dict[str, bool], dict[str, bool], dict[str, str]]
    ]
    values: dict[str, bytes]  # column -> its values in all reports that have it
    pings: _Messages
    # Each kind of round: peer, packets sent and received, and whether there was a reply.
    rounds: list[list[tuple[str, int, int, bool]]]
    rtts_ms: bytes


_ENCODER = msgspec.msgpack.Encoder()
_BLOCK = msgspec.msgpack.Decoder(_Block)


def encode_block(entries: Sequence[Entry]) -> bytes:
    """A block of these entries. Raises ENTRY_ERRORS for what cannot be kept."""
    others = [entry.what for entry in entries if not isinstance(entry.what, Reported | Pinged)]
    reports = [entry.what for entry in entries if isinstance(entry.what, Reported)]
    pings = [entry.what for entry in entries if isinstance(entry.what, Pinged)]
    readings, rounds = _Table[Any](), _Table[Any]()
    values: dict[str, list[float]] = {}
    for each in reports:
        for name, value in each.reading.values.items():
            values.setdefault(name, []).append(value)
    block = _Block(
        kinds=bytes(_NUMBERS[_kind(entry.what)] for entry in entries),
        at_s=_floats([entry.at_s for entry in entries]),
        others=[
            Raw(_ENCODER.encode(_lean(each.change if isinstance(each, Changed) else each)))
            for each in others
        ],
        reports=_messages(reports, [readings.add(_shape(each.reading)) for each in reports]),
        readings=[_fields_of(shape) for shape in readings.items],
        values={name: _floats(column) for name, column in values.items()},
        pings=_messages(
            pings,
            [
                rounds.add(tuple((p, r.sent, r.received, r.rtt_ms is not None) for p, r in every))
                for every in (each.rounds.items() for each in pings)
            ],
        ),
        rounds=[list(shape) for shape in rounds.items],
        rtts_ms=_floats(
            [r.rtt_ms for each in pings for r in each.rounds.values() if r.rtt_ms is not None]
        ),
    )
    return _ENCODER.encode(block)


def decode_block(data: bytes) -> list[Entry]:
    """The entries of a block. Raises BlockError."""
    try:
        block = _BLOCK.decode(data)
        kinds, at_s = block.kinds, _numbers(block.at_s)
        if len(kinds) != len(at_s):
            raise BlockError("its columns differ in length")
        others, reports, pings = iter(block.others), _reports(block), _pings(block)
        sources: dict[int, Callable[[], Recorded]] = {
            _REPORTED: lambda: next(reports),
            _PINGED: lambda: next(pings),
        }
        return [
            Entry(
                time_s,
                sources[kind]() if kind in sources else _DECODERS[_KINDS[kind]](next(others)),
            )
            for kind, time_s in zip(kinds, at_s, strict=True)
        ]
    except BlockError:
        raise
    except _BLOCK_ERRORS as error:
        raise BlockError(str(error) or type(error).__name__) from None


# Messages, in columns.


class _Table(Generic[Item]):
    """Different items, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def add(self, item: Item) -> int:
        """Its number."""
        return self._numbers.setdefault(item, len(self._numbers))

    @property
    def items(self) -> Iterable[Item]:
        """In the order of their numbers."""
        return self._numbers


def _messages(messages: Sequence[Reported | Pinged], shapes: Sequence[int]) -> _Messages:
    senders = _Table[tuple[str, bytes, int]]()
    stamps = [each.stamp for each in messages]
    return _Messages(
        sender=_integers(
            [senders.add((x.node, x.stamp.boot_id, x.stamp.session)) for x in messages]
        ),
        senders=list(senders.items),
        shape=_integers(shapes),
        sequence=_integers([each.sequence for each in stamps]),
        boot_ms=_integers([each.measured_boot_ms for each in stamps]),
        measured_s=_floats([each.measured_s for each in stamps]),
        retained=bytes(each.retained for each in stamps),
    )


def _stamps(of: _Messages) -> Iterator[tuple[str, Stamp, int]]:
    """The node, the stamp and the shape of each message."""
    columns = (*map(_numbers, (of.sender, of.shape, of.sequence, of.boot_ms)),)
    rows = zip(*columns, _numbers(of.measured_s), of.retained, strict=True)
    for sender, shape, sequence, boot_ms, measured_s, retained in rows:
        node, boot_id, session = of.senders[sender]
        yield node, Stamp(boot_id, session, sequence, boot_ms, measured_s, bool(retained)), shape


def _shape(reading: BoardReading) -> tuple[tuple[Any, ...], ...]:
    """What one report of a board has in common with the next."""
    tables = (reading.flags, reading.collectors, reading.failed)
    return (*reading.values,), (*reading.notes,), *((*each.items(),) for each in tables)


def _fields_of(shape: Sequence[Any]) -> Any:
    names, notes, *tables = shape
    return names, list(notes), *map(dict, tables)


def _reports(block: _Block) -> Iterator[Reported]:
    columns = {name: iter(_numbers(column)) for name, column in block.values.items()}
    for node, stamp, shape in _stamps(block.reports):
        names, notes, flags, collectors, failed = block.readings[shape]
        values = {name: next(columns[name]) for name in names}
        reading = BoardReading(values, [*notes], {**flags}, {**collectors}, {**failed})
        yield Reported(node, stamp, reading)


def _pings(block: _Block) -> Iterator[Pinged]:
    rtts_ms = iter(_numbers(block.rtts_ms))
    for node, stamp, shape in _stamps(block.pings):
        rounds = {
            peer: PingRound(next(rtts_ms) if replied else None, sent, received)
            for peer, sent, received, replied in block.rounds[shape]
        }
        yield Pinged(node, stamp, rounds)


# Columns of numbers: the type, then all first bytes, all second ones and so on.


_TYPES: Mapping[bytes, np.dtype[Any]] = {
    b"f": np.dtype("<f4"),
    b"d": np.dtype("<f8"),
    b"u": np.dtype("<u8"),
}


def _column(kind: bytes, numbers: NDArray[Any]) -> bytes:
    rows = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, _TYPES[kind].itemsize)
    return kind + rows.T.tobytes()


def _floats(numbers: Sequence[float]) -> bytes:
    """In four bytes each, where that is exact: what boards measure has no more."""
    wide = np.array(numbers, dtype="<f8")
    with np.errstate(all="ignore"):
        narrow = wide.astype("<f4")
    is_exact = (narrow.astype("<f8").view("<u8") == wide.view("<u8")).all()
    return _column(b"f", narrow) if is_exact else _column(b"d", wide)


def _integers(numbers: Sequence[int]) -> bytes:
    return _column(b"u", np.array(numbers, dtype=_TYPES[b"u"]))


def _numbers(column: bytes) -> list[Any]:
    kind = _TYPES[column[:1]]
    rows = np.frombuffer(column, np.uint8, offset=1).reshape(kind.itemsize, -1)
    numbers: list[Any] = np.ascontiguousarray(rows.T).view(kind).ravel().tolist()
    return numbers


# All else, by the fields' names.


def _kind(what: Recorded) -> type:
    return type(what.change) if isinstance(what, Changed) else type(what)


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """The fields of a dataclass with their defaults."""
    return tuple(
        (each.name, each.default_factory())
        if each.default_factory is not MISSING
        else (each.name, each.default)
        for each in fields(kind)
    )


def _lean(value: Any) -> Any:
    """A value in MessagePack's types, without fields that have their defaults."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, type(None)):
        return value
    if kind is Used:
        usage = value.usage.items()
        return [(space, sorted(labels), *used) for (space, labels), used in usage]
    if kind is Counted:
        return _lean(([*value.peers.items()], value.entries, value.flowing_mbps))
    if is_dataclass(kind):
        named = {
            name: _lean(held)
            for name, default in _defaults(kind)
            if (held := getattr(value, name)) is not default and held != default
        }
        return (kind.__name__, named) if kind.__name__ in _OBJECTS else named
    if isinstance(value, Mapping):
        return {key: _lean(held) for key, held in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_lean(each) for each in value]
    if isinstance(value, Fraction):
        return str(value)
    raise TypeError(f"a recording has no {kind.__name__}")


def _fraction(kind: type, value: Any) -> Any:
    if kind is Fraction and isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    raise ValueError(f"expected {kind.__name__}")


def _decoder(kind: Any) -> Callable[[Raw], Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_fraction).decode


class _Relisted(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    objects: list[tuple[str, Raw]] = []


class _OfObject(msgspec.Struct, frozen=True):
    object: tuple[str, Raw]


_OBJECT_DECODERS = {name: _decoder(kind) for name, kind in _OBJECTS.items()}
_RELISTED, _OF_OBJECT, _USAGE = map(_decoder, (_Relisted, _OfObject, _WORKLOADS))
_TRAFFIC = _decoder(_COUNTED)


def _object(named: tuple[str, Raw]) -> ClusterObject:
    found: ClusterObject = _OBJECT_DECODERS[named[0]](named[1])
    return found


def _of_object(data: Raw) -> ClusterObject:
    return _object(_OF_OBJECT(data).object)


def _relisted(data: Raw) -> Changed:
    found = _RELISTED(data)
    objects = tuple(map(_object, found.objects))
    return Changed(ports.Relisted(found.nodes, found.pods, objects))


def _used(data: Raw) -> Used:
    return Used({(space, labels): (cores, size) for space, labels, cores, size in _USAGE(data)})


def _counted(data: Raw) -> Counted:
    peers, entries, flowing_mbps = _TRAFFIC(data)
    return Counted(dict(peers), entries, flowing_mbps)


def _changed(decode: Callable[[Raw], Any], data: Raw) -> Changed:
    return Changed(decode(data))


_SPECIAL: Mapping[type, Callable[[Raw], Recorded]] = {
    ports.Relisted: _relisted,
    ports.ObjectChanged: lambda data: Changed(ports.ObjectChanged(_of_object(data))),
    ports.ObjectDeleted: lambda data: Changed(ports.ObjectDeleted(_of_object(data))),
    Used: _used,
    Counted: _counted,
}
_DECODERS: Mapping[type, Callable[[Raw], Recorded]] = {
    kind: _SPECIAL.get(kind)
    or (partial(_changed, _decoder(kind)) if kind in _OF_CHANGES else _decoder(kind))
    for kind in _KINDS
}

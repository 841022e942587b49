"""Blocks of one board's measured series, as the database keeps them: packed, merged, read back.

A block has the mean, the smallest and the largest value of each step, for all series of a board. Of
each quarter of an hour there is a block in steps of a minute. Blocks of four hours have a point for
each quarter, and are kept for longer. Packed, a number takes two bytes before compression: its
logarithm, in steps of 0.07 %. Times are Unix seconds.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints


class SeriesKey(NamedTuple):
    """A metric with its unit, such as "cpu_percent"."""

    name: str
    peer: str = ""  # the other node of "rtt_ms", else ""


class Resolution(NamedTuple):
    """How finely a series is kept."""

    step_s: int  # of a point
    points: int  # of a block

    @property
    def block_s(self) -> int:
        """Seconds of a block."""
        return self.step_s * self.points


FINE, COARSE = Resolution(60, 15), Resolution(900, 16)
RTT = "rtt_ms"
MEAN, LEAST, MOST = range(3)
_FORMAT = 1
_PER_E = 1400  # steps in which a value grows by the factor e
_LARGEST = float(np.expm1(32767 / _PER_E))
_MAX_BYTES = 64 * 1024  # unpacked; hundreds of series
# zlib finds these names in a block without having seen them. Part of the format: never change it.
_DICTIONARY = b"\0".join(
    (
        *(b"packets_received_per_s", b"packets_sent_per_s", b"memory_percent", b"cpu_percent"),
        *(b"disk_bytes_per_s", b"bandwidth_mbps", b"link_mbps", b"used_mbps", b"cpu_celsius"),
        b"rtt_ms",
    )
)


@dataclass(frozen=True, slots=True)
class Block:
    """Series of a board from `start_s` on, a multiple of the resolution's block_s."""

    resolution: Resolution
    start_s: int
    keys: tuple[SeriesKey, ...]
    # Of each series, shape (series, points, 3) with MEAN, LEAST and MOST; NaN where unknown.
    points: Floats

    def merged(self, newer: "Block") -> "Block":
        """Both; where both have a point, the newer one's."""
        keys = tuple(dict.fromkeys((*self.keys, *newer.keys)))
        points = np.full((len(keys), self.resolution.points, 3), np.nan)
        for block in (self, newer):
            rows = [keys.index(key) for key in block.keys]
            known = ~np.isnan(block.points[:, :, MEAN])
            row, at = np.nonzero(known)
            points[np.array(rows, dtype=np.int64)[row], at] = block.points[row, at]
        return Block(self.resolution, self.start_s, keys, points)

    def as_coarse(self) -> "Block":
        """A fine block as the one point of a coarse block that it is."""
        start_s = self.start_s - self.start_s % COARSE.block_s
        points = np.full((len(self.keys), COARSE.points, 3), np.nan)
        points[:, (self.start_s - start_s) // COARSE.step_s] = _summary(self.points)
        return Block(COARSE, start_s, self.keys, points)


def pack(block: Block) -> bytes:
    """The keys and points of a block. Values beyond 1e10 become 1e10, unknown ones take no room."""
    known: Bools = ~np.isnan(block.points[:, :, MEAN])
    bits = (known << np.arange(block.resolution.points)).sum(axis=1).astype("<u2")
    values = np.clip(block.points[known], -_LARGEST, _LARGEST)
    codes = np.rint(np.sign(values) * np.log1p(np.abs(values)) * _PER_E)
    mean, least, most = codes.T if len(codes) else np.zeros((3, 0))
    columns = np.concatenate((mean, mean - least, most - mean)).astype(np.int64).astype("<u2")
    names = "\0".join(f"{key.name}\0{key.peer}" for key in block.keys).encode()
    # Low bytes together and high bytes together compress best: a seventh less.
    planes = np.frombuffer(columns.tobytes(), dtype=np.uint8).reshape(-1, 2).T.tobytes()
    content = len(names).to_bytes(2, "little") + names + bits.tobytes() + planes
    packer = zlib.compressobj(zdict=_DICTIONARY)
    return bytes((_FORMAT,)) + packer.compress(content) + packer.flush()


def unpack(resolution: Resolution, start_s: int, packed: bytes) -> Block:
    """The block that was packed. Raises ValueError if it is damaged; zlib has a checksum."""
    if packed[:1] != bytes((_FORMAT,)):
        raise ValueError("series in an unknown format")
    unpacker = zlib.decompressobj(zdict=_DICTIONARY)
    try:
        content = unpacker.decompress(packed[1:], _MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"damaged series: {error}") from None
    if not unpacker.eof:
        raise ValueError("damaged series: too short or too long")
    length = 2 + int.from_bytes(content[:2], "little")
    names = content[2:length].decode().split("\0")
    keys = tuple(map(SeriesKey, names[::2], names[1::2]))
    ends = length + 2 * len(keys)
    bits = np.frombuffer(content[length:ends], dtype="<u2")
    planes = np.frombuffer(content[ends:], dtype=np.uint8).reshape(2, -1)
    columns = np.frombuffer(planes.T.tobytes(), dtype="<u2").astype(np.int64)
    mean, below, above = columns.reshape(3, -1)
    codes = np.stack((mean, mean - below, mean + above), axis=1).astype("<i2").astype(np.float64)
    points = np.full((len(keys), resolution.points, 3), np.nan)
    known = (bits[:, np.newaxis] >> np.arange(resolution.points) & 1).astype(np.bool_)
    points[known] = np.sign(codes) * np.expm1(np.abs(codes) / _PER_E)
    return Block(resolution, start_s, keys, points)


def resampled(
    blocks: Iterable[Block], from_s: int, count: int, step_s: int
) -> Mapping[SeriesKey, Floats]:
    """All series that the blocks have, in `count` steps from `from_s` on: shape (count, 3), NaN
    where unknown. from_s and step_s: multiples of FINE.step_s. Of the same block the later one
    counts. A fine block replaces the coarse point of its quarter, which else is all it has."""
    merged: dict[tuple[int, int], Block] = {}
    for block in blocks:
        at = (-block.resolution.step_s, block.start_s)
        merged[at] = merged[at].merged(block) if at in merged else block
    minutes = count * step_s // FINE.step_s
    found: dict[SeriesKey, Floats] = {}
    for _, block in sorted(merged.items(), key=lambda each: each[0]):
        spread = np.repeat(block.points, block.resolution.step_s // FINE.step_s, axis=1)
        offset = (block.start_s - from_s) // FINE.step_s
        first, last = max(0, -offset), min(spread.shape[1], minutes - offset)
        if first >= last:
            continue
        for key, points in zip(block.keys, spread[:, first:last], strict=True):
            row = found.setdefault(key, np.full((minutes, 3), np.nan))
            row[offset + first : offset + last] = points
    return {
        key: _summary(row.reshape(count, -1, 3)) for key, row in found.items() if not _empty(row)
    }


def _summary(points: Floats) -> Floats:
    """Mean, least and most of the points along the second axis; NaN where none is known."""
    known = ~np.isnan(points[..., MEAN])
    counts: Ints = known.sum(axis=1)
    sums = np.where(known, points[..., MEAN], 0.0).sum(axis=1)
    least = np.where(known, points[..., LEAST], np.inf).min(axis=1)
    most = np.where(known, points[..., MOST], -np.inf).max(axis=1)
    summary = np.stack((sums / np.maximum(counts, 1), least, most), axis=-1)
    summary[counts == 0] = np.nan
    return summary


def _empty(points: Floats) -> bool:
    return bool(np.isnan(points).all())

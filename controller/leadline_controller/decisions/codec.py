"""Encodes an explanation in a few hundred bytes: JSON for names and counts, then binary columns.

Columns are 32-bit floats (seven digits), because formatting floats as text takes longer than
deciding. Decoding bounds and checks everything, because a damaged or hostile file can hold
anything, and a few bytes can unpack to gigabytes.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from leadline_controller.decisions.explanation import KEPT, Explanation, in_kept_digits
from leadline_controller.parsing.fields import replace_surrogates

# Of an unpacked explanation; 64 scored nodes and 64 refused ones take a tenth.
MAX_BYTES = 2**19
_MAX_COUNT = 2**32 - 1
_LEVEL = 1  # higher levels take longer and save little


def encode(explanation: Explanation) -> bytes:
    """Encode in a format that later versions can read. An explanation over MAX_BYTES loses its
    reasons, and if it is still too long, all but its counts."""
    counts = Explanation(scored=explanation.scored, rejected=explanation.rejected)
    for smaller in (explanation, replace(explanation, reasons={}), counts):
        data = _unpacked(smaller)
        if len(data) <= MAX_BYTES:
            break
    return zlib.compress(data, _LEVEL)


def decode(data: bytes) -> Explanation:
    """Decode an explanation. Raises ValueError for any other data."""
    try:
        unpacking = zlib.decompressobj()
        flat = unpacking.decompress(data, MAX_BYTES + 1)
        if len(flat) > MAX_BYTES or not unpacking.eof:
            raise ValueError("it is too long, or has no end")
        text, _, floats = flat.partition(b"\n")
        return _explanation(json.loads(text), floats)
    except (zlib.error, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"no explanation of a decision: {error}") from None


def _unpacked(explanation: Explanation) -> bytes:
    columns = [explanation.total, *explanation.parts.values(), *explanation.ages_s.values()]
    head = {
        "nodes": explanation.nodes,
        "parts": list(explanation.parts),
        "ages": list(explanation.ages_s),
        "scored": explanation.scored,
        "rejected": explanation.rejected,
        "failing": dict(explanation.failing),
        "reasons": _by_reasons(explanation.reasons),
    }
    text = json.dumps(head, separators=(",", ":"))
    with np.errstate(over="ignore"):
        return text.encode() + b"\n" + np.array(columns).astype(KEPT).tobytes()


def _explanation(head: Mapping[str, Any], floats: bytes) -> Explanation:
    nodes, parts, ages = _texts(head["nodes"]), _texts(head["parts"]), _texts(head["ages"])
    shape = (1 + len(parts) + len(ages), len(nodes))
    columns = in_kept_digits(np.frombuffer(floats, dtype=KEPT)).reshape(shape)
    failing = _object(head["failing"])
    return Explanation(
        nodes=nodes,
        total=columns[0],
        parts=dict(zip(parts, columns[1:], strict=False)),
        ages_s=dict(zip(ages, columns[1 + len(parts) :], strict=True)),
        scored=_count(head["scored"]),
        rejected=_count(head["rejected"]),
        failing={replace_surrogates(name): _count(count) for name, count in failing.items()},
        reasons=dict(_reasons(head["reasons"])),
    )


def _by_reasons(reasons: Mapping[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Groups of nodes with the same reasons, which are written once."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    for node, why in reasons.items():
        nodes.setdefault(why, []).append(node)
    return list(nodes.items())


def _reasons(entries: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    for entry in _list(entries):
        reasons, names = _list(entry)
        why = _texts(reasons)
        for node in _texts(names):
            yield node, why


def _texts(value: object) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in _list(value)):
        raise ValueError("expected texts")
    return tuple(map(replace_surrogates, _list(value)))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        raise ValueError("expected a count")
    return value

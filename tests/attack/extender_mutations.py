"""Requests of kube-scheduler with random damage from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

ODD_VALUES: Sequence[bytes] = (
    *(b"null", b"true", b"[]", b"{}", b'""', b"0", b"-1", b"1e400", b"-1e308", b"1.5"),
    *(b"NaN", b"Infinity", b"-Infinity", b"9" * 5000, b"9" * 40, b'"\\ud800"', b'"\\udc00x"'),
    *(
        b'"\\u0000"',
        '"\u202e\n"'.encode(),
        b'"' + b"x" * 3000 + b'"',
        b"\xff\xfe",
        b'"\xed\xa0\x80"',
    ),
    *(b"[" * 3000, b'{"a":' * 3000, b"[" * 500 + b"]" * 500, b"[" + b"1," * 2000 + b"1]"),
    *(b'{"a":1,"a":2}', b'{"Pod":{},"Pod":null}', b'{"metadata":{"name":"n1"}}'),
)


def flip_a_bit(body: bytes, random: Random) -> bytes:
    """One bit, anywhere."""
    at = random.randrange(len(body))
    return body[:at] + bytes([body[at] ^ (1 << random.randrange(8))]) + body[at + 1 :]


def cut_off(body: bytes, random: Random) -> bytes:
    """Only the beginning."""
    return body[: random.randrange(len(body))]


def swap_a_type(body: bytes, random: Random) -> bytes:
    """An odd value in the place of another, at any depth."""
    text = json.loads(body)
    mark = "leadline-attack-mark"
    _replace_somewhere(text, mark, random)
    return json.dumps(text).encode().replace(f'"{mark}"'.encode(), random.choice(ODD_VALUES), 1)


def repeat_a_key(body: bytes, random: Random) -> bytes:
    """One of the top keys twice, with an odd value or with what another one has."""
    key = random.choice([b"Pod", b"NodeNames", b"Nodes"])
    value = random.choice([*ODD_VALUES[:12], b'["n1"]', b'["n3","n3"]'])
    again = b'"' + key + b'":' + value
    return (
        b"{" + again + b"," + body[1:] if random.random() < 0.5 else body[:-1] + b"," + again + b"}"
    )


def insert_noise(body: bytes, random: Random) -> bytes:
    """Some bytes too many."""
    at = random.randrange(len(body))
    return body[:at] + random.randbytes(random.randrange(1, 40)) + body[at:]


def copy_a_piece(body: bytes, random: Random) -> bytes:
    """A piece of it elsewhere once more."""
    start, at = random.randrange(len(body)), random.randrange(len(body))
    return body[:at] + body[start : start + random.randrange(200)] + body[at:]


MUTATIONS: Sequence[Mutation] = (
    *(flip_a_bit, cut_off, swap_a_type, swap_a_type, repeat_a_key, insert_noise, copy_a_piece),
)


def mutated(bodies: Sequence[bytes], random: Random) -> bytes:
    """One of them, spoiled."""
    return random.choice(MUTATIONS)(random.choice(bodies), random)


def _replace_somewhere(data: Any, mark: str, random: Random) -> None:
    """Put the mark in the place of one value, the deeper the rarer."""
    while True:
        keys: list[Any]
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = random.choice(keys)
        inner = data[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.2:
            data[key] = mark
            return
        data = inner


def expected_nodes(body: bytes, mbps: Mapping[str, float]) -> set[str] | None:
    """The nodes that a question's bandwidth leaves, by a reader of the test's own; None where
    nothing can be said of it. mbps: node name -> free bandwidth, Mbit/s."""
    try:
        question = json.loads(body, parse_constant=_refuse)
        wanted = (
            question["Pod"]["metadata"]
            .get("annotations", {})
            .get("leadline.dev/bandwidth-mbps", "0")
        )
        wanted_mbps = float(wanted)
        if question.get("Nodes") is None:
            return {name for name in question["NodeNames"] if mbps.get(name, -1.0) >= wanted_mbps}
        sent = {
            node["metadata"]["name"]: node["metadata"]["labels"].get("leadline.dev/bandwidth-mbps")
            for node in question["Nodes"].get("items") or ()
        }
        return {
            name
            for name, text in sent.items()
            # A link that says nothing of itself is unknown, which promises nothing.
            if not wanted_mbps or inf > float(text or "nan") >= wanted_mbps
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)

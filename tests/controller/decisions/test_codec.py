import json
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.decisions.codec import MOST_BYTES, decode, encode
from leadline_controller.decisions.explanation import Explanation
from leadline_controller.framework.view import Floats

NAMES = st.text(max_size=8)


@st.composite
def accounts(draw: st.DrawFn) -> Explanation:
    nodes = tuple(draw(st.lists(NAMES, max_size=6, unique=True)))
    numbers = st.floats(width=32, allow_infinity=False, allow_subnormal=False) | st.just(
        float("nan")
    )

    def column() -> Floats:
        return np.array(draw(st.lists(numbers, min_size=len(nodes), max_size=len(nodes))))

    def columns() -> dict[str, Floats]:
        return {name: column() for name in draw(st.lists(NAMES, max_size=3, unique=True))}

    reasons = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
    return Explanation(
        nodes=nodes,
        total=column(),
        parts=columns(),
        ages_s=columns(),
        scored=draw(st.integers(0, 10**6)),
        rejected=draw(st.integers(0, 10**6)),
        failing=draw(st.dictionaries(NAMES, st.integers(0, 10**6), max_size=3)),
        reasons=draw(st.dictionaries(NAMES, reasons, max_size=6)),
    )


@given(accounts())
def test_an_account_comes_back_as_it_was(told: Explanation) -> None:
    back = decode(encode(told))
    for name in ("nodes", "scored", "rejected", "failing", "reasons"):
        assert getattr(back, name) == getattr(told, name), name
    for mine, theirs in ((told.parts, back.parts), (told.ages_s, back.ages_s)):
        assert list(mine) == list(theirs)
        for name, column in mine.items():
            np.testing.assert_allclose(theirs[name], column, rtol=1e-6, equal_nan=True)
    np.testing.assert_allclose(back.total, told.total, rtol=1e-6, equal_nan=True)


@given(st.lists(st.floats()))
def test_what_is_told_before_it_is_kept_is_what_is_told_afterwards(total: list[float]) -> None:
    live = Explanation(nodes=tuple(map(str, range(len(total)))), total=np.array(total))
    np.testing.assert_array_equal(decode(encode(live)).total, live.rounded().total)


def test_short_numbers_come_back_as_they_were() -> None:
    told = Explanation(nodes=("n1", "n2"), total=np.array([0.1, 139.95]))
    assert decode(encode(told)).total.tolist() == [0.1, 139.95]


@given(st.binary(max_size=64))
def test_what_is_no_account_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="account"):
        decode(data)


@pytest.mark.parametrize("inside", [b"", b"[]\n", b"{}\n", b'{"nodes":["a"]}\n', b"\xff\n"])
def test_what_is_packed_but_no_account_is_refused(inside: bytes) -> None:
    with pytest.raises(ValueError, match="account"):
        decode(zlib.compress(inside))


def test_an_account_that_lost_its_end_or_a_bit_is_refused() -> None:
    whole = encode(Explanation(nodes=("n1",), total=np.array([1.0])))
    for at in range(len(whole)):
        with pytest.raises(ValueError, match="account"):
            decode(whole[:at])
    for at in range(2, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        with pytest.raises(ValueError, match="account"):
            decode(bytes(flipped))


def packed(**changed: object) -> bytes:
    """A sound account of one node with these fields changed."""
    head: dict[str, object] = {
        "nodes": ["n1"],
        "parts": [],
        "ages": [],
        "scored": 1,
        "rejected": 0,
        "failing": {},
        "reasons": [],
    }
    text = json.dumps(head | changed)
    return zlib.compress(text.encode() + b"\n" + np.ones(1, dtype="<f4").tobytes())


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes": "n"},
        {"nodes": [["n1"]]},
        {"nodes": ["n1"] * 1000},
        {"parts": ["cpu"] * 1000},
        {"scored": "many"},
        {"scored": -1},
        {"scored": 2**32},
        {"rejected": True},
        {"failing": ["NodeName"]},
        {"failing": {"NodeName": 1.5}},
        {"reasons": [["n1"]]},
        {"reasons": [["why", "n1"]]},
        {"reasons": {"n1": ["why"]}},
    ],
    ids=str,
)
def test_a_field_of_another_kind_is_refused(changed: dict[str, object]) -> None:
    assert decode(packed()).nodes == ("n1",)
    with pytest.raises(ValueError, match="account"):
        decode(packed(**changed))


def test_what_unpacks_to_gigabytes_is_not_unpacked() -> None:
    packing = zlib.compressobj(9)
    bomb = b"".join(packing.compress(bytes(2**20)) for _ in range(512)) + packing.flush()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too long"):
            decode(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


def test_json_that_is_nested_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="account"):
        decode(zlib.compress(b"[" * 100_000))


def test_half_a_character_in_a_stored_account_is_replaced() -> None:
    told = decode(packed(nodes=["a\ud800"], failing={"\udfff": 1}, reasons=[[["\ud800"], ["b"]]]))
    assert told.nodes == ("a\ufffd",)
    assert (told.failing, told.reasons) == ({"\ufffd": 1}, {"b": ("\ufffd",)})


def test_an_account_that_is_too_large_loses_its_reasons_first() -> None:
    many = {f"n{i}": (f"Filter: {i}" * 100,) for i in range(MOST_BYTES // 500)}
    whole = Explanation(nodes=("n1",), total=np.ones(1), scored=1, rejected=9, reasons=many)
    told = decode(encode(whole))
    assert (told.nodes, told.rejected, told.reasons) == (("n1",), 9, {})
    names = tuple(f"{i:0200}" for i in range(MOST_BYTES // 150))
    told = decode(encode(Explanation(nodes=names, total=np.ones(len(names)), scored=len(names))))
    assert (told.nodes, told.scored) == ((), len(names))

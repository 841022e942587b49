import json
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.decisions.explanation import MAX_BYTES, Explanation, decode, encode
from leadline_controller.framework.view import Floats

NAMES = st.text(max_size=8)


@st.composite
def explanations(draw: st.DrawFn) -> Explanation:
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
        pull=columns(),
        measured=columns(),
    )


@given(explanations())
def test_decoding_returns_what_was_encoded(whole: Explanation) -> None:
    decoded = decode(encode(whole))
    for name in ("nodes", "scored", "rejected", "failing", "reasons"):
        assert getattr(decoded, name) == getattr(whole, name), name
    for named in ("parts", "ages_s", "pull", "measured"):
        before, after = getattr(whole, named), getattr(decoded, named)
        assert list(before) == list(after)
        for name, column in before.items():
            np.testing.assert_allclose(after[name], column, rtol=1e-6, equal_nan=True)
    np.testing.assert_allclose(decoded.total, whole.total, rtol=1e-6, equal_nan=True)


@given(st.lists(st.floats()))
def test_rounding_gives_the_same_columns_as_encoding(total: list[float]) -> None:
    live = Explanation(nodes=tuple(map(str, range(len(total)))), total=np.array(total))
    np.testing.assert_array_equal(decode(encode(live)).total, live.rounded().total)


def test_short_numbers_are_decoded_exactly() -> None:
    whole = Explanation(nodes=("n1", "n2"), total=np.array([0.1, 139.95]))
    assert decode(encode(whole)).total.tolist() == [0.1, 139.95]


def test_what_a_version_before_pulls_wrote_is_decoded() -> None:
    head, _, columns = zlib.decompress(encode(Explanation(("n1",), np.array([1.5])))).partition(
        b"\n"
    )
    older = {name: value for name, value in json.loads(head).items() if name != "pull"}
    decoded = decode(zlib.compress(json.dumps(older).encode() + b"\n" + columns))
    assert decoded.total.tolist() == [1.5]
    assert decoded.pull == {}


@given(st.binary(max_size=64))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="explanation"):
        decode(data)


@pytest.mark.parametrize("inside", [b"", b"[]\n", b"{}\n", b'{"nodes":["a"]}\n', b"\xff\n"])
def test_compressed_data_without_an_explanation_is_refused(inside: bytes) -> None:
    with pytest.raises(ValueError, match="explanation"):
        decode(zlib.compress(inside))


def test_a_truncated_or_damaged_explanation_is_refused() -> None:
    whole = encode(Explanation(nodes=("n1",), total=np.array([1.0])))
    for at in range(len(whole)):
        with pytest.raises(ValueError, match="explanation"):
            decode(whole[:at])
    for at in range(2, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        with pytest.raises(ValueError, match="explanation"):
            decode(bytes(flipped))


def packed(**changed: object) -> bytes:
    """A sound explanation of one node with these fields changed."""
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
def test_a_field_of_a_wrong_type_is_refused(changed: dict[str, object]) -> None:
    assert decode(packed()).nodes == ("n1",)
    with pytest.raises(ValueError, match="explanation"):
        decode(packed(**changed))


def test_a_decompression_bomb_is_not_unpacked() -> None:
    packing = zlib.compressobj(9)
    bomb = b"".join(packing.compress(bytes(2**20)) for _ in range(64)) + packing.flush()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too long"):
            decode(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(ValueError, match="explanation"):
        decode(zlib.compress(b"[" * 100_000))


def test_a_surrogate_in_a_stored_explanation_is_replaced() -> None:
    decoded = decode(
        packed(nodes=["a\ud800"], failing={"\udfff": 1}, reasons=[[["\ud800"], ["b"]]])
    )
    assert decoded.nodes == ("a\ufffd",)
    assert (decoded.failing, decoded.reasons) == ({"\ufffd": 1}, {"b": ("\ufffd",)})


def test_an_explanation_that_is_too_large_loses_its_reasons_first() -> None:
    many = {f"n{i}": (f"Filter: {i}" * 100,) for i in range(MAX_BYTES // 500)}
    whole = Explanation(nodes=("n1",), total=np.ones(1), scored=1, rejected=9, reasons=many)
    decoded = decode(encode(whole))
    assert (decoded.nodes, decoded.rejected, decoded.reasons) == (("n1",), 9, {})
    names = tuple(f"{i:0200}" for i in range(MAX_BYTES // 150))
    decoded = decode(encode(Explanation(nodes=names, total=np.ones(len(names)), scored=len(names))))
    assert (decoded.nodes, decoded.scored) == ((), len(names))

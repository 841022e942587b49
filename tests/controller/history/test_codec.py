import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.view import Floats
from leadline_controller.history.explanation import MAX_BYTES, Explanation, decode, encode, rounded

NAMES = st.text(max_size=8)


@st.composite
def explanations(draw: st.DrawFn) -> Explanation:
    nodes = tuple(draw(st.lists(NAMES, max_size=6, unique=True)))
    numbers = st.floats(allow_infinity=False)

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
            np.testing.assert_array_equal(after[name], column)
    np.testing.assert_array_equal(decoded.total, whole.total)


def test_short_numbers_are_decoded_exactly() -> None:
    total = np.array([0.1, 139.95, 1e-9, 123456e9, 0.0])
    whole = Explanation(nodes=tuple("abcde"), total=rounded(total))
    assert decode(encode(whole)).total.tolist() == total.tolist()


@given(st.lists(st.floats(1e-290, 1e290) | st.floats(-1e290, -1e-290)))
def test_numbers_have_six_digits(numbers: list[float]) -> None:
    found = rounded(np.array(numbers))
    np.testing.assert_allclose(found, numbers, rtol=5.1e-6)
    assert [float(f"{each:.6g}") for each in found] == pytest.approx(list(found), rel=1e-15)


@given(st.binary(max_size=64))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="explanation"):
        decode(data)


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


@pytest.mark.parametrize(
    "inside",
    [
        *(b"", b"[]", b"\xff", b"[" * 100_000, b'{"nodes": "n"}', b'{"nodes": [["n1"]]}'),
        *(b'{"nodes": ["n1"]}', b'{"total": [1]}', b'{"parts": {"cpu": [1]}}'),
        *(b'{"total": [[]]}', b'{"total": "1"}', b'{"total": [{}]}'),
        *(b'{"scored": "many"}', b'{"scored": -1}', b'{"scored": 4294967296}'),
        *(b'{"rejected": true}', b'{"failing": ["NodeName"]}', b'{"failing": {"NodeName": 1.5}}'),
        *(b'{"reasons": {"n1": "why"}}', b'{"reasons": [["n1"]]}', b'{"reasons": {"\\ud800": []}}'),
    ],
    ids=lambda inside: inside[:20].decode(errors="replace"),
)
def test_compressed_data_that_is_no_explanation_is_refused(inside: bytes) -> None:
    assert decode(zlib.compress(b'{"nodes": ["n1"], "total": [1]}')).nodes == ("n1",)
    with pytest.raises(ValueError, match="explanation"):
        decode(zlib.compress(inside))


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


def test_an_explanation_that_is_too_large_loses_its_reasons_first() -> None:
    many: dict[str, tuple[str, ...]] = {
        f"n{i}": (f"Filter: {i}" * 100,) for i in range(MAX_BYTES // 500)
    }
    whole = Explanation(nodes=("n1",), total=np.ones(1), scored=1, rejected=9, reasons=many)
    decoded = decode(encode(whole))
    assert (decoded.nodes, decoded.rejected, decoded.reasons) == (("n1",), 9, {})
    names = tuple(f"{i:0200}" for i in range(MAX_BYTES // 150))
    decoded = decode(encode(Explanation(nodes=names, total=np.ones(len(names)), scored=len(names))))
    assert (decoded.nodes, decoded.scored) == ((), len(names))

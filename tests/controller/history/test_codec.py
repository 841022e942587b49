import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.core.account import Account
from leadline_controller.core.view import Floats
from leadline_controller.history.codec import decode, encode

NAMES = st.text(max_size=8)


@st.composite
def accounts(draw: st.DrawFn) -> Account:
    nodes = tuple(draw(st.lists(NAMES, max_size=6, unique=True)))
    numbers = st.floats(width=32, allow_infinity=False, allow_subnormal=False) | st.just(
        float("nan")
    )

    def column() -> Floats:
        return np.array(draw(st.lists(numbers, min_size=len(nodes), max_size=len(nodes))))

    def columns() -> dict[str, Floats]:
        return {name: column() for name in draw(st.lists(NAMES, max_size=3, unique=True))}

    reasons = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
    return Account(
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
def test_an_account_comes_back_as_it_was(told: Account) -> None:
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
    live = Account(nodes=tuple(map(str, range(len(total)))), total=np.array(total))
    np.testing.assert_array_equal(decode(encode(live)).total, live.rounded().total)


def test_short_numbers_come_back_as_they_were() -> None:
    told = Account(nodes=("n1", "n2"), total=np.array([0.1, 139.95]))
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
    whole = encode(Account(nodes=("n1",), total=np.array([1.0])))
    for at in range(len(whole)):
        with pytest.raises(ValueError, match="account"):
            decode(whole[:at])
    for at in range(2, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        with pytest.raises(ValueError, match="account"):
            decode(bytes(flipped))

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.quantity import (
    MAX_AMOUNT,
    QuantityError,
    format_quantity,
    format_shortage,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "per_unit", "expected"),
    [
        ("2", 1, 2),
        ("500m", 1000, 500),
        ("0.5", 1000, 500),
        (".5", 1000, 500),
        ("5.", 1, 5),
        ("+3", 1, 3),
        ("-1500m", 1, -1),
        ("1.5", 1000, 1500),
        ("0.0001", 1000, 1),  # rounded up
        ("1n", 1, 1),
        ("100u", 1000, 1),
        ("4Gi", 1, 4 * 1024**3),
        ("1.5Ki", 1, 1536),
        ("4G", 1, 4 * 10**9),
        ("128k", 1, 128_000),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("12e-1", 1000, 1200),
        ("1E", 1, MAX_AMOUNT),
        ("1Ei", 1, MAX_AMOUNT),
        ("1e999", 1, MAX_AMOUNT),
        ("-1e999", 1, -MAX_AMOUNT),
        ("0e999", 1, 0),
    ],
)
def test_quantities_are_read_as_in_kubernetes(text: str, per_unit: int, expected: int) -> None:
    assert parse_quantity(text, per_unit=per_unit) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "-", "+", "1K", "1ki", "1Mib", "1e", "1ex", "1e9999999999", "e3"),
        *("1 Gi", " 1", "0x10", "1_000", "NaN", "inf", "٣", "1\n", "9" * 10_000),
    ],
)
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is no quantity"):
        parse_quantity(text)


_SCALES = {"m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(1000), "Mi": Fraction(1024**2)}


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(_SCALES)))
def test_a_quantity_is_rounded_up(whole: int, thousandths: int, suffix: str) -> None:
    exact = (whole + Fraction(thousandths, 1000)) * _SCALES[suffix] * 1000
    found = parse_quantity(f"{whole}.{thousandths:03}{suffix}", per_unit=1000)
    assert found - 1 < exact <= found or found == exact


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        told = str(parse_quantity(text, per_unit=1000))
        assert abs(int(told)) <= MAX_AMOUNT
    except QuantityError as error:
        told = str(error)
    assert "\n" not in told


@pytest.mark.parametrize(
    ("resource", "value", "expected"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 250, "0.25"),
        ("memory", 5 * 1024**3, "5Gi"),
        ("memory", 1536 * 1024**2, "1.5Gi"),
        ("memory", 500, "500"),
        ("ephemeral-storage", 1024, "1Ki"),
        ("pods", 110, "110"),
        ("example.com/gpu", 2, "2"),
    ],
)
def test_amounts_are_formatted_for_people(resource: str, value: int, expected: str) -> None:
    assert format_quantity(resource, value) == expected


def test_a_shortage_never_looks_like_none() -> None:
    assert format_shortage("memory", 5 * 1024**3, 3 * 1024**3) == "needs 5Gi, has 3Gi"
    assert format_shortage("memory", 5 * 1024**3, 5 * 1024**3 - 1) == (
        "needs 5368709120, has 5368709119"
    )
    assert format_shortage("cpu", 1234567, 1234568) == "needs 1234567m, has 1234568m"

"""Typed decoding: what msgspec refuses is explained, or read as Go reads it."""

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode
from msgspec import Meta, Raw, Struct


class Part(Struct, rename="camel"):
    name: Annotated[str, Meta(max_length=9, description="a short name")]
    is_on: bool = False
    word: Literal["", "yes", "no"] = ""
    count: Annotated[int, Meta(ge=0, le=9)] | None = None
    texts: tuple[str, ...] = ()
    amounts: dict[str, str | int] = {}


class Whole(Struct):
    parts: list[Part] = []
    source: dict[str, Part | str] = {}
    raw: Raw = Raw()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "root: expected an object, got a list"),
        ({1: 2}, "root: expected names in text, got 1"),
        ({"parts": {}}, "root.parts: expected a list, got an object"),
        ({"parts": [{"name": "x"}, 3]}, "root.parts[1]: expected an object, got 3"),
        ({"parts": [{}]}, "root.parts[0].name: expected a short name, got nothing"),
        ({"parts": [{"name": "x" * 70}]}, f"expected a short name, got text '{'x' * 60}'"),
        ({"parts": [{"name": "x", "isOn": "no"}]}, "isOn: expected true or false, got text 'no'"),
        ({"parts": [{"name": "x", "word": "maybe"}]}, "word: expected yes or no, got text 'maybe'"),
        (
            {"parts": [{"name": "x", "count": 10}]},
            "count: expected a whole number from 0 to 9",
        ),
        ({"parts": [{"name": "x", "texts": ["a", None]}]}, "texts[1]: expected text, got nothing"),
        ({"parts": [{"name": "x", "amounts": {"a": 1, "b": []}}]}, "amounts.b: expected text or a"),
        (
            {"source": {"a": "x", "b": {"name": 1}}},
            "root.source.b.name: expected a short name",
        ),
    ],
)
def test_an_error_names_place_value_and_what_was_expected(data: Any, message: str) -> None:
    given_forms = (
        [data] if isinstance(data, dict) and 1 in data else [data, json.dumps(data).encode()]
    )
    for form in given_forms:
        with pytest.raises(FieldError) as caught:
            decode(form, Whole, "root")
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "root: expected JSON: "),
        (b'{"parts": NaN}', "root: expected JSON: NaN is no number"),
        (b'{"parts": "\xff"}', "root: expected JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"other": ' + b"[" * 100_000, "root: nested too deep"),
        (b'{"parts": ' + b"9" * 5000, "root: expected JSON: Exceeds the limit"),
    ],
    ids=["nothing", "NaN", "UTF-8", "deep", "digits"],
)
def test_what_is_no_json_is_told_in_one_line(text: bytes, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        decode(text, Whole, "root")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_nulls_read_as_missing_and_half_a_surrogate_pair_is_replaced() -> None:
    digits = b"9" * 100
    part = b'{"name": "a\\ud800", "isOn": null}'
    text = b'{"parts": [%s], "raw": {"b": %s, "c": null}, "source": null}' % (part, digits)
    read = decode(text, Whole, "root")
    assert read.parts == [Part("a\ufffd")]
    assert (read.source, bytes(read.raw)) == ({}, b'{"b": %s}' % digits)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["parts", "source"]), junk))
def test_anything_is_read_or_refused_in_one_line(data: Any) -> None:
    try:
        decode(data, Whole, "root")
    except FieldError as error:
        assert str(error).startswith("root")  # noqa: PT017  # most drawn data is refused, not all
        assert ": expected " in str(error)  # noqa: PT017  # as above

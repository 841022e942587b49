from typing import Any

import pytest
from leadline_controller.parsing.fields import FieldError, Fields, replace_surrogates, shown


def read(data: Any, path: str = "root") -> Fields:
    return Fields(data, path)


@pytest.mark.parametrize(
    ("data", "read_it", "message"),
    [
        ([], lambda f: f, "root: expected an object, got a list"),
        ({1: 2}, lambda f: f, "root: expected names in text, got 1"),
        ({"a": 1}, lambda f: f.only("b", "c"), "root.a: unknown field; known: b, c"),
        ({}, lambda f: f.text("a"), "root.a: expected text, got nothing"),
        ({"a": True}, lambda f: f.text("a"), "root.a: expected text, got true"),
        ({"a": "x"}, lambda f: f.flag("a", False), "root.a: expected true or false, got text 'x'"),
        ({"a": "1"}, lambda f: f.number("a"), "root.a: expected a number, got text '1'"),
        ({"a": True}, lambda f: f.number("a"), "root.a: expected a number, got true"),
        ({"a": -1}, lambda f: f.number("a"), "root.a: expected a finite number of 0 or more"),
        ({"a": float("nan")}, lambda f: f.number("a"), "root.a: expected a finite number"),
        ({"a": float("inf")}, lambda f: f.number("a"), "root.a: expected a finite number"),
        ({"a": 10**400}, lambda f: f.number("a"), "of 0 or more, got a huge number"),
        ({"a": 101}, lambda f: f.number("a", 100), "expected a finite number of 0 to 100, got 101"),
        (
            {"a": 1.5},
            lambda f: f.integer("a", 0, 9),
            "expected a whole number from 0 to 9, got 1.5",
        ),
        ({"a": 10}, lambda f: f.integer("a", 0, 9), "expected a whole number from 0 to 9, got 10"),
        ({"a": {"b": 1}}, lambda f: f.object("a").text("b"), "root.a.b: expected text, got 1"),
        ({"a": {}}, lambda f: list(f.objects("a")), "root.a: expected a list, got an object"),
        ({"a": [{}, 3]}, lambda f: list(f.objects("a")), r"root.a\[1\]: expected an object, got 3"),
        ({"a": ["x", None]}, lambda f: f.texts("a"), r"root.a\[1\]: expected text, got nothing"),
        ({"a": {"k": 1}}, lambda f: f.text_map("a"), "root.a.k: expected text, got 1"),
        (
            {"a": "x\ud800"},
            lambda f: f.text("a"),
            "root.a: expected valid Unicode text, got",
        ),
        ({"a": ["\udfff"]}, lambda f: f.texts("a"), r"root.a\[0\]: expected valid Unicode text"),
        ({"a": {"k": "\ud800"}}, lambda f: f.text_map("a"), "root.a.k: expected valid Unicode"),
        ({"\ud800": 1}, lambda f: f, "root: expected valid Unicode text, got text"),
        ({"a": "x\x00"}, lambda f: f.name("a"), "root.a: expected a name without control char"),
    ],
)
def test_errors_name_the_field(data: Any, read_it: Any, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        read_it(read(data))


def test_missing_and_null_fields_read_as_empty() -> None:
    fields = read({"n": None})
    for name in ("n", "missing"):
        assert fields.text(name, "default") == "default"
        assert fields.flag(name, True) is True
        assert fields.number(name) is None
        assert fields.integer(name, 0, 1) is None
        assert list(fields.objects(name)) == []
        assert fields.texts(name) == ()
        assert fields.text_map(name) == {}
        assert not fields.has(name)


def test_present_fields_are_returned_unchanged() -> None:
    fields = read({"t": "x", "f": False, "n": 3, "i": 0, "l": ["a"], "m": {"k": "v"}})
    assert fields.text("t") == "x"
    assert fields.flag("f", True) is False
    assert fields.number("n") == 3.0
    assert fields.integer("i", 0, 1) == 0
    assert fields.texts("l") == ("a",)
    assert fields.text_map("m") == {"k": "v"}


@pytest.mark.parametrize(
    "value",
    [2**100_000, "x" * 10**6, "a\nb", {"a": 1}, b"\x00", object()],
    ids=["huge", "long", "lines", "object", "bytes", "other"],
)
def test_any_value_is_shown_briefly_on_one_line(value: object) -> None:
    text = shown(value)
    assert len(text) < 100
    assert "\n" not in text


def test_lone_surrogates_are_replaced() -> None:
    assert replace_surrogates("a\ud800é\udfff✓😀\x00") == "a\ufffdé\ufffd✓😀\x00"

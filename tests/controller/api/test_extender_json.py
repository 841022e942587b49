"""JSON in pieces: the same as Python's own reader, from windows of any size, and it can stop."""

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.api import extender_json
from leadline_controller.api.extender_json import Cursor, StoppedError

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def never() -> bool:
    return False


def read(body: bytes, max_bytes: int = 1 << 20, stopped: Callable[[], bool] = never) -> Any:
    cursor = Cursor(body, stopped)
    value = cursor.value(max_bytes)
    cursor.end()
    return value


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(extender_json, "WINDOW_BYTES", size)


@given(JSON, st.booleans(), st.integers(1, 40), st.sampled_from([None, 1]))
def test_parsing_is_the_same_for_every_window_size(
    value: Any, ascii_only: bool, window: int, indent: int | None
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    with suppress(UnicodeEncodeError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(extender_json, "WINDOW_BYTES", window)
        assert read(body.encode()) == json.loads(body.encode())


@given(st.binary(max_size=60), st.integers(1, 20))
def test_errors_are_the_same_for_every_window_size(noise: bytes, window: int) -> None:
    for body in (noise, b'{"a": [1, "' + noise + b'", 2]}', b'{"a": [1, ' + noise + b", 2]}"):
        try:
            right = json.loads(body.decode(), parse_constant=extender_json._no_number)
        except (ValueError, RecursionError):
            right = ValueError
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(extender_json, "WINDOW_BYTES", window)
            if right is ValueError:
                with pytest.raises((ValueError, RecursionError)):
                    read(body)
            else:
                assert read(body) == right


def test_members_and_elements_have_their_positions(windows: Callable[[int], None]) -> None:
    windows(8)
    body = '{ "é" : [ 1 ,{"a":"ü"}, null ] , "b":null}'.encode()
    cursor = Cursor(body, never)
    found: list[Any] = []
    for key in cursor.members():
        if cursor.skipped_null():
            found.append((key, None))
            continue
        for start in cursor.elements():
            value = cursor.value()
            found.append((key, value, body[start : cursor.at]))
    cursor.end()
    assert found == [
        ("é", 1, b"1"),
        ("é", {"a": "ü"}, '{"a":"ü"}'.encode()),
        ("é", None, b"null"),
        ("b", None),
    ]


def test_a_surrogate_becomes_the_replacement_character() -> None:
    told = read(b'["\\ud800", "\\ud83d\\ude00", "a\\udfffb", {"\\udc00": 1}, "\\\\ud800"]')
    assert told == ["�", "\U0001f600", "a�b", {"�": 1}, "\\ud800"]


@pytest.mark.parametrize("body", [b"[" + b"1," * 600 + b"1]", b'"' + b"x" * 1100 + b'"'])
def test_a_value_that_is_too_long_is_refused(windows: Callable[[int], None], body: bytes) -> None:
    windows(100)
    with pytest.raises(ValueError, match="a value is longer than any object"):
        read(body, max_bytes=1000)
    assert read(body, max_bytes=2000) == json.loads(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_endless_nesting_is_refused(windows: Callable[[int], None], opening: bytes) -> None:
    windows(1000)
    with pytest.raises((RecursionError, json.JSONDecodeError)):
        read(opening * 200_000)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 5000 + b"[]]",
        b"{" + b'"a":1,' * 5000 + b'"a":1}',
        b" " * 50_000 + b"1",
        b'{"a":{"b":[' + b"1.5," * 9000 + b"1]}}",
    ],
)
def test_parsing_stops_between_two_values(windows: Callable[[int], None], body: bytes) -> None:
    windows(1000)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 10

    with pytest.raises(StoppedError):
        read(body, stopped=stopped)
    assert asked == 11


def test_python_decodes_at_most_a_window_at_once(
    windows: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the work between two looks at whether to stop does not grow with what is sent."""
    windows(1000)
    longest = 0
    whole = json.JSONDecoder.raw_decode

    def raw_decode(self: json.JSONDecoder, text: str, at: int = 0) -> tuple[Any, int]:
        nonlocal longest
        longest = max(longest, len(text))
        return whole(self, text, at)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", raw_decode)
    random = Random(3)
    value = {f"k{i}": [{"v": [random.random()] * random.randrange(300)}] for i in range(90)}
    body = json.dumps(value).encode()
    assert len(body) > 100_000
    assert read(body) == value
    assert longest == 1000

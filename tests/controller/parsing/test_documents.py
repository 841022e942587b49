"""Untrusted files are parsed into plain data or rejected in one line."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.parsing.documents import (
    MAX_BYTES,
    parse_document,
    parse_texts,
    parse_toml,
    read_document,
    read_text,
)
from leadline_controller.parsing.fields import FieldError

from tests.attack.hostile_texts import texts
from tests.support.examples import examples

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(9))}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join(f'*{before}' for _ in range(9))}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 1\nb: [x, null, true, 1.5]\n", {"a": 1, "b": ["x", None, True, 1.5]}),
        ('{"a": 1e3, "b": "\\/"}', {"a": 1000.0, "b": "/"}),
        ("{a: 1, b: [2]}", {"a": 1, "b": [2]}),  # YAML's flow style
        ("", None),
        ('{"deep": ' * 100 + "1" + "}" * 100, None),
        ("a: 1:30\nb: -1:1:1.5\n", {"a": "1:30", "b": "-1:1:1.5"}),
        (
            "a: 2026-01-01\nb: 2026-01-01 12:00:00\n",
            {"a": "2026-01-01", "b": "2026-01-01 12:00:00"},
        ),
        ("a: [0x1F, 0b11, 017, 1_000, -5, +1]", {"a": [31, 3, 15, 1000, -5, 1]}),
        ("a: [1.5, -.5e+1, 1e3, 08, .inf]", {"a": [1.5, "-.5e+1", "1e3", "08", float("inf")]}),
        ("a: {<<: {b: 1}}", {"a": {"<<": {"b": 1}}}),
        ('1: a\n"1": b\n', {1: "a", "1": "b"}),
    ],
    ids=[
        "yaml",
        "json",
        "flow",
        "empty",
        "nested-json",
        "sixties",
        "dates",
        "integers",
        "floats",
        "merge",
        "names",
    ],
)
def test_reads_yaml_and_json(text: str, data: object) -> None:
    found = parse_document(text)
    assert found == data or (data is None and isinstance(found, dict) and "deep" in found)


def test_words_are_parsed_as_in_yaml_1_1() -> None:
    found = parse_document("a: [yes, Off, ~, null, =, 'no', \"1\", y]")
    assert found == {"a": [True, False, None, None, "=", "no", "1", "y"]}


@given(st.lists(st.sampled_from(["0", "1", "9", "-", "+", "_", ".", "e", "x", "b", "F", "~"])))
def test_numbers_are_parsed_as_in_yaml_1_1(pieces: list[str]) -> None:
    text = "".join(["a: ", *pieces])
    try:
        expected = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        with pytest.raises(FieldError):
            parse_document(text)
    else:
        assert repr(parse_document(text)) == repr(expected)


@pytest.mark.parametrize(("name", "text"), list(texts(100_000)), ids=lambda each: each[:40])
def test_hostile_text_is_parsed_or_rejected_in_one_line(name: str, text: str) -> None:
    refusal = ""
    try:
        parse_document(text)
    except FieldError as error:
        refusal = str(error)
    assert refusal or name.startswith(("YAML", "JSON, numbers"))
    assert "\n" not in refusal
    assert len(refusal) < 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "line 2: aliases (*) are not supported"),
        (MERGES, "line 2: aliases (*) are not supported"),
        ("a: !!python/object/apply:os.system [ls]", "line 1: tags (!) are not supported"),
        ("a: !!int ''", "line 1: tags (!) are not supported"),
        ("a: 1\na: 2\n", "line 2: duplicate name 'a'"),
        ('{"a": 1, "a": 2}', "duplicate name 'a'"),
        ("[" * 100_000, "nested too deep"),
        ("a: " + "{a: " * 100, "line 1: nested too deep"),
        ("- " * 100_000, "line 1: nested too deep"),
        ("a: 1\n---\na: 2\n", "line 2: expected one document, found another"),
        ("a: [1,\nb: 2", "line 3: did not find"),
        ("a: 0b_", "line 1: '0b_' is not a number"),
        ("a: 0x_", "line 1: '0x_' is not a number"),
        ('{"a": NaN}', "NaN is not a number; leave out unknown values"),
        ('{"a": -Infinity}', "-Infinity is not a number; leave out unknown values"),
        ('{"a": ' + "9" * 5000 + "}", "line 1: a number in this file is too long"),
        ("a: " + "9" * 5000, "line 1: a number of 5000 digits is too long"),
        ("a: \x00", "expected YAML or JSON: "),
        ("? [a, b]\n: 1\n", "line 1: "),
        ("a: 0x" + "f" * 5000, "line 1: a number of 5000 digits is too long"),
        ("# x\n%TAG ! a,\n--- a", "line 2: tags (%TAG) are not supported"),
        ('{"a": 1, "b": 2, "b": 3}', "duplicate name 'b'"),
    ],
    ids=range(22),
)
def test_invalid_text_is_rejected_in_one_line(text: str, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_document(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_file_over_the_size_limit_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(FieldError, match=f"expected at most {MAX_BYTES} bytes"):
        read_document(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: \xff", "expected UTF-8 text, byte 3 is not"), (b"\xef\xbb\xbfa: 1", None)],
)
def test_a_file_must_be_utf_8(tmp_path: Path, content: bytes, message: str | None) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    if message is None:
        assert read_document(file) == {"a": 1}
    else:
        with pytest.raises(FieldError, match=message):
            read_document(file)


def test_a_byte_order_mark_is_no_part_of_a_document() -> None:
    assert parse_toml("\ufeffa = 1\r\n") == {"a": 1}
    assert parse_document('\ufeff{"a": 1}') == {"a": 1}
    assert parse_document("\ufeffa: 1\r\n") == {"a": 1}


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(FieldError) as caught:
            read_document(path)
        assert str(caught.value)


PIECES = ["a", ": ", "- ", "\n", "  ", "[", "]", "{", "}", ",", "!", "&a ", "*a", "1", "'", '"']
PIECES += ["0x", "_", ":30", "~", "<<: ", "? ", "| ", "%", "2026-01-01", ".", "e", "-", "#", "="]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_is_parsed_or_rejected_with_an_error(text: str) -> None:
    refusal = ""
    try:
        parse_document(text)
    except FieldError as error:
        refusal = str(error)
    assert "\n" not in refusal


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@examples(40)
@given(st.dictionaries(st.text(), plain))
def test_json_round_trips(data: object) -> None:
    assert parse_document(json.dumps(data)) == data


def test_texts_stay_as_they_are_written() -> None:
    """And nothing, where a text is expected in a list, is an empty one."""
    text = "a: [0123, yes, false, 1e3, 2020-01-01, ~, '', 'null', \"0\", !!str 1]\n5000: x\n"
    values = ["0123", "yes", "false", "1e3", "2020-01-01", "", "", "null", "0", "1"]
    expected = {"a": values, "5000": "x"}
    assert parse_texts(text) == expected
    assert parse_texts(f"---\n{text}---\nother: [") == expected, "Go reads the first document"


def test_texts_may_have_aliases_and_merges() -> None:
    text = "a: &a {p: 1, q: 2}\nb: *a\nc: {q: 3, <<: [*a, {r: 4, p: 5}]}\n"
    a = {"p": "1", "q": "2"}
    assert parse_texts(text) == {"a": a, "b": a, "c": {"p": "1", "q": "3", "r": "4"}}


def test_aliases_share_what_they_stand_for() -> None:
    found = parse_texts(LAUGHS)
    assert isinstance(found, dict)
    assert list(found) == list("abcdefghi")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: *hunter2", r"line 1: aliases \(\*\) must stand for an earlier value"),
        ("a: &a [*a]", "aliases"),
        ("a: !hunter2 x", "tags"),
        ("a: {<<: hunter2}", "<< expects an object"),
        ("a: 1\na: hunter2", "duplicate name"),
        ("a: " + "[" * 100_000, "nested too deep"),
        ("a: [hunter2", "line 2: "),
        ("a: !!binary hunter2", "tags"),
    ],
)
def test_texts_are_refused_without_their_values(text: str, error: str) -> None:
    with pytest.raises(FieldError, match=error) as refused:
        parse_texts(text)
    assert "hunter2" not in str(refused.value)


def test_a_text_file_may_be_limited(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("\ufeffabc", "utf-8")
    assert read_text(file, 6) == "abc"
    with pytest.raises(FieldError, match="at most 5 bytes"):
        read_text(file, 5)

"""Untrusted text becomes one printable line."""

import pytest
from leadline_agent.text import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is, Grüße", "as it is, Grüße"),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("\x1b[2J\x00", "\\x1b[2J\\x00"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert one_line(text).encode().decode() == shown  # a lone surrogate could not be encoded


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\n" * 1_000_000])
def test_the_line_is_never_longer_than_asked(text: str) -> None:
    assert len(one_line(text, 80)) == 80

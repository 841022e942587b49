"""Rewrites make of a repository what Go makes of it: the table has Go's own answers."""

import json

import pytest
from leadline_controller.registry.rewrites import MAX_CHARS, RewriteError, read_rewrite

from tests.support.go_answers import REWRITES

CASES = json.loads(REWRITES.read_text("utf-8"))["rewrites"]


def rewritten(pattern: str, template: str, text: str) -> str | None:
    """None if the rewrite is refused."""
    try:
        rewrite = read_rewrite(pattern, template)
    except RewriteError as error:
        assert str(error).isprintable()  # noqa: PT017  # to be refused is an answer
        return None
    return rewrite.replace(text)


def test_a_rewrite_means_what_it_means_to_go() -> None:
    found = [[*case[:3], rewritten(*case[:3])] for case in CASES]
    assert [made for made, case in zip(found, CASES, strict=True) if made != case] == []


def test_the_table_has_every_kind_of_case() -> None:
    made = [case[3] for case in CASES]
    assert made.count(None) > 20
    assert sum(case[2] == case[3] for case in CASES) > 20
    assert sum("$" in case[1] for case in CASES) > 200


@pytest.mark.parametrize("long", [("a" * (MAX_CHARS + 1), "x"), ("a", "x" * (MAX_CHARS + 1))])
def test_a_rewrite_is_bounded(long: tuple[str, str]) -> None:
    with pytest.raises(RewriteError, match="at most"):
        read_rewrite(*long)
    # Whatever the pattern, RE2 takes a time in proportion to the text.
    slow = read_rewrite("(a*)*b", "$1" * (MAX_CHARS // 2))
    assert slow.replace("a" * 255) == "a" * 255

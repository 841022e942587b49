"""The attacks of tests.attack.decisions, with small counts."""

import itertools
from collections.abc import Iterable

import pytest

from tests.attack import damage, decisions
from tests.support.check import Check

pytestmark = pytest.mark.slow

# Looking for an end of it takes seconds.
LONG = "an endless tree"


def holds(checks: Iterable[Check]) -> None:
    found = list(checks)
    assert found
    assert [str(check) for check in found if not check.held] == []


def test_the_store_opens_with_any_wrong_bit_in_the_first_page() -> None:
    whole = damage.sound_file()
    names = {case.name for case in damage.flips(whole, every=1)}
    assert {"bit 18.1", "bit 71.0", "bit 99.7", "bit 4095.7"} <= names
    assert len(names) > 6500
    holds([decisions.damaged("page 1", damage.flips(whole, every=211))])


def test_the_store_opens_with_wrong_bits_in_other_pages() -> None:
    holds([decisions.damaged("other pages", damage.page_flips(damage.sound_file(), 20))])


def test_the_store_opens_with_values_that_it_never_writes() -> None:
    holds([decisions.damaged("statements", damage.statements())])


def test_the_store_opens_with_files_of_other_kinds() -> None:
    cases = damage.files(damage.sound_file())
    holds([decisions.damaged("files", (case for case in cases if case.name != LONG))])


def test_the_daemon_starts_with_a_damaged_file_and_stops() -> None:
    flips = damage.flips(damage.sound_file(), every=1)
    # A letter of a table's statement: SQLite quotes it in an error that is no text.
    (case,) = itertools.islice((each for each in flips if each.name == "bit 4013.7"), 1)
    holds(decisions.daemons([case]))


def test_pods_that_wait_while_nodes_join_one_by_one() -> None:
    holds(decisions.joined(pods=300, nodes=4, every_s=0.5, disk_s=0.0))


@pytest.mark.parametrize("count", [1, 90])
def test_a_surrogate_in_one_pod_does_not_affect_the_others(count: int) -> None:
    holds(decisions.half_characters(count))

"""Short runs of tests/attack/telemetry.py."""

import pytest

from tests.attack.telemetry import lies, many_boards, phantoms

pytestmark = pytest.mark.broker


def test_invented_measurements_of_a_board_are_refused() -> None:
    assert [str(check) for check in lies(12) if not check.held] == []


def test_invented_names_do_not_displace_boards() -> None:
    heard, kept = phantoms(1000, 3)
    assert heard.held, heard
    assert "256 kept" in kept.found


def test_tests_are_planned_for_many_boards() -> None:
    assert int(many_boards(300, 1).found.partition(" planned")[0]) >= 1

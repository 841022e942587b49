"""What repeats the controller's settings is as `make settings` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from leadline_controller.setting_rows import rows
from leadline_controller.settings import Settings

from tests.docs import settings


@pytest.mark.parametrize("file", list(settings.generated()), ids=lambda file: file.name)
def test_what_repeats_the_settings_is_up_to_date(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == settings.generated()[file], "run make settings"


def test_every_setting_says_what_it_means_and_no_two_are_the_same() -> None:
    every = list(rows(Settings))
    assert all(row.declared.help for row in every)
    assert len({row.path for row in every}) == len({row.variable for row in every}) == len(every)


def test_what_the_role_and_the_chart_leave_out_are_settings() -> None:
    assert {*settings.OF_THE_ROLE, *settings.OF_THE_CHART} <= {row.path for row in rows(Settings)}

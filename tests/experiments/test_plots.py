"""Figures as files: the same bytes each time, and every kind can be drawn."""

from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from leadline_experiments.result import Series

from tests.experiments.fakes import FIGURE


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    """Imported late: matplotlib takes long, and each worker collects every file."""
    return import_module("leadline_experiments.plots")


@pytest.mark.slow
def test_svg_and_png_are_the_same_each_time(plots: ModuleType, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    made = []
    for folder in folders:
        folder.mkdir()
        made.append([file.read_bytes() for file in plots.save(FIGURE, folder)])
    assert made[0] == made[1]
    svg, png = made[0]
    assert b"<svg" in svg
    assert b"dc:date" not in svg
    assert png.startswith(b"\x89PNG")
    assert sorted(file.name for file in folders[0].iterdir()) == ["fake-fig1.png", "fake-fig1.svg"]


@pytest.mark.slow
def test_the_users_matplotlib_settings_have_no_effect_and_stay(
    plots: ModuleType, tmp_path: Path
) -> None:
    mpl = import_module("matplotlib")
    (tmp_path / "plain").mkdir()
    (tmp_path / "set").mkdir()
    plain = plots.save(FIGURE, tmp_path / "plain")[0].read_bytes()
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        theirs = plots.save(FIGURE, tmp_path / "set")[0].read_bytes()
        assert mpl.rcParams["font.size"] == 30
    assert theirs == plain


@pytest.mark.parametrize("kind", ["lines", "steps"])
def test_lines_show_every_point_with_its_unit(
    plots: ModuleType, kind: Literal["lines", "steps"]
) -> None:
    series = [Series("dacs", [1.1, 1.2], [0.5, 0.25]), Series("bef", [1.1, 1.2], [0.4, 0.3])]
    axes = plots.draw(replace(FIGURE, kind=kind, series=series)).axes[0]
    drawn = [line.get_xydata().tolist() for line in axes.lines]
    assert drawn == [[[1.1, 0.5], [1.2, 0.25]], [[1.1, 0.4], [1.2, 0.3]]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("pods", "wait (s)")
    assert len({line.get_color() for line in axes.lines}) == 2


def test_bars_stand_beside_each_other_in_their_group(plots: ModuleType) -> None:
    axes = plots.draw(FIGURE).axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [1.5, 2.5, 2.0, 4.0]
    lefts = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
    assert all(end <= start for (_, end), (start, _) in pairwise(lefts))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "10"]

"""docs/experiments.md and its figures agree with the results of the experiments."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from leadline_experiments import EXPERIMENTS
from leadline_experiments.tables import details, summary

from tests.docs import experiments
from tests.docs.experiments import FOLDER, PAGE, overview, overview_on, part, with_part
from tests.experiments.results import Run

CURE = "run make experiments and look at what changed"


@pytest.mark.experiment
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_has_what_comes_out(
    name: str, experiment: Callable[[str], Run], tmp_path: Path
) -> None:
    from leadline_experiments import plots  # its libraries take long to import

    result = experiment(name).result
    assert result.experiment == name
    assert all(math.isfinite(row.ours) for row in result.rows)
    assert [claim for claim in result.misses if not claim.why] == [], "a miss has its reason"
    said = part(PAGE.read_text(encoding="utf-8"), name)
    assert summary(result, f"{FOLDER.name}/") == said, CURE
    assert details(result) == (FOLDER / f"{name}.md").read_text(encoding="utf-8"), CURE
    for figure in result.figures:
        svg, png = plots.save(figure, tmp_path)
        assert (FOLDER / svg.name).read_bytes() == svg.read_bytes(), f"{svg.name}: {CURE}"
        assert (FOLDER / png.name).exists(), f"{png.name}: {CURE}"


def test_the_overview_is_of_the_parts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert overview_on(page) == overview(page), CURE


def test_every_file_beside_the_page_is_shown_there_or_on_an_experiments_own() -> None:
    page = PAGE.read_text(encoding="utf-8")
    own = "".join(file.read_text(encoding="utf-8") for file in FOLDER.glob("*.md"))
    for file in FOLDER.iterdir():
        if file.suffix == ".md":
            assert f"]({FOLDER.name}/{file.name})" in page
        else:
            assert f"]({file.with_suffix('.svg').name})" in own, file.name


def test_what_is_written_by_hand_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# By hand\n\n" + with_part("", "overview", "stale\n") + "\nalso by hand\n")
    folder = tmp_path / "page"
    folder.mkdir()
    for name in ("one", "two"):
        text = f"## {name}\n**Claims that hold: 1 of 2 fitted.**\n![A plot](a.svg)\n"
        (folder / f"{name}-summary.md").write_text(text)
    monkeypatch.setattr(experiments, "PAGE", page)
    monkeypatch.setattr(experiments, "FOLDER", folder)
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"one": "", "two": ""})
    experiments.main()
    made = page.read_text()
    assert made.startswith("# By hand\n\n")
    assert made.index("also by hand") < made.index("## one") < made.index("## two")
    assert "| [one](#one) |  | 1 of 2 |  |" in made
    assert "stale" not in made
    assert "![A plot](page/a.svg)" in part(made, "two")
    assert list(folder.iterdir()) == []

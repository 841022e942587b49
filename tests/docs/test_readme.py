"""README.md: a reader's first screen. tests/system/test_examples.py runs its commands."""

import re
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_it_names_the_two_commands_of_a_newcomer() -> None:
    assert re.findall(r"^make (demo|test)\b", README, re.MULTILINE) == ["demo", "test"]


def test_it_names_the_papers_as_the_citation_does() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert len(citation["references"]) == 5
    said = " ".join(README.split())
    for paper in citation["references"]:
        authors = [each["family-names"] for each in paper["authors"] if "family-names" in each]
        for part in (paper["title"], *authors, str(paper.get("year", "")), paper.get("doi", "")):
            assert part in said


def test_its_numbers_are_those_of_the_pages() -> None:
    speed, lab = ((REPOSITORY / f"docs/{page}.md").read_text("utf-8") for page in ("speed", "lab"))
    for said, page, there in (
        ("| 271 and 222 |", speed, "| Leadline | 483 | 446-511 | 271 |"),
        ("| 271 and 222 |", speed, "| Leadline | 371 | 292-388 | 222 |"),
        ("| 55; 197 and 253 with", speed, "limits lifted | 197 | 140-282 | 197 |"),
        ("| 55; 197 and 253 with", speed, "limits lifted | 254 | 227-300 | 253 |"),
        ("| 20 s (19-21) |", lab, "| NetSched | 10 | 10/0/0/0 | 20 s | 19-21 s |"),
        ("| 90 s (89-177) |", lab, "| 90 s | 89-177 s |"),
    ):
        assert said in README
        assert there in page

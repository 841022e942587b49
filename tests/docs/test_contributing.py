"""CONTRIBUTING.md: how large each part is, and that no target is forgotten."""

import re

from tests.docs.contributing import PAGE, REPOSITORY, rows


def test_the_lines_of_each_part_are_about_what_the_page_says() -> None:
    found = list(rows(PAGE.read_text(encoding="utf-8")))
    assert len(found) >= 10
    wrong = {row[1]: (said, now) for row, said, now in found if abs(said - now) > 0.2 * now}
    assert wrong == {}, "python -m tests.docs.contributing writes the table again"


def test_each_room_of_the_controller_is_in_the_table() -> None:
    listed = {
        name
        for row, *_ in rows(PAGE.read_text(encoding="utf-8"))
        for name in re.findall(r"`([\w/]+)/`", row[1])
    }
    controller = REPOSITORY / "controller/leadline_controller"
    assert {file.parent.name for file in controller.glob("*/__init__.py")} - listed == set()


def test_each_target_for_people_has_its_line() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    listed = set(re.findall(r"^\| `make ([a-z-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed - targets == set()
    assert {each for each in targets if each.startswith("test")} - listed == set()

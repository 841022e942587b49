"""The site has every page, and no link leads nowhere. `make docs` checks anchors as well."""

from pathlib import Path

from tests.docs.site import REPOSITORY, remote, stage


def test_every_page_is_in_the_site_and_every_link_leads_to_a_file(tmp_path: Path) -> None:
    assert list(stage(REPOSITORY, tmp_path)) == []
    assert (tmp_path / "docs/map/map-40.png").is_file()  # that README.md shows


def test_a_page_that_is_left_out_and_a_link_to_nothing_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("nav:\n- Start: README.md\n- Use: [{A: docs/a.md}]\n")
    (tmp_path / "README.md").write_text('[a](docs/a.md#x) <img src="gone.png"> [w](https://w/x)')
    (tmp_path / "docs/a.md").write_text("[far](../far.md)")
    (tmp_path / "far.md").write_text("[near](nowhere.md)")
    (tmp_path / "docs/b.md").write_text("")
    assert list(stage(tmp_path, tmp_path / "pages")) == [
        "mkdocs.yml: nav has no docs/b.md",
        "README.md: there is no gone.png",
        "far.md: there is no nowhere.md",
    ]
    assert (tmp_path / "pages/far.md").is_file()


def test_a_pipe_in_the_code_of_a_table_shows_no_escape(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("nav:\n- Start: README.md\n")
    (tmp_path / "README.md").write_text("| `a\\|b` | c\\|d |\n`e\\|f`\n")
    assert list(stage(tmp_path, tmp_path / "pages")) == []
    assert (tmp_path / "pages/README.md").read_text() == "| `a|b` | c\\|d |\n`e\\|f`\n"


def test_what_a_page_would_load_from_elsewhere_is_found() -> None:
    for one in (
        '<script src="https://w/x.js">',
        "<link href=//w/x.css>",
        "<img alt='' src='http://w/x'>",
    ):
        assert remote(f"<p>{one}</p>")
    assert remote('<a href="https://w/x">x</a> <img src="x.png"> <link href="x.css">') == []

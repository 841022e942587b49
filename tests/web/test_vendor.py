"""The vendored files are those that `vendor.json` names, and the page needs nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.web.canned import FILES
from tests.web.vendoring import FOLDERS, differences

OWN = sorted(file for file in FILES.iterdir() if file.suffix in (".html", ".js", ".css"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_vendored_files_have_their_hashes_and_licences(folder: Path) -> None:
    assert differences(folder) == []
    assert any("LICENSE" in file.name for file in folder.iterdir())


def test_a_changed_a_missing_and_an_unlisted_file_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "vendor"
    shutil.copytree(FOLDERS[1], folder)
    with (folder / "axe.js").open("a") as file:
        file.write("// more")
    (folder / "axe.LICENSE").unlink()
    (folder / "other.js").write_text("")
    found = differences(folder)
    assert [line.split(":")[0] for line in found] == ["axe.LICENSE", "axe.js", "other.js"]


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_no_file_of_the_page_names_another_host_or_writes_html(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]{2,}/", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    for module in re.findall(r'from "(\./[^"]+)"', text):
        assert (FILES / module).is_file(), module

"""docs/architecture.md, docs/glossary.md and CONTRIBUTING.md speak of the code as it is: their
files and classes exist, the rooms are those of the import contracts, and pure rooms are pure."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
ARCHITECTURE = REPOSITORY / "docs/architecture.md"
GLOSSARY = REPOSITORY / "docs/glossary.md"
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"
PACKAGES = {
    name: REPOSITORY / folder / name
    for name, folder in (
        ("leadline_agent", "agent"),
        ("leadline_flows", "agent/flows"),
        ("leadline_wire", "proto"),
        ("leadline_controller", "controller"),
        ("leadline_experiments", "controller/experiments"),
        ("leadline_lab", "controller/lab"),
    )
}
# Where a path on these pages may start.
FOLDERS = (
    REPOSITORY,
    PACKAGES["leadline_controller"],
    PACKAGES["leadline_agent"],
    PACKAGES["leadline_experiments"],
    PACKAGES["leadline_lab"],
)
PATH = re.compile(
    r"`((?:\.?[\w-]+/)*\.?[\w.-]+(?:\.(?:py|md|toml|yaml|yml|proto|service)|(?<=\w)/))`"
)
FOLDER = re.compile(r"`((?:tests|docs|agent|ansible|controller|proto|systemd)(?:/[\w.-]+)*)`")
WRITTEN_ELSEWHERE = {"agent.toml", "controller.toml", "inventory.yml"}


def paths(page: Path) -> set[str]:
    """The files and folders that a page names."""
    text = page.read_text(encoding="utf-8")
    return {*PATH.findall(text), *FOLDER.findall(text)} - WRITTEN_ELSEWHERE


def section(title: str) -> str:
    """What stands under this heading of the architecture."""
    return ARCHITECTURE.read_text(encoding="utf-8").split(f"### {title}\n")[1].split("\n##")[0]


def rooms(text: str) -> set[str]:
    """The rooms that a text names, `name/` or `name.py`."""
    return {name.removesuffix(".py") for name in re.findall(r"`(\w+(?=/)|\w+\.py)", text)}


def contract(name: str) -> dict[str, Any]:
    """The import contract of this name."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (found,) = (
        each for each in settings["tool"]["importlinter"]["contracts"] if each["name"] == name
    )
    assert isinstance(found, dict)
    return found


def modules(package: Path) -> set[str]:
    """The top-level packages and modules of a package."""
    files = {file.stem for file in package.glob("*.py")} - {"__init__"}
    return files | {file.parent.name for file in package.glob("*/__init__.py")}


@pytest.mark.parametrize("page", [ARCHITECTURE, GLOSSARY, CONTRIBUTING], ids=lambda page: page.name)
def test_every_file_that_the_page_names_exists(page: Path) -> None:
    named = paths(page)
    assert len(named) >= 5
    missing = {path for path in named if not any((folder / path).exists() for folder in FOLDERS)}
    assert missing == set()


def test_the_controllers_rooms_stand_in_the_layers_of_the_import_contract() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section("Rooms of the controller"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    expected = [set(layer.split(" | ")) for layer in contract("Controller rooms")["layers"]]
    assert [rooms(row) for _, row in rows] == expected


@pytest.mark.parametrize(
    ("title", "package"),
    [("Rooms of the controller", "leadline_controller"), ("Rooms of the agent", "leadline_agent")],
)
def test_every_room_is_named(title: str, package: str) -> None:
    assert modules(PACKAGES[package]) - rooms(section(title)) == set()


@pytest.mark.parametrize("page", [ARCHITECTURE, GLOSSARY], ids=lambda page: page.name)
def test_every_class_that_the_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(
        file.read_text(encoding="utf-8")
        for package in PACKAGES.values()
        for file in package.rglob("*.py")
    )
    own = set(re.findall(r"^(?:class (\w+)|(\w+) = )", code, re.MULTILINE))
    classes = {name for pair in own for name in pair if name}
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:\.\w+)*`", ours(text, page)))
    assert len(named) >= 5
    assert named - classes - KUBERNETES == set()


# Words of Kubernetes that look like classes: reasons of events.
KUBERNETES = {"FailedScheduling", "FailedBinding"}


def ours(text: str, page: Path) -> str:
    """The parts of a page that speak of this code: of the glossary's tables the first column."""
    if page != GLOSSARY:
        return text
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| "))


# The registry of plug-ins looks packages up and logs; it decides nothing.
IMPURE = {"strategies/registry.py"}
OUTSIDE = (
    *("asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib"),
    *("secrets", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile"),
    *("threading", "time", "urllib"),
)


@pytest.mark.parametrize("room", ["framework", "filters", "strategies"])
def test_pure_rooms_import_neither_io_nor_clocks_nor_global_randomness(room: str) -> None:
    package = PACKAGES["leadline_controller"]
    impure = []
    for file in (package / room).rglob("*.py"):
        name = file.relative_to(package).as_posix()
        imported = set(imports(file)) if name not in IMPURE else set()
        impure += [
            f"{name}: {each}"
            for each in imported
            if each.partition(".")[0] in OUTSIDE
            or (each.startswith("random") and each != "random.Random")
        ]
    assert impure == []


def imports(file: Path) -> list[str]:
    """What a module imports: "module", or "module.name"."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found

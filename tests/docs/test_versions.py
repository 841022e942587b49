"""docs/versions.md names the releases that the tests are built with; and this checkout is one
release, whoever names it."""

import re
import subprocess
from pathlib import Path

import yaml
from leadline_bundle.image import PYTHON
from leadline_bundle.release import FOLDERS
from leadline_bundle.targets import TARGETS

from tests.chart.helm import CHART, VERSION
from tests.kube.control_plane import KINE
from tests.kube.gobuild import KEDA_MODULE
from tests.kube.sources import kubernetes_version
from tests.support.release import REPOSITORY
from tests.support.release import VERSION as RELEASE

PAGE = (REPOSITORY / "docs" / "versions.md").read_text()


def row(first: str) -> str:
    (found,) = re.findall(rf"^\| {re.escape(first)} \| (.+) \|$", PAGE, re.MULTILINE)
    return str(found)


def test_the_page_has_the_kubernetes_of_the_tests() -> None:
    for release, target in (("newest", "make test-all`"), ("oldest", "make test-oldest`")):
        version = kubernetes_version({"LEADLINE_TEST_KUBERNETES": release}).removeprefix("v")
        assert target in row(f"{version.rpartition('.')[0]} ({version})")
        assert (
            f"\n{target.rstrip('`').removeprefix('make ')}:"
            in (REPOSITORY / "Makefile").read_text()
        )


def test_the_page_has_the_kine_of_the_tests() -> None:
    release = kubernetes_version({}).removeprefix("v").rpartition(".")[0]
    version = KINE[1].removeprefix("v")
    assert "`make test-kine`" in row(
        f"{release} on kine {version} over SQLite, the store of a k3s server alone"
    )


def test_the_page_has_the_oldest_kubernetes_that_the_chart_takes() -> None:
    wanted = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    oldest = re.fullmatch(r">=(\d+\.\d+)\.0-0", wanted)
    assert oldest
    assert re.search(rf"^\| {oldest[1]} to .* the chart installs", PAGE, re.MULTILINE)


def test_the_page_has_the_versions_of_the_rest() -> None:
    pythons = sorted({target.python for target in TARGETS})
    assert all(python in row("Python of boards and server") for python in pythons)
    assert f"the image has Debian's {PYTHON}" in PAGE
    assert row("Helm") == VERSION.removeprefix("v")
    (keda,) = re.findall(r"kedacore/keda/v2 v(\d+\.\d+)", (KEDA_MODULE / "go.mod").read_text())
    assert row("KEDA") == keda
    wanted = (REPOSITORY / "tests/home_assistant/requirements.in").read_text()
    assert f"homeassistant=={row('Home Assistant')}\n" in wanted


def test_make_version_writes_the_release_wherever_it_is_named(tmp_path: Path) -> None:
    makefile = REPOSITORY / "Makefile"
    listed = re.search(r"^VERSIONED := ((?:.*\\\n)*.*)$", makefile.read_text(), re.MULTILINE)
    assert listed
    names = listed[1].replace("\\\n", " ").split()
    assert {f"{folder}/pyproject.toml" for folder in FOLDERS} < set(names)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    subprocess.run(["make", "-f", makefile, "version", "TO=9.8.7"], cwd=tmp_path, check=True)
    for name in names:
        before, after = ((f / name).read_text().splitlines() for f in (REPOSITORY, tmp_path))
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert changed, name
        assert all(old.replace(RELEASE, "9.8.7") == new for old, new in changed), name


def test_the_release_has_its_changes_and_its_wire() -> None:
    assert f"\n## {RELEASE} - 20" in (REPOSITORY / "CHANGELOG.md").read_text()
    assert (REPOSITORY / f"tests/proto/released/{RELEASE}.txt").is_file()

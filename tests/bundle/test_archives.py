"""What krew gets: a manifest that its rules accept (internal/index/validation of its source), and a
plugin that finds the command here or in the controller's pod."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from leadline_bundle import archives

from tests.support.release import REPOSITORY, VERSION

URL = "https://example.org/of/this/release"
FAKE = '#!/bin/sh\necho "$0 $*"\ncase "$*" in *" get "*) exit %s;; esac\n'


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    return archives.krew(REPOSITORY, VERSION, URL, 0)


def test_krew_accepts_the_manifest(made: dict[str, bytes]) -> None:
    manifest = yaml.safe_load(made["leadline.yaml"])
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]) == ("Plugin", {"name": "leadline"})
    spec = manifest["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    (platform,) = spec["platforms"]
    (selector,) = platform["selector"]["matchExpressions"]
    assert (selector["key"], selector["operator"]) == ("os", "In")
    archive = made[platform["uri"].removeprefix(f"{URL}/")]
    assert platform["sha256"] == sha256(archive).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["LICENSE", platform["bin"]]


@pytest.mark.parametrize(
    ("programs", "status", "code", "said"),
    [
        (("leadline", "kubectl"), 0, 0, "leadline nodes -o json"),
        (
            ("kubectl",),
            *(0, 0),
            "kubectl --namespace kube-system exec --quiet --stdin "
            "statefulset/leadline-controller -- leadline nodes -o json",
        ),
        (("kubectl",), 1, 3, "none in a pod"),
        ((), 0, 3, "install the package leadline-controller"),
    ],
    ids=["here", "in-a-pod", "nowhere", "no-kubectl"],
)
def test_the_plugin_runs_the_command_that_there_is(
    programs: tuple[str, ...],
    status: int,
    code: int,
    said: str,
    made: dict[str, bytes],
    tmp_path: Path,
) -> None:
    for name in programs:
        (tmp_path / name).write_text(FAKE % status)
        (tmp_path / name).chmod(0o755)
    with tarfile.open(fileobj=io.BytesIO(made[f"kubectl-leadline-{VERSION}.tar.gz"])) as tar:
        tar.extractall(tmp_path, filter="tar")
    done = subprocess.run(
        ["/bin/sh", tmp_path / "kubectl-leadline", "nodes", "-o", "json"],
        env={"PATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done
    assert len((done.stdout + done.stderr).splitlines()) == 1
    assert said in done.stdout + done.stderr
    assert os.access(tmp_path / "kubectl-leadline", os.X_OK)


def test_the_chart_is_whole(tmp_path: Path) -> None:
    blob = archives.chart(REPOSITORY, 0)
    assert blob == archives.chart(REPOSITORY, 0)
    with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = REPOSITORY / "controller/deploy/helm/leadline"
    for file in (*folder.rglob("*"), *(folder / "rights").iterdir()):
        if file.is_file():
            packed = tmp_path / "leadline" / file.relative_to(folder)
            assert packed.read_bytes() == file.read_bytes()

"""What docs/quickstart.md has people type and write is what the chart takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from leadline_wire import certificates

from tests.support.release import REPOSITORY

PAGE = (REPOSITORY / "docs/quickstart.md").read_text()


def blocks(kind: str = "") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_commands_make_the_certificates_that_the_values_name(tmp_path: Path) -> None:
    (commands,) = (each for each in blocks() if "certify" in each)
    shown = 'kubectl() { echo "kubectl $*"; }\n'
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", shown + commands],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    secrets = re.findall(r"^kubectl .* create secret generic (\S+)", done.stdout, re.M)
    values = yaml.safe_load(blocks("yaml")[0])
    named = [values["broker"]["certificate"], *values["certificates"]["broker"]]
    assert secrets == [*named, values["certificates"]["agents"]]
    for name in ("leadline-broker.kube-system.svc", "leadline-controller"):
        file = tmp_path / "pki" / f"{name}.crt"
        assert certificates.read(file).common_name == name
        verify = ["openssl", "verify", "-CAfile", str(file.with_name("ca.crt")), str(file)]
        assert subprocess.run(verify, capture_output=True, check=False).returncode == 0

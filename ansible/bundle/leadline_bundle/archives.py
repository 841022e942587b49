"""What is published beside wheels and images: the chart, and `kubectl leadline` for krew. The same
source gives the same bytes, as `oci.layer` does."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from string import Template

from leadline_bundle import oci
from leadline_bundle.oci import File

_DEPLOY = "controller/deploy"


def chart(source: Path, time_s: int) -> bytes:
    """The chart as `helm package` lays it out. source: a checkout. time_s: of the files."""
    folder = source / _DEPLOY / "helm/leadline"
    files = {}
    # `rights` and `agent` are links to folders.
    for place, _, names in os.walk(folder, followlinks=True):
        for file in (Path(place, name) for name in names):
            files[f"leadline/{file.relative_to(folder)}"] = File(file.read_bytes())
    return oci.layer(files, time_s).blob


def krew(source: Path, version: str, url: str, time_s: int) -> dict[str, bytes]:
    """Name -> content of the plugin's archive and its manifest. url: the folder that it will be
    downloaded from."""
    folder = source / _DEPLOY / "krew"
    plugin = File((folder / "kubectl-leadline").read_bytes(), executable=True)
    files = {"kubectl-leadline": plugin, "LICENSE": File((source / "LICENSE").read_bytes())}
    name, blob = f"kubectl-leadline-{version}.tar.gz", oci.layer(files, time_s).blob
    values = {"version": version, "url": url, "archive": name, "sha256": sha256(blob).hexdigest()}
    text = (folder / "leadline.yaml").read_text(encoding="utf-8")
    _, _, manifest = text.partition("\n")  # the first line is about the template
    return {name: blob, "leadline.yaml": Template(manifest).substitute(values).encode()}

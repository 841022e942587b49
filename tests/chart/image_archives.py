"""The images of `make image`, built once for all tests of a run, and how a registry gets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).parents[2]


def build(out: Path) -> dict[str, Path]:
    """Build both images into `out`; name -> archive."""
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "ansible/bundle")}
    command = [sys.executable, "-m", "leadline_bundle.image", "--out", str(out)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {file.name.rpartition("-")[0]: file for file in out.glob("*.oci.tar")}


@dataclass(frozen=True)
class Archive:
    """An opened image archive."""

    tar: tarfile.TarFile

    def blob(self, digest: str) -> bytes:
        """The blob of this digest."""
        file = self.tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert file
        return file.read()

    def top(self) -> dict[str, Any]:
        """The descriptor of the image index."""
        file = self.tar.extractfile("index.json")
        assert file
        (top,) = json.loads(file.read())["manifests"]
        return dict(top)

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Architecture -> the descriptor of its manifest."""
        whole = json.loads(self.blob(self.top()["digest"]))
        return {each["platform"]["architecture"]: each for each in whole["manifests"]}

    def manifest(self, architecture: str) -> dict[str, Any]:
        """The manifest of an architecture."""
        return dict(json.loads(self.blob(self.manifests()[architecture]["digest"])))

    def config(self, architecture: str) -> dict[str, Any]:
        """The configuration of an architecture's image."""
        return dict(json.loads(self.blob(self.manifest(architecture)["config"]["digest"])))


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """Open an archive for the duration of the block."""
    with tarfile.open(file) as tar:
        yield Archive(tar)


def push(registry: HTTPConnection, name: str, tag: str, archive: Archive) -> None:
    """Push an image with all its architectures."""
    for descriptor in archive.manifests().values():
        manifest = json.loads(archive.blob(descriptor["digest"]))
        for blob in (manifest["config"], *manifest["layers"]):
            started = _call(registry, "POST", f"/v2/{name}/blobs/uploads/")
            place = urlsplit(started)
            path = f"{place.path}?{place.query}&digest={blob['digest']}"
            content = archive.blob(blob["digest"])
            _call(registry, "PUT", path, content, "application/octet-stream")
        path = f"/v2/{name}/manifests/{descriptor['digest']}"
        content = archive.blob(descriptor["digest"])
        _call(registry, "PUT", path, content, descriptor["mediaType"])
    top = archive.top()
    content = archive.blob(top["digest"])
    _call(registry, "PUT", f"/v2/{name}/manifests/{tag}", content, top["mediaType"])


def _call(
    registry: HTTPConnection, method: str, path: str, body: bytes = b"", kind: str = ""
) -> str:
    registry.request(method, path, body, {"Content-Type": kind} if kind else {})
    answer = registry.getresponse()
    text = answer.read()
    assert answer.status < 300, f"{method} {path}: {answer.status} {text[:200]!r}"
    return answer.getheader("Location", "")

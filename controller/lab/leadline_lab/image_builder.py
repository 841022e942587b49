"""Container images made from files and pushed to a registry, without a build tool.

A layer is a gzipped tar, and an image is two JSON documents; the OCI distribution and image
specifications say how they are pushed and what is in them.
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from leadline_lab.errors import LabError

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# Go's names for what uname calls the machine.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True)
class Layer:
    """A layer as the registry stores it, and the digest of its tar before compression."""

    blob: bytes
    diff_id: str

    @property
    def digest(self) -> str:
        """The name of the layer in registries and in `node.status`."""
        return _digest(self.blob)


def layer(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> Layer:
    """A layer of executable files (path -> content) and symbolic links (path -> target)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in (links or {}).items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    content = archive.getvalue()
    # The time is left out, so that the same files have the same digest.
    return Layer(gzip.compress(content, compresslevel=1, mtime=0), _digest(content))


def push(
    registry: HTTPConnection, name: str, tag: str, layers: Sequence[Layer], command: Sequence[str]
) -> str:
    """Push an image of this machine's architecture; layers that are there already are not sent.

    Returns the digest of its manifest. Raises LabError.
    """
    machine = platform.machine()
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, each.blob) for each in layers],
        }
    ).encode()
    try:
        for blob in (*(each.blob for each in layers), config):
            _push_blob(registry, name, blob)
        path = f"/v2/{name}/manifests/{tag}"
        _call(registry, "PUT", path, HTTPStatus.CREATED, manifest, _MANIFEST)
    except (OSError, HTTPException) as error:
        raise LabError(f"registry: {name}:{tag}: {error}") from None
    return _digest(manifest)


def _push_blob(registry: HTTPConnection, name: str, blob: bytes) -> None:
    digest = _digest(blob)
    registry.request("HEAD", f"/v2/{name}/blobs/{digest}")
    known = registry.getresponse()
    known.read()
    if known.status == HTTPStatus.OK:
        return
    started = _call(registry, "POST", f"/v2/{name}/blobs/uploads/", HTTPStatus.ACCEPTED)
    place = urlsplit(started)
    path = f"{place.path}?{place.query}&digest={digest}"
    _call(registry, "PUT", path, HTTPStatus.CREATED, blob, "application/octet-stream")


def _call(
    registry: HTTPConnection,
    method: str,
    path: str,
    expected: HTTPStatus,
    body: bytes = b"",
    kind: str = "",
) -> str:
    registry.request(method, path, body, {"Content-Type": kind} if kind else {})
    answer = registry.getresponse()
    text = answer.read().decode(errors="replace")
    if answer.status != expected:
        raise LabError(f"registry: {method} {path}: {answer.status} {text[:200]}")
    return answer.getheader("Location", "")


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"

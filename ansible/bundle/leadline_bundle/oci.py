"""OCI images from files in memory: layers, and an archive with an image for each architecture.

The same files always give the same bytes: entries are sorted, and all have the same time and owner.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, slots=True)
class File:
    """A file of an image; all belong to root, and everybody may read them. link: the target of a
    symbolic link, which has no content."""

    content: bytes = b""
    executable: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """A gzipped tar, and the digest of the tar."""

    blob: bytes
    diff_id: str


@dataclass(frozen=True, slots=True)
class Platform:
    """The image of one architecture, by Go's name. config: as the image specification's `config`,
    such as its user and entrypoint."""

    architecture: str
    layers: Sequence[Layer]
    config: Mapping[str, Any]


def layer(files: Mapping[str, File], time_s: int) -> Layer:
    """A layer of these files, by their paths without a leading slash. time_s: since the epoch."""
    archive = io.BytesIO()
    folders = {str(each) for path in files for each in PurePosixPath(path).parents} - {"."}
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted({*folders, *files}):
            entry = tarfile.TarInfo(path)
            entry.mtime = time_s
            file = files.get(path)
            if file is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            elif file.link:
                entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, file.link
                tar.addfile(entry)
            else:
                entry.size = len(file.content)
                entry.mode = 0o755 if file.executable else 0o644
                tar.addfile(entry, io.BytesIO(file.content))
    content = archive.getvalue()
    return Layer(gzip.compress(content, compresslevel=6, mtime=0), _digest(content))


def archive(
    platforms: Sequence[Platform], name: str, annotations: Mapping[str, str], created: str
) -> tuple[bytes, str]:
    """A tar of the image layout, which containerd, podman and skopeo read, and the digest of the
    image, by which a registry has it.

    name: with its tag, under which containerd imports it. created: a time of RFC 3339.
    """
    blobs: dict[str, bytes] = {}

    def kept(kind: str, blob: bytes) -> dict[str, Any]:
        digest = _digest(blob)
        blobs[digest] = blob
        return {"mediaType": kind, "digest": digest, "size": len(blob)}

    manifests = []
    for each in platforms:
        config = {
            "created": created,
            "architecture": each.architecture,
            "os": "linux",
            "config": {**each.config, "Labels": annotations},
            "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in each.layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": kept(_CONFIG, _json(config)),
            "layers": [kept(_LAYER, one.blob) for one in each.layers],
            "annotations": annotations,
        }
        platform = {"os": "linux", "architecture": each.architecture}
        manifests.append({**kept(_MANIFEST, _json(manifest)), "platform": platform})
    whole = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": annotations,
    }
    tag = name.rpartition(":")[2]
    named = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    top = {**kept(INDEX, _json(whole)), "annotations": named}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]}),
        **{f"blobs/{digest.replace(':', '/')}": blob for digest, blob in blobs.items()},
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            tar.addfile(entry, io.BytesIO(files[path]))
    return out.getvalue(), top["digest"]


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"

"""Answers of registries, as JSON bytes -> the layers of an image. Pure.

OCI image-spec: image-index.md, manifest.md, descriptor.md; Docker's image manifest version 2,
schema 2 has the same fields.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadline_controller.framework.model import Layer

# distribution-spec: a registry should accept manifests of 4 MiB.
MAX_BYTES = 4 * 2**20
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_LAYERS = 512  # overlayfs mounts 500 at most
_MAX_MANIFESTS = 1024
_MAX_LAYER_BYTES = 10**12
# The label kubernetes.io/arch has no variant, so the newest that boards have.
_VARIANTS = ("v8", "v7", "", "v6", "v5")


class RegistryError(Exception):
    """A registry did not tell an image's layers; str() is one line for people."""


class AbsentError(RegistryError):
    """It has no such image."""


class DeniedError(RegistryError):
    """It wants other credentials, or may not be asked."""


class AwayError(RegistryError):
    """It cannot be reached, or cannot answer now. after_s: when it wants to be asked again."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class BrokenError(RegistryError):
    """Its answer is not what the specification says."""


class Manifest(NamedTuple):
    """An image for one platform."""

    digest: str
    layers: tuple[Layer, ...]


class Index(NamedTuple):
    """An image for several platforms. manifests: architecture -> the digest of its manifest."""

    digest: str
    manifests: Mapping[str, str]


def read_answer(body: bytes, expected_digest: str = "") -> Manifest | Index:
    """The manifest or index in an answer. expected_digest: sha256:..., if it is known. Raises
    BrokenError."""
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if expected_digest and digest != expected_digest:
        raise BrokenError(f"its answer has the digest {digest}, not {expected_digest}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise BrokenError("its answer is not JSON") from None
    if not isinstance(answer, dict) or answer.get("schemaVersion") != 2:
        raise BrokenError("its answer is no manifest of schema version 2")
    if isinstance(answer.get("manifests"), list):
        return Index(digest, _platforms(answer["manifests"]))
    if not isinstance(answer.get("layers"), list):
        raise BrokenError("its answer has neither layers nor manifests")
    if len(answer["layers"]) > _MAX_LAYERS:
        raise BrokenError(f"the image has more than {_MAX_LAYERS} layers")
    return Manifest(digest, tuple(_layer(each) for each in answer["layers"]))


def _layer(descriptor: object) -> Layer:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    size = descriptor.get("size") if isinstance(descriptor, dict) else None
    if not is_digest(digest) or not isinstance(size, int) or isinstance(size, bool):
        raise BrokenError("a layer has no digest, or no size")
    if not 0 <= size <= _MAX_LAYER_BYTES:
        raise BrokenError("a layer has an impossible size")
    return Layer(str(digest), size / 1e6)


def _platforms(manifests: list[Any]) -> dict[str, str]:
    """Architecture -> digest, of Linux."""
    if len(manifests) > _MAX_MANIFESTS:
        raise BrokenError(f"the index has more than {_MAX_MANIFESTS} manifests")
    found: dict[str, tuple[int, str]] = {}
    for entry in manifests:
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if not isinstance(platform, dict) or platform.get("os") != "linux":
            continue  # of another system, or a signature and the like
        architecture, variant = platform.get("architecture"), platform.get("variant")
        variant = "" if variant is None else variant
        if not isinstance(architecture, str) or len(architecture) > 32:
            continue
        if variant not in _VARIANTS or not is_digest(entry.get("digest")):
            continue
        rank = _VARIANTS.index(variant)
        if architecture not in found or rank < found[architecture][0]:
            found[architecture] = rank, entry["digest"]
    return {architecture: digest for architecture, (_, digest) in found.items()}


def is_digest(value: object) -> bool:
    """Whether this is a digest that can be checked here: sha256."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None

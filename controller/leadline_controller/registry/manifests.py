"""Answers of registries, as JSON bytes -> the layers of an image. Pure.

OCI image-spec: image-index.md, manifest.md, descriptor.md; Docker's image manifest version 2,
schema 2 has the same fields.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from leadline_controller.framework.model import Layer

# distribution-spec: a registry should accept manifests of 4 MiB. containerd reads no more, either.
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
_MAX_LIST_BYTES = 2**18  # of layers or manifests, which take 100 to 500 bytes each
_MAX_LAYERS = 512  # overlayfs mounts 500 at most
_MAX_MANIFESTS = 1024
# As containerd/platforms has them: other names, the variants of an architecture, of which the first
# is the best, and what its boards run as well. The label kubernetes.io/arch has no variant, so the
# newest that boards have is taken.
_ALIASES = {
    "aarch64": ("arm64", ""),
    "armel": ("arm", "v6"),
    "armhf": ("arm", "v7"),
    "i386": ("386", ""),
    "x86-64": ("amd64", ""),
    "x86_64": ("amd64", ""),
}
_VARIANTS = {"amd64": ("v1",), "arm": ("v8", "v7", "v6", "v5"), "arm64": ("v8",)}
_PLAIN = {"amd64": "v1", "arm": "v7", "arm64": "v8"}  # what no variant means
_RUNS_AS_WELL = {"amd64": "386", "arm64": "arm"}
_NULL = msgspec.Raw(b"null")
# The only digest that can be checked here.
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
LayerBytes = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Read = TypeVar("_Read")


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


class SilentError(AwayError):
    """It was reached and did not answer, which may be so for this image only: a mirror that looks
    for what it does not have."""


class BrokenError(RegistryError):
    """Its answer is not what the specification says."""


class Manifest(NamedTuple):
    """An image for one platform."""

    digest: str
    layers: tuple[Layer, ...]


class Index(NamedTuple):
    """An image for several platforms."""

    digest: str
    # Architecture -> the digest of its manifest, or of another index; "" for one that does not say
    # its platform.
    manifests: Mapping[str, str]

    def of(self, architecture: str) -> str | None:
        """The digest for boards of this architecture, in containerd's order; None if none is."""
        names = (architecture, _RUNS_AS_WELL.get(architecture, architecture), "")
        return next((self.manifests[name] for name in names if name in self.manifests), None)


class _Document(msgspec.Struct, gc=False):
    """What all kinds of manifests have. The lists are read when their length is known."""

    schema: int = msgspec.field(default=2, name="schemaVersion")
    layers: msgspec.Raw = _NULL
    manifests: msgspec.Raw = _NULL


class _Descriptor(msgspec.Struct, gc=False):
    digest: Digest
    size: LayerBytes


class _Platform(msgspec.Struct, gc=False):
    architecture: str = ""
    os: str | None = None
    variant: str | None = None


class _Entry(msgspec.Struct, gc=False):
    """Of an index."""

    digest: str = ""
    media: str | None = msgspec.field(default=None, name="mediaType")
    artifact: str | None = msgspec.field(default=None, name="artifactType")
    platform: msgspec.Raw = _NULL  # read for itself, so that an odd one loses only its entry


def read_answer(body: bytes, expected_digest: str = "") -> Manifest | Index:
    """The manifest or index in an answer. expected_digest: sha256:..., if it is known. Raises
    BrokenError. 4 MiB of anything take some 20 ms."""
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    document = read_json(body, _Document, "manifest")
    if document.schema == 1:  # its digest is not that of the answer
        raise BrokenError("the image has Docker's schema 1, which containerd does not run either")
    if expected_digest and digest != expected_digest:
        raise BrokenError(f"its answer has the digest {digest}, not {expected_digest}")
    if document.schema != 2:
        raise BrokenError("its answer is no manifest of schema version 2")
    layers, manifests = bytes(document.layers), bytes(document.manifests)
    is_index, is_image = manifests != b"null", layers != b"null"
    if is_index == is_image:
        # With both, containerd refuses it as well: they might mean different images.
        which = "both layers and" if is_index else "neither layers nor"
        raise BrokenError(f"its answer has {which} manifests")
    if is_index:
        entries = _list(manifests, list[_Entry | None], "manifests", _MAX_MANIFESTS)
        return Index(digest, _platforms(each for each in entries if each is not None))
    found = _list(layers, list[_Descriptor], "layers", _MAX_LAYERS)
    return Manifest(digest, tuple(Layer(each.digest, each.size / 1e6) for each in found))


def read_json(body: bytes, kind: type[_Read], what: str) -> _Read:
    """Untrusted JSON as this type; what no field asks for is skipped. what: a kind of answer, for
    people. Raises BrokenError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BrokenError(f"its answer is no {what}: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise BrokenError("its answer is not JSON") from None


def _list(body: bytes, kind: type[list[_Read]], what: str, most: int) -> list[_Read]:
    """Raises BrokenError: before the objects are made if it is so long that most are junk."""
    is_long = len(body) > _MAX_LIST_BYTES
    found = [] if is_long else read_json(body, kind, f"list of {what}")
    if is_long or len(found) > most:
        raise BrokenError(f"its list of {what} is longer than {most}, or {_MAX_LIST_BYTES} bytes")
    return found


def _platforms(entries: Iterable[_Entry]) -> dict[str, str]:
    """Architecture -> digest, of Linux; "" -> that of the first entry without a platform. Of those
    for the same platform the first counts, as for containerd."""
    found: dict[str, tuple[int, str]] = {}
    for entry in entries:
        is_image = entry.media in (None, "", *INDEXES, *MANIFESTS) and not entry.artifact
        platform = _platform(bytes(entry.platform))
        if not is_image or platform is None or not is_digest(entry.digest):
            continue
        name, rank = platform
        if name not in found or rank < found[name][0]:
            found[name] = rank, entry.digest
    return {name: digest for name, (_, digest) in found.items()}


def _platform(body: bytes) -> tuple[str, int] | None:
    """The architecture, "" if it is not said, and the rank of its variant, 0 for the best. None if
    no board has it: an attestation is for unknown/unknown."""
    try:
        read = msgspec.json.decode(body, type=_Platform | None)
    except msgspec.ValidationError:
        return None
    if read is None:
        return "", 0
    name, variant = read.architecture.lower(), (read.variant or "").lower()
    name, variant = _ALIASES.get(name, (name, variant))
    if variant[:1].isdigit():
        variant = f"v{variant}"
    variant = variant.removesuffix(".0") or _PLAIN.get(name, "")
    variants = _VARIANTS.get(name, ("",))
    if not name or (read.os or "linux").lower() != "linux" or variant not in variants:
        return None
    return name, variants.index(variant)


def is_digest(value: object) -> bool:
    """Whether this is a digest that can be checked here: sha256."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None

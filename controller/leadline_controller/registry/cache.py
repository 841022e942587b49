"""What registries told, in a file, so that a restart asks nothing again.

Each line is one image as JSON. New ones are appended, at most once a minute, because writing wears
an SD card; a line that cannot be read is skipped. A file over its limit is replaced by one with the
images that are still wanted.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from leadline_controller.framework.model import Layer
from leadline_controller.registry.manifests import Digest, LayerBytes

_MAX_LINE = 2**20
_MAX_IMAGES = 4096


class KnownImage(NamedTuple):
    """An image, its name by digest, and its layers: architecture -> layers, "" for all."""

    image: str
    by_digest: str
    layers: Mapping[str, tuple[Layer, ...]]

    def is_complete(self, architectures: Set[str]) -> bool:
        """Whether it tells all about these architectures."""
        return "" in self.layers or architectures <= self.layers.keys()

    def is_of_use(self, architectures: Set[str]) -> bool:
        """Whether it tells the layers for one of them, at least."""
        return any(self.layers.get(each) for each in architectures) or "" in self.layers

    def line(self) -> bytes:
        """As a line of the file. An architecture without an image has null: earlier releases wrote
        [] for it, also where the index did not say the platform, so that is asked for again."""
        layers = {
            architecture: [(each.digest, round(each.size_mb * 1e6)) for each in of_one] or None
            for architecture, of_one in self.layers.items()
        }
        return msgspec.json.encode(_Line(self.image, self.by_digest, layers)) + b"\n"


class _Line(msgspec.Struct):
    image: str
    digest: Annotated[str, msgspec.Meta(pattern=r"^[^@]*@sha256:[0-9a-f]{64}\Z")]
    layers: dict[str, list[tuple[Digest, LayerBytes]] | None]


def read_line(line: bytes) -> KnownImage | None:
    """The image of a line; None if it cannot be read."""
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    layers = {
        architecture: tuple(Layer(digest, size / 1e6) for digest, size in of_one or ())
        for architecture, of_one in read.layers.items()
        if of_one != []
    }
    return KnownImage(read.image, read.digest, layers)


class ImageCache:
    """The file. path: None for memory only. Every method may block, and none raises."""

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self._path = path if max_bytes > 0 else None
        self._max_bytes = max_bytes

    def load(self) -> Iterator[KnownImage]:
        """The images of the file, of the same name the last one."""
        found: dict[str, KnownImage] = {}
        if self._path is not None:
            with suppress(OSError), self._path.open("rb") as file:
                left = self._max_bytes + _MAX_LINE
                while left > 0 and (line := file.readline(_MAX_LINE)):
                    left -= len(line)
                    if (known := read_line(line)) is not None and len(found) < _MAX_IMAGES:
                        found[known.image] = known
        yield from found.values()

    def append(self, images: Iterable[KnownImage]) -> bool:
        """Add images. Whether the file is over its limit now, so that it should be replaced."""
        if self._path is None:
            return False
        lines = b"".join(image.line() for image in images)
        with suppress(OSError):
            with open(self._path, "ab", opener=_private) as file:
                file.write(lines)
            return self._path.stat().st_size > self._max_bytes
        return False

    def replace(self, images: Iterable[KnownImage]) -> None:
        """Keep these images only, as far as they fit."""
        if self._path is None:
            return
        new = self._path.with_suffix(f".{time.time_ns()}")
        with suppress(OSError):
            try:
                with open(new, "wb", opener=_private) as file:
                    left = self._max_bytes // 2
                    for image in images:
                        line = image.line()
                        left -= len(line)
                        if left < 0:
                            break
                        file.write(line)
                new.replace(self._path)
            finally:
                new.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""The page's files, read once at the start: they are part of the package."""

import gzip
import hashlib
from dataclasses import dataclass, field
from importlib.abc import Traversable
from importlib.resources import files

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
}
_MOST_DEPTH = 4
_SMALL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PageFile:
    """content, and compressed by gzip if that makes it smaller."""

    content: bytes = field(repr=False)
    type: str
    tag: str  # changes with the content
    packed: bytes | None = field(repr=False)


def page_files(folder: Traversable | None = None) -> dict[str, PageFile]:
    """Path below the folder -> its file, of the kinds that browsers need. It takes some tenths of a
    second. folder: the package's own if None; empty if it is not there."""
    found: dict[str, PageFile] = {}
    try:
        _read(folder or files("leadline_controller.map") / "page", "", found, _MOST_DEPTH)
    except OSError:
        return {}
    return found


def _read(folder: Traversable, path: str, found: dict[str, PageFile], depth: int) -> None:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        name = f"{path}{each.name}"
        if each.is_dir() and depth:
            _read(each, f"{name}/", found, depth - 1)
        elif (kind := _TYPES.get(name.rpartition(".")[2])) is not None and each.is_file():
            content = each.read_bytes()
            packed = gzip.compress(content, 6, mtime=0) if len(content) > _SMALL_BYTES else b""
            smaller = bool(packed) and len(packed) < 0.9 * len(content)
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[name] = PageFile(content, kind, tag, packed if smaller else None)

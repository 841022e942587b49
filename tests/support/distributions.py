"""Installed distributions, written by hand: a module and the metadata that an installer leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path,
    distribution: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    summary: str = "Made for a test",
) -> None:
    """Put a distribution, version 1.2, into a folder of sys.path.

    entry_points: group -> name -> "module:object". modules: module -> its source.
    """
    for module, source in (modules or {}).items():
        (folder / f"{module}.py").write_text(source)
    metadata = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir(parents=True)
    metadata.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\nSummary: {summary}\n"
    )
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    metadata.joinpath("entry_points.txt").write_text("\n".join([*lines, ""]))

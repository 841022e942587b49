"""List, export and check recordings of what decisions depended on."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import duration_s
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import (
    Format,
    clean,
    emit,
    output_option,
    progress,
    table,
    track,
)
from leadline_controller.framework.ports import NodeChanged, PodChanged, Relisted
from leadline_controller.history.recorded import Began, Changed, Decided, Entry, Missed
from leadline_controller.history.recording_export import File, export, file_of
from leadline_controller.history.recording_files import (
    Damage,
    RecordingError,
    read_recording,
    recordings,
)
from leadline_controller.telemetry.accepted import Born, Reported

_FOLDER = Path("/var/lib/leadline-controller/recordings")
_MIB = 2**20
_COLUMNS = ("MiB", "ENTRIES")
_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=_FOLDER,
    show_default=True,
    envvar="LEADLINE_RECORDING_FOLDER",
    show_envvar=True,
    help="Where the controller of this machine records: recording.folder of its settings.",
)


@click.group(no_args_is_help=False, epilog="Example: leadline recording list")
def recording() -> None:
    """List, export and check recordings: files of what decisions depended on, which the controller
    keeps with recording.enabled = true in its settings."""


@recording.command("list", epilog="Example: leadline recording list --sort-by -mib")
@listing({"file": "file", "from": "from_unix_s", "mib": "mib", "entries": "entries"})
@_folder
def list_(folder: Path) -> Listed[File]:
    """List the files of this machine's recording, the oldest first. What cannot be read is
    damaged; check says more."""
    files = _files(folder)
    return Listed(
        "recording",
        files,
        key=lambda each: each.path.name,
        document=_document,
        whole=lambda documents: {"folder": str(folder), "files": documents},
        tables=lambda shown, _: _tables(folder, shown),
    )


@recording.command("export", epilog="Example: leadline recording export --since 24h day.recording")
@click.argument("to", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    default="24h",
    show_default=True,
    callback=duration_s,
    help="How much of it, such as 24h or 7d, up to now.",
)
@_folder
def export_(to: Path, since_s: float, folder: Path) -> None:
    """Write a part of this machine's recording as one file that can be read by itself: it begins
    with what was known then. Names are in it; environments, arguments, commands and secrets are
    not."""
    files = _files(folder)
    try:
        with progress("exporting") as report:
            entries, damage = export(files, time.time() - since_s, to, report)
    except (RecordingError, OSError) as error:
        raise Failed(_said(error)) from None
    said = f"{to}: {entries} entries, {to.stat().st_size / _MIB:.1f} MiB"
    click.echo(f"{said}; {_missing(damage)}" if damage.is_any else said)


@dataclass(slots=True)
class _Found:
    """What a recording holds."""

    entries: int = 0
    began: list[Began] = field(default_factory=list)
    span_s: float = 0.0
    boards: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    decisions: int = 0
    missed: int = 0
    is_whole: bool = True  # it begins with Began
    _since_s: float | None = None

    def add(self, entry: Entry) -> None:
        """Count an entry."""
        self.is_whole &= self.entries > 0 or isinstance(entry.what, Began)
        self.entries += 1
        match entry.what:
            case Began() as began:
                self.began.append(began)
                self._since_s = entry.at_s
            case Changed(Relisted(nodes=nodes, pods=pods)):
                self.boards.update(each.name for each in nodes)
                self.pods.update(each.uid for each in pods)
            case Changed(NodeChanged(node)):
                self.boards.add(node.name)
            case Changed(PodChanged(pod)):
                self.pods.add(pod.uid)
            case Born(agent):
                self.boards.add(agent.node)
            case Reported(node):
                self.boards.add(node)
            case Decided():
                self.decisions += 1
            case Missed(count):
                self.missed += count
            case _:
                pass
        if self._since_s is not None:
            self.span_s += entry.at_s - self._since_s
            self._since_s = entry.at_s


@recording.command(epilog="Example: leadline recording check docs/recordings/home.recording")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@output_option
@click.pass_context
def check(ctx: click.Context, path: Path, output: Format) -> None:
    """Read a recording, a file or a folder of them, and say what it holds. Exit code 1 when a part
    of it is damaged."""
    found, damage = _Found(), Damage()
    try:
        files = recordings(path) if path.is_dir() else [path]
        total = sum(file_of(each).entries for each in files)
        with progress("reading") as report:
            for entry in read_recording(path, damage):
                found.add(entry)
                if found.entries % 1024 == 0:
                    report(found.entries / max(total, 1))
    except (RecordingError, OSError) as error:
        raise BadInput(_said(error)) from None
    whole = {
        "path": str(path),
        "entries": found.entries,
        "began_unix_s": found.began[0].unix_s if found.began else None,
        "span_s": round(found.span_s, 3),
        "runs": len(found.began),
        "versions": sorted({each.version for each in found.began}),
        "strategies": sorted({each.strategy for each in found.began}),
        "boards": len(found.boards),
        "pods": len(found.pods),
        "decisions": found.decisions,
        "missed": found.missed,
        "damaged_blocks": damage.blocks,
        "torn": damage.is_torn,
    }
    emit(output, lambda: whole, lambda _: _shown(path, found, damage))
    if damage.is_any or not found.is_whole:
        ctx.exit(1)


def _files(folder: Path) -> list[File]:
    try:
        return [file_of(each) for each in track(recordings(folder), "reading")]
    except FileNotFoundError:
        raise Failed(
            f"{folder}: nothing is recorded here; recording.enabled = true in the settings of the "
            "controller on this machine turns it on"
        ) from None
    except (RecordingError, OSError) as error:
        raise Failed(_said(error)) from None


def _document(file: File) -> dict[str, Any]:
    return {
        "file": file.path.name,
        "from_unix_s": round(file.first_unix_s, 3),
        "to_unix_s": round(file.last_unix_s, 3),
        "entries": file.entries,
        "mib": round(file.size_bytes / _MIB, 3),
        "version": file.began.version if file.began else None,
        "continues": file.continues,
        "damaged": file.damage.is_any or file.began is None,
    }


def _tables(folder: Path, files: Sequence[File]) -> Iterator[RenderableType]:
    if not files:
        yield Text(f"{folder}: no recordings yet")
        return
    rows = (
        (
            each.path.name,
            human.moment(each.first_unix_s),
            human.moment(each.last_unix_s),
            f"{each.size_bytes / _MIB:.1f}",
            each.entries,
            "damaged" if each.damage.is_any or each.began is None else "",
        )
        for each in files
    )
    yield table(("FILE", "FROM", "TO", *_COLUMNS, ""), rows, numbers=_COLUMNS)


def _shown(path: Path, found: _Found, damage: Damage) -> Iterator[RenderableType]:
    yield Text(
        f"{path}: {human.age(found.span_s)} of {len(found.boards)} boards and {len(found.pods)} "
        f"pods, {found.decisions} decisions, {found.entries} entries"
    )
    for began in found.began:
        when = "an unknown time" if began.unix_s is None else human.moment(began.unix_s)
        yield Text(clean(f"begins at {when}: Leadline {began.version}, {began.strategy}"))
    if not found.is_whole:
        yield Text("its beginning is damaged")
    if damage.is_any:
        yield Text(_missing(damage))
    elif found.missed:
        yield Text(f"entries that the controller left out: {found.missed}")


def _missing(damage: Damage) -> str:
    torn = "its end is torn" if damage.is_torn else ""
    blocks = f"damaged blocks: {damage.blocks}" if damage.blocks else ""
    said = ", ".join(each for each in (blocks, torn) if each)
    return clean(f"{said} ({damage.what}); entries missing: {damage.entries} or more")


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)

"""Settings of the controller are fields of their room's dataclass, declared by `setting`.

The field's name, type and default, and what `setting` adds to them, are the only place that says
what a setting is: leadline_controller.setting_rows reads the file's tables by them, and
`make settings` writes the page's table, the chart's schema and the role's argument specs.
"""

import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

REQUIRED = MISSING
LARGEST = sys.float_info.max
_LONGEST_SECRET = 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field does not say of its setting by itself."""

    # What it means, in Markdown; links are those of docs/configuration.md.
    help: str = ""
    # In the file, where the field has another name; with dots, it is in a section.
    name: str | None = None
    # Of a number.
    least: float = 0
    most: float = LARGEST
    # What each word in the file means, where only these are allowed.
    words: Mapping[str, object] = field(default_factory=dict)
    # Makes the field's value of what the file has, or of each entry of a list. Its ValueError says
    # what is wrong.
    read: Callable[[Any], Any] | None = None
    # How the page shows the default, where the value does not tell it.
    shown: str = ""


def setting(default: Any, help: str, **more: Any) -> Any:  # noqa: A002  # as argparse has it
    """Declare a field as a setting. more: of `Setting`."""
    metadata = {"setting": Setting(help, **more)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def section(made_by: Callable[[], Any] | None = None, *, name: str | None = None) -> Any:
    """Declare a field whose type is a dataclass as a section of the file, made by `made_by` where
    the file does not have it; None: then there is none. name: as a setting's; "" if its settings
    are those of the section around it."""
    metadata = {"setting": Setting(name=name)}
    if made_by is None:
        return field(default=None, metadata=metadata)
    return field(default_factory=made_by, metadata=metadata)


def readable_file(text: str) -> Path:
    """The path of a file that can be opened now. Raises ValueError."""
    path = Path(text)
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    return path


def secret_line(path: Path) -> str:
    """The one line of a file that nobody else may read. systemd's credentials have a protection of
    their own. Raises ValueError."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.read(_LONGEST_SECRET + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if not (credentials and path.is_relative_to(credentials)) and stat.S_IMODE(mode) & 0o077:
        raise ValueError(f"{path}: others may read it; chmod 600 it")
    text = line.decode("utf-8-sig", errors="surrogateescape").rstrip("\r\n")
    return text if text.isprintable() and len(line) <= _LONGEST_SECRET else ""


def absolute_path(text: str) -> Path:
    """The path of a file that need not be there yet. Raises ValueError."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f"expected an absolute path of a file, got text {text!r}")
    return Path(text)

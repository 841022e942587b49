"""Makes untrusted text safe for the log, a report or a terminal, and reads files of it."""

import os
import stat
from pathlib import Path


def read_file(path: Path, most: int, flags: int = 0) -> bytes:
    """All of a regular file, without waiting for a pipe. flags: of open(2). Raises OSError, and
    ValueError for another kind of file and for one of more than `most` bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("expected a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(fd)
    if len(data) > most:
        raise ValueError(f"expected at most {most} bytes")
    return data


def one_line(text: str, most: int = 200) -> str:
    """`text` as one printable line of at most `most` characters.

    What is not printable (control characters, line ends, lone surrogates) is escaped.
    """
    cut = text[: most + 1]
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in cut
    )
    return shown if len(shown) <= most else shown[: most - 1] + "…"

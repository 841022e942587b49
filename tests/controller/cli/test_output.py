"""Tables fit the terminal, and output for scripts has no colours, bars or NaN."""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import yaml
from leadline_controller.cli.output import clean, emit, show, stream, table, track

EXAMPLE = str(Path(__file__).parents[3] / "docs/examples/dacs-fig2.yaml")
SCORE = [sys.executable, "-m", "leadline_controller.cli", "score", "--snapshot", EXAMPLE]
DATA = {"pod": "ü", "total": 3.6, "unknown": None}


def test_json_and_yaml_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    emit("json", lambda: DATA, lambda _: [])
    assert json.loads(capsys.readouterr().out) == DATA
    emit("yaml", lambda: DATA, lambda _: [])
    assert yaml.safe_load(capsys.readouterr().out) == DATA


@pytest.mark.parametrize(
    ("form", "printed"), [("json", None), ("jsonpath={.pods[*]} {.end}", "1 2 3\n")]
)
def test_what_is_streamed_is_printed_as_if_it_were_whole(
    form: str, printed: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    stream(form, {"pod": "ü"}, "pods", iter([1, 2]), {"end": 3})
    streamed = capsys.readouterr().out
    emit(form, lambda: {"pod": "ü", "pods": [1, 2], "end": 3}, lambda _: [])
    assert capsys.readouterr().out == streamed
    assert printed in (None, streamed)


def test_nan_is_never_printed() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        emit("json", lambda: float("nan"), lambda _: [])


def test_only_the_requested_format_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[bool] = []

    def tables(wide: bool) -> list[str]:
        asked.append(wide)
        return ["x"]

    emit("wide", lambda: 1 / 0, tables)
    emit("table", lambda: 1 / 0, tables)
    assert asked == [True, False]
    assert capsys.readouterr().out == "x\nx\n"


def test_a_table_in_a_file_is_plain_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    long = "why " * 100
    show(table(("POD", "WHY"), [("a", long), ("b", None)]))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["POD  WHY", f"a    {long.strip()}", "b    unknown"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "unknown"),
        (3, "3"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("[bold]no markup[/bold]", "[bold]no markup[/bold]"),
        ("ümlaut", "ümlaut"),
    ],
)
def test_cells_are_safe_on_a_terminal(
    cell: object, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clean(cell) == shown
    show(table(("C",), [(cell,)]))
    assert capsys.readouterr().out == f"C\n{shown}\n"


def test_there_is_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track([1, 2, 3], "counting")) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_yields_every_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(track([1, 2, 3], "counting")) == [1, 2, 3]


def test_a_long_wait_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("leadline_controller.cli.output._BAR_AFTER_S", 0.0)
    assert list(track([1, 2], "counting")) == [1, 2]
    assert "counting" in terminal.getvalue()


def on_a_terminal(columns: int, **environment: str) -> str:
    """The output of `leadline score` on a terminal of that width."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        with subprocess.Popen(
            SCORE,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env={**kept, "TERM": "xterm", **environment},
        ) as process:
            os.close(theirs)
            output = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                output += piece
            assert process.wait(timeout=30) == 0
    finally:
        os.close(ours)
    return output.decode()


def test_a_terminal_gets_colour_unless_no_color_is_set() -> None:
    assert "\x1b[1m" in on_a_terminal(100)
    # NO_COLOR forbids colours; bold is none.
    assert "\x1b[3" not in on_a_terminal(100, NO_COLOR="1")


@pytest.mark.parametrize("columns", [60, 100])
def test_a_table_fits_the_terminal(columns: int) -> None:
    lines = on_a_terminal(columns, NO_COLOR="1").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in lines.splitlines()) <= columns
    assert "default/p" in lines

"""A file for the textfile collector of node_exporter, in Prometheus' text format: what the agent
knows and node_exporter does not. docs/metrics.md has the names."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leadline_wire.v1 import telemetry_pb2 as pb

MODE = 0o644  # node_exporter runs as another user


@dataclass(frozen=True, slots=True)
class Status:
    """The agent beside its report."""

    node: str
    version: str
    interval_s: float
    is_connected: bool
    dropped_messages: int
    certificate_ends_s: float | None = None  # seconds since 1970, None without TLS


def text_of(report: pb.Report, status: Status, now_s: float) -> str:
    """The file's text. now_s: the wall clock. What is unknown has no line."""
    lines = []
    for name, kind, help_text, samples in _metrics(report, status, now_s):
        values = [f"leadline_agent_{name}{labels} {value!r}\n" for labels, value in samples]
        if values:
            lines += [f"# HELP leadline_agent_{name} {help_text}\n"]
            lines += [f"# TYPE leadline_agent_{name} {kind}\n", *values]
    return "".join(lines)


def write(path: Path, text: str) -> None:
    """Replace the file at once, so that nobody reads half of it. Raises OSError."""
    new = path.with_name(f"{path.name}.new")  # node_exporter reads *.prom only
    with suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, MODE)  # the unit's umask takes the others' rights away
        file.write(text)
    new.replace(path)


def _metrics(
    report: pb.Report, status: Status, now_s: float
) -> Iterator[tuple[str, str, str, Iterable[tuple[str, float]]]]:
    """(name, type, help, (labels, value) of each sample)."""
    labels = _labels(node=status.node, version=status.version)
    yield "info", "gauge", "Always 1.", [(labels, 1)]
    yield "time_seconds", "gauge", "The board's clock when this was written.", [("", now_s)]
    yield "interval_seconds", "gauge", "Between two reports.", [("", status.interval_s)]
    is_connected = int(status.is_connected)
    yield "broker_connected", "gauge", "Whether the broker is connected.", [("", is_connected)]
    help_text = "Messages that the full buffer threw away."
    yield "dropped_messages_total", "counter", help_text, [("", status.dropped_messages)]
    for flag, help_text in (
        ("throttled", "Whether heat or voltage slow the processor down."),
        ("under_voltage", "Whether the supply voltage is too low."),
    ):
        is_known = report.cpu.HasField(flag)
        yield flag, "gauge", help_text, [("", int(getattr(report.cpu, flag)))] if is_known else []
    ran = [run for run in report.collectors if run.outcome != pb.CollectorRun.ABSENT]
    success = [(_labels(collector=r.name), int(r.outcome == pb.CollectorRun.OK)) for r in ran]
    yield "collector_success", "gauge", "Whether it read its values.", success
    took = [(_labels(collector=run.name), run.duration_us / 1e6) for run in ran]
    yield "collector_duration_seconds", "gauge", "How long it took.", took
    ends_s = status.certificate_ends_s
    help_text = "When the board's certificate ends."
    ends = [] if ends_s is None else [("", ends_s)]
    yield "certificate_expiry_timestamp_seconds", "gauge", help_text, ends


def _labels(**values: str) -> str:
    escaped = (
        (name, text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for name, text in values.items()
    )
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped) + "}"

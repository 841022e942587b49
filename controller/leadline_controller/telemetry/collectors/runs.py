"""How the agent's collectors and probes fared."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes, printable

_NO_COLLECTORS = frozenset(("origin", "timing", "collectors"))
_MOST_FAILED, _MOST_NAME, _MOST_WHY = 16, 40, 200  # what agents may have us keep and show


@decodes()
def decode_runs(report: pb.Report, reading: BoardReading) -> None:
    """Those that failed, with the reason, are notes. Of a collector that was well comes its field
    alone."""
    for field, _ in report.ListFields():
        if field.name not in _NO_COLLECTORS:
            reading.collectors[field.name] = True
    failed = [run for run in report.collectors if run.outcome == pb.CollectorRun.FAILED]
    for run in failed[:_MOST_FAILED]:
        name, why = printable(run.name, _MOST_NAME), printable(run.why, _MOST_WHY)
        reading.collectors[name] = False
        reading.failed[name] = why
        reading.notes.append(f"{name} failed: {why}" if why else f"{name} failed")

"""Decodes what the agent's collectors report, and names the columns of the state that it fills.

How long a value is valid and who may report it is decided elsewhere.
"""

from dataclasses import dataclass, field

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.framework.view import METRICS

# What strategies use, and what people only look at.
COLUMNS = (*METRICS, "cpu_celsius")


@dataclass(slots=True)
class BoardReading:
    """One report. values: by column, without the unknown ones. notes: states of the board that a
    person should know, as "throttled"."""

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def decode(report: pb.Report) -> BoardReading:
    """A report whose ranges the codec has checked."""
    reading = BoardReading()
    values, notes = reading.values, reading.notes
    cpu, memory, disk = report.cpu, report.memory, report.disk
    if cpu.HasField("busy_percent"):  # of all cores
        values["cpu_percent"] = cpu.busy_percent
    if cpu.under_voltage:  # it slows a board down, as heat does
        notes.append("under-voltage")
    if cpu.throttled:
        notes.append("throttled")
    if memory.HasField("available_bytes") and memory.total_bytes:
        # The share that programs cannot get.
        values["memory_percent"] = 100.0 * (1 - memory.available_bytes / memory.total_bytes)
    if disk.HasField("read_bytes_per_s") and disk.HasField("written_bytes_per_s"):
        # Together, as NetSched's "disk input and output".
        values["disk_bytes_per_s"] = disk.read_bytes_per_s + disk.written_bytes_per_s
    if report.network:
        _decode_network(report, values)
    if report.temperature.HasField("cpu_celsius"):
        values["cpu_celsius"] = report.temperature.cpu_celsius
    return reading


def _decode_network(report: pb.Report, values: dict[str, float]) -> None:
    """Packets of all interfaces; unknown when one of them is unknown."""
    sent = received = 0.0
    knows_sent = knows_received = True
    for interface in report.network:
        knows_sent = knows_sent and interface.HasField("packets_sent_per_s")
        knows_received = knows_received and interface.HasField("packets_received_per_s")
        sent += interface.packets_sent_per_s
        received += interface.packets_received_per_s
    if knows_sent:
        values["packets_sent_per_s"] = sent
    if knows_received:
        values["packets_received_per_s"] = received

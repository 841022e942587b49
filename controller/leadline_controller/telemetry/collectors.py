"""Decodes what each of the agent's collectors reports, and names the columns that it fills.

How long a value is valid and who may report it is decided elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from leadline_wire.v1 import telemetry_pb2 as pb


@dataclass(slots=True)
class BoardReading:
    """One report. A column that `values` leaves out is unknown.

    notes: states of the board that a person should know, as "throttled".
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


Decoder = Callable[[pb.Report, BoardReading], None]
DECODERS: dict[Decoder, tuple[str, ...]] = {}


def decodes(*names: str) -> Callable[[Decoder], Decoder]:
    """Decorator: register a decoder, and the columns of the state that it fills."""

    def add(decoder: Decoder) -> Decoder:
        DECODERS[decoder] = names
        return decoder

    return add


def columns() -> tuple[str, ...]:
    """Every column that a report can fill."""
    return tuple(name for names in DECODERS.values() for name in names)


def decode(report: pb.Report) -> BoardReading:
    """A report whose ranges the codec has checked."""
    reading = BoardReading()
    for decoder in DECODERS:
        decoder(report, reading)
    return reading


@decodes("cpu_percent")
def _cpu(report: pb.Report, reading: BoardReading) -> None:
    """Busy share of all cores, per cent. Heat and low voltage slow a board down: notes."""
    cpu = report.cpu
    if cpu.HasField("busy_percent"):
        reading.values["cpu_percent"] = cpu.busy_percent
    if cpu.under_voltage:
        reading.notes.append("under-voltage")
    if cpu.throttled:
        reading.notes.append("throttled")


@decodes("disk_bytes_per_s")
def _disk(report: pb.Report, reading: BoardReading) -> None:
    """Read and written together, as NetSched's "disk input and output"."""
    disk = report.disk
    if disk.HasField("read_bytes_per_s") and disk.HasField("written_bytes_per_s"):
        total = disk.read_bytes_per_s + disk.written_bytes_per_s
        reading.values["disk_bytes_per_s"] = total


@decodes("memory_percent")
def _memory(report: pb.Report, reading: BoardReading) -> None:
    """The share that programs cannot get, per cent."""
    memory = report.memory
    if memory.HasField("available_bytes") and memory.total_bytes:
        share = memory.available_bytes / memory.total_bytes
        reading.values["memory_percent"] = 100.0 * (1 - share)


@decodes("packets_sent_per_s", "packets_received_per_s")
def _network(report: pb.Report, reading: BoardReading) -> None:
    """Packets per second of all interfaces; unknown when one of them is unknown."""
    interfaces = report.network
    sent = received = 0.0
    knows_sent = knows_received = bool(interfaces)
    for interface in interfaces:
        knows_sent = knows_sent and interface.HasField("packets_sent_per_s")
        knows_received = knows_received and interface.HasField("packets_received_per_s")
        sent += interface.packets_sent_per_s
        received += interface.packets_received_per_s
    if knows_sent:
        reading.values["packets_sent_per_s"] = sent
    if knows_received:
        reading.values["packets_received_per_s"] = received


@decodes("cpu_celsius")
def _temperature(report: pb.Report, reading: BoardReading) -> None:
    """Of the processor, degrees Celsius."""
    if report.temperature.HasField("cpu_celsius"):
        reading.values["cpu_celsius"] = report.temperature.cpu_celsius

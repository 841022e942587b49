"""The registry of the decoders, each of which reads its part of a report."""

from collections.abc import Callable
from dataclasses import dataclass, field

from leadline_wire.v1 import telemetry_pb2 as pb


@dataclass(slots=True)
class BoardReading:
    """One report. A column that `values` leaves out is unknown.

    notes: states of the board that a person should know, as "throttled". flags: such states that
    the board can tell, and whether each holds. collectors: those of the agent that said something,
    and whether each was well. failed: the others, and probes, with the reason.
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    flags: dict[str, bool] = field(default_factory=dict)
    collectors: dict[str, bool] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


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

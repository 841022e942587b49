"""The registry of the decoders, each of which reads its part of a report."""

from collections.abc import Callable
from dataclasses import dataclass, field

from leadline_wire.v1 import telemetry_pb2 as pb


@dataclass(slots=True)
class BoardReading:
    """One report. A column that `values` leaves out is unknown."""

    values: dict[str, float] = field(default_factory=dict)
    # States of the board that a person should know, as "throttled".
    notes: list[str] = field(default_factory=list)
    # Such states that the board can tell, and whether each holds.
    flags: dict[str, bool] = field(default_factory=dict)
    # Those of the agent that said something, and whether each was well.
    collectors: dict[str, bool] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # the others, and probes: why


Decoder = Callable[[pb.Report, BoardReading], None]
DECODERS: dict[Decoder, tuple[str, ...]] = {}


def decodes(*names: str) -> Callable[[Decoder], Decoder]:
    """Decorator: register a decoder, and the columns of the state that it fills."""

    def add(decoder: Decoder) -> Decoder:
        DECODERS[decoder] = names
        return decoder

    return add


def printable(text: str, most: int = 120) -> str:
    """The text, short and without control characters."""
    return "".join(each for each in text[:most] if each.isprintable())


def columns() -> tuple[str, ...]:
    """Every column that a report can fill."""
    return tuple(name for names in DECODERS.values() for name in names)


def decode(report: pb.Report) -> BoardReading:
    """A report whose ranges the codec has checked."""
    reading = BoardReading()
    for decoder in DECODERS:
        decoder(report, reading)
    return reading

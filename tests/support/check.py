"""What a long run or an attack finds, beside what is required."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One statement that is put to the test."""

    attack: str  # what was done, with its counts
    expected: str  # what must hold
    found: str  # what was measured
    held: bool

    def __str__(self) -> str:
        mark = "held" if self.held else "BROKEN"
        return f"{mark:<6}  {self.attack}: {self.found} (expected: {self.expected})"

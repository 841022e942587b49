"""The finding of an attack, beside the required one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One statement that an attack puts to the test.

    attack: what was done, with its counts. expected: what must hold. found: what was measured.
    """

    attack: str
    expected: str
    found: str
    held: bool

    def __str__(self) -> str:
        mark = "held" if self.held else "BROKEN"
        return f"{mark:<6}  {self.attack}: {self.found} (expected: {self.expected})"

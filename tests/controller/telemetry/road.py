"""Seven boards on a road, whose round trips are known but for some pairs."""

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

# Places of seven boards on a road, ms from its beginning.
PLACES_MS = (0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 30.0)


NAMES = tuple(f"n{i}" for i in range(len(PLACES_MS)))


UNMEASURED = ((0, 5), (1, 4), (2, 6))


ACCESS_MS = 0.5


def true_ms(a: int, b: int) -> float:
    return abs(PLACES_MS[a] - PLACES_MS[b]) + 2 * ACCESS_MS


def road(now_s: float = 100.0) -> TelemetryBuilder:
    """All pairs are measured, but UNMEASURED."""
    builder = TelemetryBuilder(*NAMES)
    for a in range(len(NAMES)):
        for b in range(a):
            if (b, a) not in UNMEASURED:
                builder.rtt(NAMES[a], NAMES[b], true_ms(a, b), now_s)
    return builder

"""Counters into rates: the one place that knows about resets and wraps."""


def per_second(before: int, after: int, elapsed_ms: int) -> float | None:
    """The rate of a counter, or None (unknown) after a reset and where no time has passed."""
    if elapsed_ms <= 0 or after < before:
        return None
    return (after - before) * 1000 / elapsed_ms

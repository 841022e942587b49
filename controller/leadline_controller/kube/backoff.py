"""How long to wait before trying again, so that neither side is worn out by a fault."""

from random import SystemRandom

_RANDOM = SystemRandom()


class Backoff:
    """Waits that double from `first_s` to `longest_s`, each spread over half to all of its
    length, so that controllers that lost the server together don't return together."""

    def __init__(self, first_s: float = 0.2, longest_s: float = 10.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._ceiling_s = first_s

    def next_s(self) -> float:
        """Seconds to wait before the next attempt."""
        ceiling_s = self._ceiling_s
        self._ceiling_s = min(2 * ceiling_s, self._longest_s)
        return ceiling_s * _RANDOM.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It works again."""
        self._ceiling_s = self._first_s

"""Nodes whose round trips to two peers have just become far longer: a sign of a queue on their
link. Times are seconds on the controller's monotonic clock."""

from math import inf

_WITHIN_S = 30.0


class Jumps:
    """When each node's round trips last jumped."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}  # the last peer, and when
        self._jumped_s: dict[str, float] = {}

    def note(self, pair: tuple[str, str], at_s: float) -> None:
        """The round trip of this pair became far longer."""
        for node, peer in (pair, pair[::-1]):
            other, other_s = self._last.get(node, (peer, at_s))
            self._last[node] = (peer, at_s)
            if other != peer and at_s - other_s <= _WITHIN_S:
                self._jumped_s[node] = at_s

    def last_s(self, node: str) -> float:
        """When the node's round trips to two peers last became far longer at about the same time,
        -inf if never: its link may be full, or slower than it was."""
        return self._jumped_s.get(node, -inf)

    def after(self, since_s: float) -> set[str]:
        """The nodes of which that was later than `since_s`."""
        return {node for node, at_s in self._jumped_s.items() if at_s > since_s}

    def drop_old(self, before_s: float) -> None:
        """Forget the nodes of which the last was before `before_s`."""
        for node, (_, at_s) in list(self._last.items()):
            if at_s < before_s:
                del self._last[node]
                self._jumped_s.pop(node, None)

"""Data on its way to users: transfers at the same time share the links of their two nodes evenly.
Times are s on the clock of the replay."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

_DONE_MBIT = 1e-3  # a clock of large numbers is no finer


@dataclass(slots=True)
class _Transfer:
    ends: tuple[str, ...]
    left_mbit: float
    begun_s: float


class Transfers:
    """All that are on their way."""

    def __init__(self) -> None:
        self._going: dict[str, _Transfer] = {}  # by the pod's uid
        self._mbps: dict[str, float] = {}  # what all transfers of a node have together
        self._now_s = -inf

    def begin(self, uid: str, mb: float, mbps: Mapping[str, float], now_s: float) -> None:
        """A pod's data leave. mbps: what each of the two nodes has left for transfers, above 0."""
        self._pass(now_s)
        self._mbps.update(mbps)
        self._going[uid] = _Transfer(tuple(mbps), mb * 8, now_s)

    def drop(self, uid: str, now_s: float) -> None:
        """A pod ends, whether its data have arrived or not."""
        self._pass(now_s)
        self._going.pop(uid, None)

    def next_s(self) -> float:
        """When the next one is done if none begins or ends before; inf without one."""
        rates = self._rates()
        took_s = (each.left_mbit / rates[uid] for uid, each in self._going.items())
        return self._now_s + min(took_s) if self._going else inf

    def done(self, now_s: float) -> dict[str, float]:
        """Those that are done by now, and how long each took, s."""
        self._pass(now_s)
        done = {
            uid: now_s - each.begun_s
            for uid, each in self._going.items()
            if each.left_mbit <= _DONE_MBIT
        }
        for uid in done:
            del self._going[uid]
        return done

    def _pass(self, to_s: float) -> None:
        if self._going:
            passed_s, rates = to_s - self._now_s, self._rates()
            for uid, each in self._going.items():
                each.left_mbit -= rates[uid] * passed_s
        self._now_s = to_s

    def _rates(self) -> dict[str, float]:
        counts = Counter(node for each in self._going.values() for node in each.ends)
        return {
            uid: min(self._mbps[node] / counts[node] for node in each.ends)
            for uid, each in self._going.items()
        }

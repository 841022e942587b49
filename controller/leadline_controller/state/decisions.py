"""The decisions of late, so that every placement can be explained.

Bounded in number; the newest decision about a pod is the one that is kept.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from leadline_controller.core.cycle import Decision

BOUND = "bound"
PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Record:
    """A decision, when it was made (seconds, monotonic), under which options, and what came
    of it: BOUND, PENDING, or "failed: " and why. `number` grows with every change."""

    decision: Decision
    at_s: float
    outcome: str
    options: Mapping[str, float]
    number: int


class DecisionLog:
    """The last `limit` pods' decisions."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._number = 0

    def add(
        self, decision: Decision, at_s: float, outcome: str, options: Mapping[str, float]
    ) -> None:
        """Remember a decision in place of any earlier one about the pod."""
        self._records.pop(decision.pod.key, None)
        self._put(Record(decision, at_s, outcome, options, 0))
        while len(self._records) > self._limit:
            self._records.popitem(last=False)

    def settle(self, pod: str, outcome: str) -> None:
        """Note what came of the decision about the pod with this key."""
        record = self._records.get(pod)
        if record is not None and record.outcome != outcome:
            self._put(replace(record, outcome=outcome))

    def get(self, pod: str) -> Record | None:
        """The last decision about the pod with this key."""
        return self._records.get(pod)

    def all(self) -> Iterator[Record]:
        """From the oldest decision to the newest."""
        return iter(tuple(self._records.values()))

    def _put(self, record: Record) -> None:
        self._number += 1
        self._records[record.decision.pod.key] = replace(record, number=self._number)

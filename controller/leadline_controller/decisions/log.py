"""The decisions of late, so that every placement can be explained.

Bounded in number; the newest decision about a pod is the one that is kept. What lasts
longer is the history's, which is told of everything that is noted here.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from leadline_controller.decisions.explanation import Explanation, explanation
from leadline_controller.framework.cycle import Better, Decision
from leadline_controller.framework.options import OptionValue
from leadline_controller.parsing.fields import valid_text

BOUND = "bound"
PENDING = "pending"
GONE = "gone"
_MOST_OPEN = 4096


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision, when it was made (seconds, monotonic), under which options, and what came
    of it: BOUND, PENDING, GONE (the pod was deleted first), or "failed: " and why. `number`
    grows with every change."""

    decision: Decision
    at_s: float
    outcome: str
    options: Mapping[str, OptionValue]
    number: int


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision as others are told of it.

    pod: namespace/name. age_s: seconds since it was made, and first_age_s since it was first
    made, where it was made `times` times in a row with the same result. unix_s: when it was
    made, by the best that is known of the wall clock, None where that was never set.
    """

    pod: str
    uid: str
    node: str | None
    why: str
    strategy: str
    better: Better
    outcome: str
    options: Mapping[str, OptionValue]
    age_s: float
    first_age_s: float
    times: int = 1
    unix_s: float | None = None
    explanation: Explanation = field(default_factory=Explanation)

    @classmethod
    def of(cls, record: DecisionRecord, now_s: float) -> "DecisionView":
        """A record of this run, in full as far as it still is."""
        full = explanation(record.decision, record.at_s).rounded()
        return replace(cls.brief(record, now_s), explanation=full)

    @classmethod
    def brief(cls, record: DecisionRecord, now_s: float) -> "DecisionView":
        """A record of this run without its account. Its texts are valid Unicode: some of them
        quote errors of other programs."""
        decision, age_s = record.decision, max(0.0, now_s - record.at_s)
        return cls(
            pod=valid_text(decision.pod.key),
            uid=valid_text(decision.pod.uid),
            node=decision.node,
            why=valid_text(decision.why),
            strategy=decision.strategy,
            better=decision.better,
            outcome=valid_text(record.outcome),
            options=record.options,
            age_s=age_s,
            first_age_s=age_s,
        )


class DecisionKeeper(Protocol):
    """Who keeps decisions for longer. Called by the scheduler, so neither may wait."""

    def decided(self, record: DecisionRecord) -> None:
        """A decision was made."""
        ...

    def settled(self, record: DecisionRecord) -> None:
        """The outcome of the last decision about the record's pod is another now."""
        ...


class History(Protocol):
    """The decisions that were kept, those of earlier runs as well."""

    async def about(self, pod: str) -> list[DecisionView]:
        """The last decisions about the pod with this key, the newest first."""
        ...

    async def since(self, age_s: float | None) -> tuple[list[DecisionView], bool]:
        """The last decision about each pod, oldest first, without its account: those younger
        than `age_s`, None for all. True when older ones were left out, being too many."""
        ...


class DecisionLog:
    """The last `limit` pods' decisions; those that are not among the last `detailed` have lost
    their basis, which weighs megabytes in a large cluster. One whose outcome is still to come is
    kept for longer, else the history would never hear of it."""

    def __init__(
        self, limit: int = 256, detailed: int = 32, keeper: DecisionKeeper | None = None
    ) -> None:
        self._limit = limit
        self._detailed = detailed
        self._keeper = keeper
        self._records: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._open: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._in_detail: OrderedDict[str, None] = OrderedDict()
        self._number = 0

    def restore(self, records: Iterable[DecisionRecord]) -> None:
        """Take over what an earlier run decided, oldest first."""
        for record in records:
            self._put(replace(record, number=self._next()))
        self._make_room()

    def add(
        self, decision: Decision, at_s: float, outcome: str, options: Mapping[str, OptionValue]
    ) -> None:
        """Remember a decision in place of any earlier one about the pod."""
        for known in (self._records, self._open):
            known.pop(decision.pod.key, None)
        record = self._put(DecisionRecord(decision, at_s, outcome, options, self._next()))
        self._make_room()
        self._lighten(decision.pod.key)
        if self._keeper is not None:
            self._keeper.decided(record)

    def settle(self, pod: str, outcome: str) -> None:
        """Note what came of the decision about the pod with this key."""
        record = self.get(pod)
        if record is not None and record.outcome != outcome:
            at_s, options = record.at_s, record.options
            record = self._put(
                DecisionRecord(record.decision, at_s, outcome, options, self._next())
            )
            if self._open.pop(pod, None) is not None:
                self._records.move_to_end(pod, last=False)  # the first that makes room again
            if self._keeper is not None:
                self._keeper.settled(record)

    def get(self, pod: str) -> DecisionRecord | None:
        """The last decision about the pod with this key."""
        return self._records.get(pod) or self._open.get(pod)

    def all(self) -> Iterator[DecisionRecord]:
        """From the oldest decision to the newest."""
        return iter(tuple(chain(self._open.values(), self._records.values())))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _put(self, record: DecisionRecord) -> DecisionRecord:
        self._records[record.decision.pod.key] = record
        return record

    def _make_room(self) -> None:
        while len(self._records) > self._limit:
            key, record = self._records.popitem(last=False)
            self._in_detail.pop(key, None)
            if record.outcome == PENDING:
                self._open[key] = replace(record, decision=record.decision.without_basis())
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)

    def _lighten(self, newest: str) -> None:
        self._in_detail.pop(newest, None)
        self._in_detail[newest] = None
        if len(self._in_detail) > self._detailed:
            key, _ = self._in_detail.popitem(last=False)
            record = self._records[key]
            self._records[key] = replace(record, decision=record.decision.without_basis())

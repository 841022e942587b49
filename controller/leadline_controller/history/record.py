"""One decision about one pod: the record that the log, the database and the API share."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from leadline_controller.framework.cycle import Better, Decision
from leadline_controller.framework.options import OptionValue
from leadline_controller.history.explanation import Explanation, decode, encode, explanation
from leadline_controller.history.times import Moment
from leadline_controller.parsing.fields import replace_surrogates

# Pods bring texts of any length; memory and the database are bounded.
_MAX_TEXT = 2048
MAX_TIMES = 2**32 - 1
_RESULT = attrgetter("pod", "uid", "node", "why", "strategy", "better", "options")


class DecisionRecord(NamedTuple):
    """A decision, the rule that made it, and its outcome so far."""

    pod: str  # namespace/name
    uid: str
    node: str | None  # None when the pod fits nowhere
    why: str
    strategy: str
    better: Better
    options: Mapping[str, OptionValue]
    outcome: str  # log.BOUND, PENDING, GONE, DELETED, or "failed: " and the reason
    # When it was made, `times` times in a row with the same result.
    first: Moment
    last: Moment
    times: int = 1
    number: int = 0  # grows with every change in the log; 0 from the database
    explanation: bytes = b""  # encoded, empty where there is none
    decision: Decision | None = None  # what the cycle returned, while it is in memory
    decided_s: float = 0.0  # on the clock of the decision's view

    @classmethod
    def of(
        cls,
        decision: Decision,
        decided_s: float,
        outcome: str,
        options: Mapping[str, OptionValue],
        now: Moment,
        number: int = 0,
    ) -> "DecisionRecord":
        """The record of a decision made just now, with bounded texts of valid Unicode."""
        return cls(
            pod=bounded_text(decision.pod.key),
            uid=bounded_text(decision.pod.uid),
            node=decision.node,
            why=bounded_text(decision.why),
            strategy=decision.strategy,
            better=decision.better,
            options=options,
            outcome=bounded_text(outcome),
            first=now,
            last=now,
            number=number,
            decision=decision,
            decided_s=decided_s,
        )

    def explain(self) -> Explanation:
        """The scores and refusals: all of them while the decision's view is in memory, else what
        the database has; empty where that is missing or unreadable."""
        if self.decision is not None and self.decision.has_basis:
            return explanation(self.decision, self.decided_s)
        try:
            return decode(self.explanation) if self.explanation else Explanation()
        except ValueError:
            return Explanation()

    @property
    def has_explanation(self) -> bool:
        """Whether the scores, refusals and measurements are in memory."""
        return bool(self.explanation) or (self.decision is not None and self.decision.has_basis)

    def measured(self, node: str) -> dict[str, float]:
        """What was measured of this node, of what the strategy needs, NaN where unknown. Empty if
        that is not known any more."""
        explained = self.explain()
        if node not in explained.nodes:
            return {}
        at = explained.nodes.index(node)
        return {name: float(column[at]) for name, column in explained.measured.items()}

    def encoded(self, max_nodes: int) -> "DecisionRecord":
        """The record as the database stores it, with an explanation of `max_nodes` nodes."""
        if self.decision is None:
            return self
        explained = explanation(self.decision, self.decided_s, max_nodes)
        return self._replace(explanation=encode(explained), decision=None)

    def joined(self, before: "DecisionRecord") -> "DecisionRecord | None":
        """One record of both, if this is the last decision about the pod once more and that one
        was not carried out."""
        if _RESULT(self) != _RESULT(before) or before.outcome == "bound":
            return None
        times = min(before.times + self.times, MAX_TIMES)
        return self._replace(times=times, first=before.first)


_Text = Annotated[str, Meta(max_length=2**16)]


class Stored(msgspec.Struct, array_like=True, frozen=True):
    """What the database keeps of a record as JSON, an array in this order. A later version adds
    fields at the end, with defaults."""

    uid: _Text
    node: _Text | None
    why: _Text
    strategy: _Text
    better: Better
    options: dict[str, OptionValue]
    outcome: _Text
    times: Annotated[int, Meta(ge=1, le=MAX_TIMES)]

    @classmethod
    def of(cls, record: DecisionRecord) -> "Stored":
        """That of the record."""
        fields = (getattr(record, name) for name in cls.__struct_fields__)
        return cls(*fields)

    def record(
        self, pod: str, first: Moment, last: Moment, explanation: bytes = b""
    ) -> DecisionRecord:
        """The record with the rest of its row."""
        fields = msgspec.structs.asdict(self)
        return DecisionRecord(pod, first=first, last=last, explanation=explanation, **fields)


class OutcomeChange(NamedTuple):
    """The outcome of the last decision about a pod is now another."""

    pod: str
    uid: str
    outcome: str


Change = DecisionRecord | OutcomeChange


def ages_s(newest_first: Iterable[DecisionRecord], now: Moment) -> Iterable[float]:
    """How long ago each decision was made, seconds. A decision is never younger than one made
    after it, even if a wall clock was wrong."""
    return accumulate((record.last.age_s(now) for record in newest_first), max)


def bounded_text(text: str) -> str:
    """The text in valid Unicode, at most 2,048 characters of it."""
    text = replace_surrogates(text)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"

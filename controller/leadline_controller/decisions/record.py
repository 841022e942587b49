"""One decision about one pod: the record that the log, the database and the API share."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from leadline_controller.decisions.explanation import Explanation, decode, encode, explanation
from leadline_controller.decisions.times import Moment
from leadline_controller.framework.cycle import Better, Decision
from leadline_controller.framework.options import OptionValue
from leadline_controller.parsing.fields import replace_surrogates

# Pods bring texts of any length; memory and the database are bounded.
_MAX_TEXT = 2048


class DecisionRecord(NamedTuple):
    """A decision, the rule that made it, and its outcome so far.

    pod: namespace/name. node: None when the pod fits nowhere. outcome: log.BOUND, log.PENDING,
    log.GONE, log.DELETED, or "failed: " and the reason. first, last: when it was made, `times`
    times in a row with the same result. number: grows with every change in the log; 0 from the
    database. explanation: encoded, empty where there is none. decision: what the cycle returned,
    while it is in memory. decided_s: seconds on the clock of the decision's view.
    """

    pod: str
    uid: str
    node: str | None
    why: str
    strategy: str
    better: Better
    options: Mapping[str, OptionValue]
    outcome: str
    first: Moment
    last: Moment
    times: int = 1
    number: int = 0
    explanation: bytes = b""
    decision: Decision | None = None
    decided_s: float = 0.0

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
            return explanation(self.decision, self.decided_s).rounded()
        try:
            return decode(self.explanation) if self.explanation else Explanation()
        except ValueError:
            return Explanation()

    def encoded(self, max_nodes: int) -> "DecisionRecord":
        """The record as the database stores it, with an explanation of `max_nodes` nodes."""
        if self.decision is None:
            return self
        explained = explanation(self.decision, self.decided_s, max_nodes)
        return self._replace(explanation=encode(explained), decision=None)


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

"""What is written about a decision, and what comes back."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from leadline_controller.decisions.codec import decode
from leadline_controller.decisions.explanation import Explanation
from leadline_controller.decisions.log import DecisionView
from leadline_controller.decisions.times import Moment, Now
from leadline_controller.framework.cycle import Better
from leadline_controller.framework.options import OptionValue, value_of_text
from leadline_controller.parsing.fields import valid_text

# Texts are bounded by what pods bring along; a database must not be.
_LONGEST = 2048
# What a file may say: beyond that it was never written by us, and would break who is told.
_LONGEST_READ = 2**16
MOST_TIMES = 2**32 - 1
_LONGEST_UP_S = 1e10
_LATEST_UNIX_S = 2e11


class Rule(NamedTuple):
    """What decided; the options as JSON. Many decisions share one."""

    strategy: str
    better: str
    options: str


class Row(NamedTuple):
    """One decision as it is stored. `first` is when it was first made, where it was made
    `times` times in a row. account: encoded."""

    pod: str
    uid: str
    node: str | None
    why: str
    outcome: str
    times: int
    rule: Rule
    first: Moment
    last: Moment
    explanation: bytes

    def repeats(self, before: "Row") -> bool:
        """Whether this is the decision before it once more, to be counted and not kept twice."""
        same = (self.uid, self.node, self.why, self.rule) == (
            before.uid,
            before.node,
            before.why,
            before.rule,
        )
        return same and before.outcome != "bound"

    def told(self, now: Now) -> DecisionView:
        """For those who ask; with an empty account where the stored one can't be read."""
        better: Better = "lower" if self.rule.better == "lower" else "higher"
        return DecisionView(
            pod=self.pod,
            uid=self.uid,
            node=self.node,
            why=self.why,
            strategy=self.rule.strategy,
            better=better,
            outcome=self.outcome,
            options=_options(self.rule.options),
            age_s=self.last.age_s(now),
            first_age_s=self.first.age_s(now),
            times=self.times,
            unix_s=self.last.unix_s(now),
            explanation=_account(self.explanation),
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of the last decision about a pod."""

    pod: str
    uid: str
    outcome: str


def _account(data: bytes) -> Explanation:
    try:
        return decode(data) if data else Explanation()
    except ValueError:
        return Explanation()


def _options(text: str) -> dict[str, OptionValue]:
    try:
        return {
            valid_text(name): value_of_text(valid_text(str(value)))
            for name, value in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def row_of(found: Sequence[Any]) -> Row | None:
    """The decision whose columns a file has, in the order of Row, Rule and Moment; None where
    one of them is not what is written there."""
    pod, uid, node, why, outcome, times = found[:6]
    texts = (pod, uid, why, outcome, *found[6:10], found[12])
    sound = (
        all(isinstance(text, str) and len(text) <= _LONGEST_READ for text in texts)
        and (node is None or (isinstance(node, str) and len(node) <= _LONGEST_READ))
        and isinstance(times, int)
        and 0 < times <= MOST_TIMES
        and _is_between(found[10], _LONGEST_UP_S)
        and _is_between(found[13], _LONGEST_UP_S)
        and (found[11] is None or _is_between(found[11], _LATEST_UNIX_S))
        and (found[14] is None or _is_between(found[14], _LATEST_UNIX_S))
        and isinstance(found[15], bytes)
    )
    if not sound:
        return None
    rule, first, last = Rule(*found[6:9]), Moment(*found[9:12]), Moment(*found[12:15])
    return Row(pod, uid, node, why, outcome, times, rule, first, last, found[15])


def _is_between(value: object, highest: float) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= highest


def rule(strategy: str, better: str, options: Mapping[str, OptionValue]) -> Rule:
    """The rule of a decision, the same text for the same options."""
    return _rule(strategy, better, tuple(sorted(options.items())))


@lru_cache(maxsize=16)
def _rule(strategy: str, better: str, options: tuple[tuple[str, OptionValue], ...]) -> Rule:
    return Rule(strategy, better, json.dumps(dict(options)))


def clipped(text: str) -> str:
    """At most _LONGEST characters, all of them valid Unicode."""
    text = valid_text(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

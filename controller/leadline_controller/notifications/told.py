"""What is told of problems, and when. Pure: what was told, the problems and the time make a message
and what is told with it.

A problem is told when it has lasted for a while, and its end when it has been away for longer, so
one that comes and goes is told once. Those that begin one after another, as when a switch of a
hundred boards loses power, are told together. When the messages of an hour are spent, the rest
waits; what comes and goes meanwhile is counted in the next one.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from leadline_wire.v1 import status_pb2 as pb

from leadline_controller.inspect.problems import is_bad, listed
from leadline_controller.notifications.settings import NotifySettings
from leadline_controller.parsing.fields import Fields

Key = tuple[str, str]  # kind of problem, and one of its subjects
HOUR_S = 3600.0
END_FACTOR = 5
_GATHER_FACTOR = 2  # for how long what is due waits for what soon will be
_MOST_KEYS = 5000
_LONGEST_SUBJECT = 120
_LONGEST_LINE = 600
_LONGEST_TEXT = 3500  # ntfy makes a file of more than 4096 bytes
_LONGEST_TITLE = 120
_LONGEST_NOTE = 700_000
# Told as one: which of the two it is depends on what is noticed first.
_SAME = {"board-silent": "board-offline", "broker-silent": "broker-away"}
_UNTOLD = "notification-lost"  # its message would be the end of it


@dataclass(frozen=True, slots=True)
class Message:
    """What people are told."""

    title: str
    text: str
    severity: Literal["error", "warning", "over"]
    changes: frozenset[Key]  # the problems that it says began or ended


@dataclass(frozen=True, slots=True)
class State:
    """What was told so far. Times are of one clock, seconds."""

    told: frozenset[Key] = frozenset()  # that it began, and not that it ended
    sent_s: tuple[float, ...] = ()  # when the messages of the last hour were
    left_out: int = 0  # changes that came and went while they waited
    # Since when a problem is not as it was told; nothing of the others.
    since_s: Mapping[Key, float] = field(default_factory=dict)

    def sent(self, message: Message, now_s: float) -> "State":
        """After this message has arrived."""
        since_s = {key: at for key, at in self.since_s.items() if key not in message.changes}
        sent_s = (*_of_the_hour(self.sent_s, now_s), now_s)
        return State(self.told ^ message.changes, sent_s, 0, since_s)


def step(
    state: State,
    problems: Iterable[pb.Problem],
    now_s: float,
    settings: NotifySettings,
    name: str,
    can_end: Callable[[str], bool] = lambda _: True,
) -> tuple[State, Message | None]:
    """What is to be told now, if anything, and the state until that has arrived. name: of the
    cluster. can_end: whether a problem of this kind that is not there is over, and not unknown."""
    found: dict[Key, pb.Problem] = {}
    for each in problems:
        if is_bad(each) and each.kind != _UNTOLD:
            for subject in each.subjects[: _MOST_KEYS - len(found)]:
                found[_SAME.get(each.kind, each.kind), subject[:_LONGEST_SUBJECT]] = each
    since_s, begin_s, end_s = state.since_s, settings.after_s, END_FACTOR * settings.after_s
    begun = {key: since_s.get(key, now_s) for key in found if key not in state.told}
    ended = [key for key in sorted(state.told.difference(found)) if can_end(key[0])]
    over = {key: since_s.get(key, now_s) for key in ended}
    left_out = state.left_out + sum(
        (key in state.told) == (key in found)
        and now_s - at >= (end_s if key in state.told else begin_s)
        for key, at in since_s.items()
    )
    after = replace(state, left_out=left_out, since_s=begun | over)
    begins, ends = _due(begun, begin_s, now_s), _due(over, end_s, now_s)
    if not (begins or ends) or len(_of_the_hour(state.sent_s, now_s)) >= settings.per_hour:
        return after, None
    return after, _message(name, {key: found[key] for key in begins}, ends, left_out)


def _due(since_s: Mapping[Key, float], after_s: float, now_s: float) -> list[Key]:
    """Those that have lasted for so long; none while others soon will have, for a while."""
    due = [key for key, at in since_s.items() if now_s - at >= after_s]
    waits = len(due) < len(since_s) and now_s - min(since_s.values()) < _GATHER_FACTOR * after_s
    return [] if waits else due


def _of_the_hour(sent_s: Iterable[float], now_s: float) -> tuple[float, ...]:
    """A clock that was set back does not silence for longer."""
    return tuple(at for at in sent_s if abs(now_s - at) < HOUR_S)


def _message(
    name: str, begins: Mapping[Key, pb.Problem], ends: Iterable[Key], left_out: int
) -> Message:
    titles, lines = [], []
    for _, group in groupby(begins, lambda key: id(begins[key])):
        keys = list(group)
        problem = begins[keys[0]]
        is_whole = len(keys) == len(problem.subjects)
        where = problem.where if is_whole else listed([subject for _, subject in keys])
        lines.append(f"{problem.severity}: {where}: {problem.what}; {problem.remedy}")
        titles.append(_counted(problem.kind, len(keys)))
    for kind, group in groupby(ends, lambda key: key[0]):
        subjects = [subject for _, subject in group]
        lines.append(f"over: {listed(subjects)}: {kind.replace('-', ' ')}")
        titles.append(f"over: {_counted(kind, len(subjects))}")
    if left_out:
        lines.append(f"{left_out} more came and went since the last message")
    severities = {each.severity for each in begins.values()}
    return Message(
        _cut(f"Leadline {name}: {', '.join(titles)}", _LONGEST_TITLE),
        _cut("\n".join(_cut(line, _LONGEST_LINE) for line in lines), _LONGEST_TEXT),
        "error" if "error" in severities else "warning" if severities else "over",
        frozenset((*begins, *ends)),
    )


def _counted(kind: str, count: int) -> str:
    return kind.replace("-", " ") + (f" ({count})" if count > 1 else "")


def _cut(text: str, most: int) -> str:
    """At most so many bytes of it."""
    data = text.encode()
    return text if len(data) <= most else f"{data[: most - 4].decode(errors='ignore')} ..."


def encoded(state: State, unix_offset_s: float) -> str:
    """What the next leader needs. unix_offset_s: from this clock to seconds since 1970."""
    by_kind = groupby(sorted(state.told), lambda key: key[0])
    told = {kind: [subject for _, subject in keys] for kind, keys in by_kind}
    return json.dumps({"told": told, "sent_s": [at + unix_offset_s for at in state.sent_s]})


def decoded(text: str, unix_offset_s: float) -> State:
    """What `encoded` wrote. Other people can write it, too; what cannot be read is as nothing."""
    try:
        fields = Fields(json.loads(text) if 0 < len(text) <= _LONGEST_NOTE else {}, "told")
        told = fields.object("told")
        keys = [(kind, subject) for kind in told.data for subject in told.texts(kind)]
        sent_s = [float(at) - unix_offset_s for at in fields.data.get("sent_s", ())]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return State()
    return State(frozenset(keys[:_MOST_KEYS]), tuple(sent_s[-60:]))

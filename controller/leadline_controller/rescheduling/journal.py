"""What must survive a controller: the moves begun and those of the last hour, and the pause.

A move is noted before its first step, so that whoever leads next knows what to finish or undo, and
counts in the budgets from then on. Other people can write these notes, so they are checked.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from leadline_controller.framework.ports import Cluster
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.settings import setting

MOVES, PAUSED = "moves", "paused"
OPEN = "open"
HOUR_S = 3600.0
_MAX_NOTES = 500
_MOST_MOVES = 200  # in an hour; their notes must all be kept
_MAX_TEXT = 400_000
_MAX_REASON = 200
_MAX_NAME = 512
_NAMES = ("uid", "pod", "owner", "kind", "source", "target", "deployment")


@dataclass(frozen=True, slots=True)
class MoveNote:
    """One move."""

    uid: str
    pod: str  # namespace/name
    owner: str
    source: str
    target: str
    begun_s: float  # seconds since 1970
    # The creation of its workload's newest pod before, on the API server's clock.
    newest_s: float = 0.0
    kind: str = ""  # of the owner
    # Of a replacement that comes first, namespace/name, with `replicas` wanted.
    deployment: str = ""
    replicas: int = 0
    cost: int | None = None  # the pod's deletion cost before, None without one
    outcome: str = OPEN  # OPEN, or how it ended


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is moved until a time, seconds since 1970; None until somebody resumes."""

    since_s: float
    until_s: float | None = None
    reason: str = ""

    def holds(self, now_s: float) -> bool:
        """Whether it still holds."""
        return self.until_s is None or now_s < self.until_s


@dataclass(frozen=True, slots=True)
class HourlyBudgets:
    """How many moves may begin in an hour."""

    workload: int = setting(
        1,
        "how many moves of one workload may begin in an hour",
        name="workload_moves_per_hour",
        most=_MOST_MOVES,
    )
    node: int = setting(
        3, "the same from or to one node", name="node_moves_per_hour", most=_MOST_MOVES
    )
    cluster: int = setting(6, "the same in the cluster", name="moves_per_hour", most=_MOST_MOVES)

    def refusal(self, notes: Iterable[MoveNote], owner: str, nodes: Sequence[str]) -> str:
        """Why no such move may begin after those of the last hour; empty if it may."""
        notes = list(notes)
        if len(notes) >= self.cluster:
            return f"{len(notes)} moves began in the last hour; the cluster's budget is spent"
        if sum(note.owner == owner for note in notes) >= self.workload:
            return "its workload's moves of this hour are spent"
        for node in nodes:
            if sum(node in (note.source, note.target) for note in notes) >= self.node:
                return f"the moves from and to {node} of this hour are spent"
        return ""


class Journal:
    """The notes of this cluster, as last read or written."""

    def __init__(self, cluster: Cluster, budgets: HourlyBudgets) -> None:
        self._cluster = cluster
        self._budgets = budgets
        self._notes: tuple[MoveNote, ...] = ()
        self.pause: Pause | None = None

    async def load(self) -> None:
        """Read the notes. Raises ClusterError."""
        notes = await self._cluster.read_notes()
        self._notes = _read_moves(notes.get(MOVES, ""))
        self.pause = _read_pause(notes.get(PAUSED, ""))

    def is_paused(self, now_s: float | None) -> bool:
        """Whether nothing may be moved now; a pause holds while the clock is not set."""
        return self.pause is not None and (now_s is None or self.pause.holds(now_s))

    def begun(self) -> tuple[MoveNote, ...]:
        """The moves that have begun and not ended."""
        return tuple(note for note in self._notes if note.outcome == OPEN)

    def of_the_hour(self, now_s: float) -> tuple[MoveNote, ...]:
        """The moves that began in the last hour, and those that have not ended. A clock that was
        set back does not make room."""
        return tuple(n for n in self._notes if n.outcome == OPEN or now_s - n.begun_s < HOUR_S)

    def refusal(self, now_s: float, owner: str, nodes: Sequence[str]) -> str:
        """Why no such move may begin now; empty if it may."""
        return self._budgets.refusal(self.of_the_hour(now_s), owner, nodes)

    async def begin(self, note: MoveNote) -> None:
        """Note a move before its first step. Raises ClusterError; then it must not begin."""
        kept = self.of_the_hour(note.begun_s)
        if len(kept) >= _MAX_NOTES:
            kept = kept[-_MAX_NOTES + 1 :]
        await self._write((*kept, note))

    async def end(self, uid: str, outcome: str) -> None:
        """Note how the move of the pod with this uid ended. Raises ClusterError."""
        ended = (
            replace(n, outcome=outcome[:_MAX_REASON]) if n.uid == uid and n.outcome == OPEN else n
            for n in self._notes
        )
        await self._write(tuple(ended))

    async def set_pause(self, pause: Pause | None) -> None:
        """Pause or resume. Raises ClusterError."""
        text = None if pause is None else json.dumps(asdict(pause))
        await self._cluster.write_note(PAUSED, text)
        self.pause = pause

    async def _write(self, notes: tuple[MoveNote, ...]) -> None:
        await self._cluster.write_note(MOVES, json.dumps([asdict(note) for note in notes]))
        self._notes = notes


def _read_moves(text: str) -> tuple[MoveNote, ...]:
    notes = []
    found = _parsed(text)
    for entry in found if isinstance(found, list) else ():
        try:
            fields = Fields(entry, "move")
            notes.append(
                MoveNote(
                    **{name: fields.text(name)[:_MAX_NAME] for name in _NAMES},
                    begun_s=fields.number("begun_s") or 0.0,
                    newest_s=fields.number("newest_s") or 0.0,
                    replicas=fields.integer("replicas", 0, 2**31 - 1) or 0,
                    cost=fields.integer("cost", -(2**31), 2**31 - 1),
                    outcome=fields.text("outcome")[:_MAX_REASON],
                )
            )
        except FieldError:
            continue
    return tuple(notes[-_MAX_NOTES:])


def _read_pause(text: str) -> Pause | None:
    """A note that cannot be read pauses, too: somebody meant to."""
    if not text:
        return None
    try:
        fields = Fields(_parsed(text), "pause")
        until_s = fields.number("until_s") if fields.raw("until_s") is not None else None
        reason = fields.text("reason", "")[:_MAX_REASON]
        return Pause(fields.number("since_s") or 0.0, until_s, reason)
    except FieldError:
        return Pause(0.0, None, text[:_MAX_REASON])


def _parsed(text: str) -> object:
    """The JSON value; None if it is none, or too long."""
    try:
        return json.loads(text) if 0 < len(text) <= _MAX_TEXT else None
    except (ValueError, RecursionError):
        return None

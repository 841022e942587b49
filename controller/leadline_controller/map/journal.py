"""Which pod is on which board, and how boards are, now and since this controller started, for the
map's time slider."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted

_MOST_MOVES = 20_000
# Of each board, so that one whose notes change all the time costs the others nothing.
_MOST_STATES, _MOST_NOTES, _LONGEST_NOTE = 64, 8, 80
_MOST_BOARDS = 20_000


class PlacedPod(NamedTuple):
    """An unfinished pod on a board."""

    namespace: str
    name: str
    node: str
    ours: bool  # Leadline's scheduler places it


class BoardState(NamedTuple):
    """What the map says of a board besides values and pods: as in NodeStatus, None where unknown.
    Notes that count, such as lost messages, are left out: each would be another state."""

    agent: str
    in_cluster: bool | None
    ready: bool | None
    schedulable: bool | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, status: pb.NodeStatus) -> "BoardState":
        """That of a board now."""
        notes = [each[:_LONGEST_NOTE] for each in status.notes if not each[:1].isdigit()]
        here = status.in_cluster
        ready, schedulable = (status.ready, status.schedulable) if here else (None, None)
        return cls(status.agent, here, ready, schedulable, tuple(notes[:_MOST_NOTES]))


class BoardJournal:
    """How boards are, and the last `most` changes of each. now_s: as for PlacementJournal."""

    def __init__(self, now_s: Callable[[], float], most: int = _MOST_STATES) -> None:
        self._now_s, self._most = now_s, most
        self._since_s: float | None = None
        # When, and how the board was from then on; None if there was no such board.
        self._states: dict[str, deque[tuple[float, BoardState | None]]] = {}

    def look(self, statuses: Iterable[pb.NodeStatus]) -> None:
        """All boards now."""
        at_s, seen = self._now_s(), {each.name: BoardState.of(each) for each in statuses}
        self._since_s = at_s if self._since_s is None else self._since_s
        for name in self._states.keys() | seen.keys():
            states = self._states.setdefault(name, deque(maxlen=self._most))
            if (states[-1][1] if states else None) != seen.get(name):
                states.append((at_s, seen.get(name)))
        if len(self._states) > _MOST_BOARDS:
            self._states = {name: self._states[name] for name in seen}

    def at(self, at_s: float) -> Mapping[str, BoardState] | None:
        """How the boards of that time were; None if that is not known."""
        if self._since_s is None or at_s < self._since_s:
            return None
        found = {}
        for name, states in self._states.items():
            before = bisect_right(states, at_s, key=lambda each: each[0])
            if before and (state := states[before - 1][1]) is not None:
                found[name] = state
        return found


class PlacementJournal:
    """The unfinished pods that have a board, by uid, and their last `most_moves` changes. now_s: a
    monotonic clock; its seconds are those of `at`. scheduler_name: of our pods. boards: how they
    are. most_states: changes of each."""

    def __init__(
        self,
        now_s: Callable[[], float],
        scheduler_name: str,
        *,
        most_moves: int = _MOST_MOVES,
        most_states: int = _MOST_STATES,
    ) -> None:
        self.now_s = now_s
        self._scheduler_name, self._most_moves = scheduler_name, most_moves
        self.boards = BoardJournal(now_s, most_states)
        self._placed: dict[str, PlacedPod] = {}
        # When, which pod, and where it was before.
        self._moves: deque[tuple[float, str, PlacedPod | None]] = deque()
        self.since_s: float | None = None

    def observe(self, change: ClusterChange) -> None:
        """Follow a change of the cluster."""
        match change:
            case Relisted(pods=pods):
                shown = {pod.uid: self._of(pod) for pod in pods}
                for uid in self._placed.keys() - shown.keys():
                    self._put(uid, None)
                for uid, placed in shown.items():
                    self._put(uid, placed)
                if self.since_s is None:  # before, nothing was known of them
                    self._moves.clear()
                    self.since_s = self.now_s()
            case PodChanged(pod):
                self._put(pod.uid, self._of(pod))
            case PodDeleted(pod):
                self._put(pod.uid, None)
            case _:
                pass

    def now(self) -> Mapping[str, PlacedPod]:
        """The pods now, by uid."""
        return self._placed

    def at(self, at_s: float) -> Callable[[], Mapping[str, PlacedPod]] | None:
        """Finds the pods at that time, by uid, on any thread; None if that is not known."""
        if self.since_s is None or at_s < self.since_s:
            return None
        placed, moves = dict(self._placed), list(self._moves)

        def found() -> Mapping[str, PlacedPod]:
            for moved_s, uid, before in reversed(moves):
                if moved_s <= at_s:
                    break
                if before is None:
                    placed.pop(uid, None)
                else:
                    placed[uid] = before
            return placed

        return found

    def _of(self, pod: Pod) -> PlacedPod | None:
        if pod.node_name is None or pod.finished:
            return None
        ours = pod.scheduler_name == self._scheduler_name
        return PlacedPod(pod.namespace, pod.name, pod.node_name, ours)

    def _put(self, uid: str, placed: PlacedPod | None) -> None:
        before = self._placed.get(uid)
        if before == placed:
            return
        if placed is None:
            del self._placed[uid]
        else:
            self._placed[uid] = placed
        self._moves.append((self.now_s(), uid, before))
        if len(self._moves) > self._most_moves:
            self.since_s, _, _ = self._moves.popleft()


def by_node(placed: Mapping[str, PlacedPod]) -> dict[str, list[dict[str, Any]]]:
    """Node -> its pods as JSON, sorted."""
    found: dict[str, list[dict[str, Any]]] = {}
    for namespace, name, node, ours in sorted(placed.values()):
        found.setdefault(node, []).append({"namespace": namespace, "name": name, "ours": ours})
    return found

"""Which pod is on which board, now and since this controller started, for the map's time slider."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted

_MOST_MOVES = 20_000


class PlacedPod(NamedTuple):
    """An unfinished pod on a board. ours: Leadline's scheduler places it."""

    namespace: str
    name: str
    node: str
    ours: bool


class PlacementJournal:
    """The unfinished pods that have a board, by uid, and their last 20,000 changes. now_s: a
    monotonic clock; its seconds are those of `at`. scheduler_name: of our pods."""

    def __init__(self, now_s: Callable[[], float], scheduler_name: str) -> None:
        self._now_s = now_s
        self._scheduler_name = scheduler_name
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
                    self.since_s = self._now_s()
            case PodChanged(pod):
                self._put(pod.uid, self._of(pod))
            case PodDeleted(pod):
                self._put(pod.uid, None)
            case _:
                pass

    def now(self) -> Mapping[str, PlacedPod]:
        """The pods now, by uid."""
        return self._placed

    def at(self, at_s: float) -> Mapping[str, PlacedPod] | None:
        """The pods at that time, by uid; None if that is not known."""
        if self.since_s is None or at_s < self.since_s:
            return None
        placed = dict(self._placed)
        for moved_s, uid, before in reversed(self._moves):
            if moved_s <= at_s:
                break
            if before is None:
                placed.pop(uid, None)
            else:
                placed[uid] = before
        return placed

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
        self._moves.append((self._now_s(), uid, before))
        if len(self._moves) > _MOST_MOVES:
            self.since_s, _, _ = self._moves.popleft()


def by_node(placed: Mapping[str, PlacedPod]) -> dict[str, list[dict[str, Any]]]:
    """Node -> its pods as JSON, sorted."""
    found: dict[str, list[dict[str, Any]]] = {}
    for namespace, name, node, ours in sorted(placed.values()):
        found.setdefault(node, []).append({"namespace": namespace, "name": name, "ours": ours})
    return found

"""Pending pods in the order in which they are tried: priority first, then age; one that
failed waits longer each time. Pure: the caller brings the time."""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ANYTHING, NOTHING, ClusterEvent

# kube-scheduler's figures.
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 10.0
LONGEST_UNSCHEDULABLE_S = 60.0
_BEING_TRIED = -1


@dataclass(slots=True)
class _Entry:
    pod: Pod
    order: int
    attempts: int = 0
    tried_s: float = 0.0
    requeue_on: ClusterEvent = NOTHING
    # Of the one heap item that counts; others are left behind and skipped.
    token: int = _BEING_TRIED


class SchedulingQueue:
    """Pods by uid. A pod is ready, being tried, backing off, or parked until there is news
    for it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ready: list[tuple[int, int, int, str]] = []
        self._waiting: list[tuple[float, int, str]] = []
        self._unschedulable: dict[str, _Entry] = {}
        self._orders = count()
        self._tokens = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def put(self, pod: Pod) -> None:
        """A pod is pending, or a pending pod changed. One that was parked is tried anew."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, next(self._orders))
            self._make_ready(entry)
        elif entry.pod != pod:
            entry.pod = pod
            if pod.uid in self._unschedulable:
                self._make_ready(entry)

    def remove(self, uid: str) -> None:
        """The pod is bound, gone, or no longer ours."""
        self._entries.pop(uid, None)
        self._unschedulable.pop(uid, None)

    def keep_only(self, uids: set[str]) -> list[Pod]:
        """Drop the pods that are not among these, and return them."""
        others = [self._entries[uid].pod for uid in self._entries.keys() - uids]
        for pod in others:
            self.remove(pod.uid)
        return others

    def pop(self, now_s: float) -> Pod | None:
        """The next pod to try, or None when none is ready. It stays known, being tried,
        until `failed`, `park` or `remove`."""
        while self._waiting and self._waiting[0][0] <= now_s:
            _, token, uid = heappop(self._waiting)
            if entry := self._valid(uid, token):
                self._make_ready(entry)
        while self._ready:
            _, _, token, uid = heappop(self._ready)
            if entry := self._valid(uid, token):
                entry.token = _BEING_TRIED
                entry.attempts += 1
                entry.tried_s = now_s
                return entry.pod
        return None

    def failed(self, uid: str, now_s: float) -> bool:
        """The binding did not work: try again after a while. False when that pod is not
        being tried: it was bound or went while the binding was under way."""
        entry = self._valid(uid, _BEING_TRIED)
        if entry is not None:
            self._wait(entry, now_s + _backoff_s(entry))
        return entry is not None

    def mark_unschedulable(
        self, uid: str, now_s: float, requeue_on: ClusterEvent = ANYTHING
    ) -> None:
        """It fits nowhere, or was refused: try again after such news, or after a minute."""
        if entry := self._valid(uid, _BEING_TRIED):
            self._wait(entry, now_s + LONGEST_UNSCHEDULABLE_S)
            self._unschedulable[uid], entry.requeue_on = entry, requeue_on

    def move_to_active_or_backoff(self, now_s: float, events: ClusterEvent = ANYTHING) -> None:
        """Something changed that may let parked pods in: those who hope for it wait out their
        back-off, which counts from when they were tried."""
        for entry in (
            [e for e in self._unschedulable.values() if e.requeue_on & events] if events else ()
        ):
            self._wait(entry, max(now_s, entry.tried_s + _backoff_s(entry)))

    def next_due_s(self) -> float | None:
        """When a waiting pod is due at the earliest; None when none waits."""
        while self._waiting and not self._valid(self._waiting[0][2], self._waiting[0][1]):
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def _valid(self, uid: str, token: int) -> _Entry | None:
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.token == token else None

    def _make_ready(self, entry: _Entry) -> None:
        self._unschedulable.pop(entry.pod.uid, None)
        entry.token = next(self._tokens)
        heappush(self._ready, (-entry.pod.priority, entry.order, entry.token, entry.pod.uid))

    def _wait(self, entry: _Entry, until_s: float) -> None:
        self._unschedulable.pop(entry.pod.uid, None)
        entry.token = next(self._tokens)
        heappush(self._waiting, (until_s, entry.token, entry.pod.uid))


def _backoff_s(entry: _Entry) -> float:
    return min(FIRST_BACKOFF_S * 2.0 ** min(max(entry.attempts - 1, 0), 10), LONGEST_BACKOFF_S)

"""The scheduling queue: pending pods by priority and age, with back-off. The caller passes the
time."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice

from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent

# kube-scheduler's figures.
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 10.0
LONGEST_UNSCHEDULABLE_S = 60.0
_IN_PROGRESS, _HELD = -1, -2


@dataclass(slots=True)
class _Entry:
    pod: Pod
    order: int
    attempts: int = 0
    popped_s: float = 0.0
    active_s: float = 0.0  # since when it may be popped
    requeue_on: ClusterEvent = NO_EVENT
    # Of the entry's valid heap item; older items stay in the heaps and are skipped.
    token: int = _IN_PROGRESS


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How many pods are in each state, and namespace/name of some that are unschedulable."""

    active: int = 0
    in_progress: int = 0
    backoff: int = 0
    unschedulable: int = 0
    held: int = 0
    unschedulable_pods: tuple[str, ...] = ()


class SchedulingQueue:
    """Pending pods by uid. As in kube-scheduler, a pod is active, in progress, backing off, or
    unschedulable until a cluster event may help it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._active: list[tuple[int, int, int, str]] = []
        self._backoff: list[tuple[float, int, str]] = []
        self._unschedulable: dict[str, _Entry] = {}
        self.changed = asyncio.Event()  # whoever pops has something to look at
        self._orders = count()
        self._tokens = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def status(self, named: int = 10) -> QueueStatus:
        """How many pods are in each state. named: of how many unschedulable ones the names."""
        tokens = Counter(entry.token for entry in self._entries.values())
        active = sum(self._valid(uid, token) is not None for *_, token, uid in self._active)
        in_progress, held = tokens[_IN_PROGRESS], tokens[_HELD]
        unschedulable = len(self._unschedulable)
        return QueueStatus(
            active,
            in_progress,
            len(self._entries) - active - in_progress - held - unschedulable,
            unschedulable,
            held,
            tuple(entry.pod.key for entry in islice(self._unschedulable.values(), named)),
        )

    def put(self, pod: Pod, now_s: float = 0.0) -> None:
        """Add or update a pending pod. An update makes an unschedulable pod active, unless all that
        is new is the node for which it is nominated."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, next(self._orders))
            self._activate(entry, now_s)
        elif entry.pod != pod:
            nominated = pod.nominated_node
            is_same = nominated and replace(entry.pod, nominated_node=nominated) == pod
            entry.pod = pod
            if pod.uid in self._unschedulable and not is_same:
                self._activate(entry, now_s)

    def remove(self, uid: str) -> None:
        """Remove a pod that is bound, deleted, or no longer ours."""
        self._entries.pop(uid, None)
        self._unschedulable.pop(uid, None)

    def keep_only(self, uids: set[str]) -> None:
        """Remove all pods but these."""
        for uid in self._entries.keys() - uids:
            self.remove(uid)

    def pop(self, now_s: float) -> Pod | None:
        """The next pod to schedule; None when none is active. It is in progress until `failed`,
        `mark_unschedulable` or `remove`."""
        while self._backoff and self._backoff[0][0] <= now_s:
            due_s, token, uid = heappop(self._backoff)
            if entry := self._valid(uid, token):
                self._activate(entry, due_s)
        while self._active:
            _, _, token, uid = heappop(self._active)
            if entry := self._valid(uid, token):
                entry.token = _IN_PROGRESS
                entry.attempts += 1
                entry.popped_s = now_s
                return entry.pod
        return None

    def in_progress(self, uid: str) -> Pod | None:
        """The pod as last seen, if it was popped and nothing has become of it yet."""
        entry = self._valid(uid, _IN_PROGRESS)
        return None if entry is None else entry.pod

    def hold(self, uid: str) -> None:
        """Keep a pod that is in progress until `end_hold`, whatever happens in the cluster."""
        if entry := self._valid(uid, _IN_PROGRESS):
            entry.token = _HELD

    def end_hold(self, uid: str, now_s: float = 0.0) -> None:
        """Make a held pod active."""
        if entry := self._valid(uid, _HELD):
            self._activate(entry, now_s)

    def failed(self, uid: str, now_s: float) -> bool:
        """Back off after a failed binding. False if the pod is not in progress, because it was
        bound or deleted meanwhile."""
        entry = self._valid(uid, _IN_PROGRESS)
        if entry is not None:
            self._back_off(entry, now_s + _backoff_s(entry))
        return entry is not None

    def mark_unschedulable(
        self, uid: str, now_s: float, requeue_on: ClusterEvent = ANY_EVENT
    ) -> None:
        """Keep the pod until one of these cluster events, or for a minute."""
        if entry := self._valid(uid, _IN_PROGRESS):
            self._back_off(entry, now_s + LONGEST_UNSCHEDULABLE_S)
            self._unschedulable[uid], entry.requeue_on = entry, requeue_on

    def move_to_active_or_backoff(self, now_s: float, events: ClusterEvent = ANY_EVENT) -> None:
        """Move the unschedulable pods that these events may help. Their back-off counts from when
        they were popped."""
        if not events:
            return
        for entry in [e for e in self._unschedulable.values() if e.requeue_on & events]:
            self._back_off(entry, max(now_s, entry.popped_s + _backoff_s(entry)))

    def requeue(self, events: ClusterEvent, now_s: float) -> None:
        """Try pods again that these events may help, which the watch does not show."""
        self.move_to_active_or_backoff(now_s, events)
        self.changed.set()

    def next_due_s(self) -> float | None:
        """When the next pod becomes active; None when none is waiting."""
        while self._backoff and not self._valid(self._backoff[0][2], self._backoff[0][1]):
            heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    def waited_s(self, uid: str) -> float:
        """How long a pod in progress was active before it was popped."""
        entry = self._valid(uid, _IN_PROGRESS)
        return 0.0 if entry is None else max(0.0, entry.popped_s - entry.active_s)

    def _valid(self, uid: str, token: int) -> _Entry | None:
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.token == token else None

    def _activate(self, entry: _Entry, now_s: float) -> None:
        self._unschedulable.pop(entry.pod.uid, None)
        entry.active_s = now_s
        entry.token = next(self._tokens)
        heappush(self._active, (-entry.pod.priority, entry.order, entry.token, entry.pod.uid))

    def _back_off(self, entry: _Entry, until_s: float) -> None:
        self._unschedulable.pop(entry.pod.uid, None)
        entry.token = next(self._tokens)
        heappush(self._backoff, (until_s, entry.token, entry.pod.uid))


def _backoff_s(entry: _Entry) -> float:
    return min(FIRST_BACKOFF_S * 2.0 ** min(max(entry.attempts - 1, 0), 10), LONGEST_BACKOFF_S)

"""Writes events on pods, few enough that a pod which can't be placed for days does no harm.

The API group events.k8s.io has what kube-scheduler uses as well: `kubectl describe pod` shows
them, and a repeat only raises the count of the event that is there.
"""

import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import NotFoundError, PodEvent
from leadline_controller.kube.client import ApiServer, Json

COMPONENT = "leadline"
_BURST = 10
_REFILL_S = 20.0
_MOST_PODS = 4096
_MOST_TEXTS = 20
_NOTE_BYTES = 1024
_NAME_CHARS = 253
_INSTANCE_CHARS = 128


@dataclass(slots=True)
class _Written:
    """An event that is on the server, or on its way there while it has no path. count: how
    often it was to be said, written or not."""

    path: str = ""
    count: int = 1


@dataclass(slots=True)
class _PodBook:
    """What was said on one pod, and how many writes are left to it."""

    writes_left: float = _BURST
    as_of_s: float = 0.0
    written: dict[PodEvent, _Written] = field(default_factory=dict)

    def may_write(self, now_s: float) -> bool:
        refill = (now_s - self.as_of_s) / _REFILL_S
        self.writes_left = min(self.writes_left + refill, _BURST)
        self.as_of_s = now_s
        if self.writes_left < 1:
            return False
        self.writes_left -= 1
        return True

    def note(self, event: PodEvent) -> _Written:
        self.written.pop(event, None)
        if len(self.written) >= _MOST_TEXTS:
            del self.written[next(iter(self.written))]
        self.written[event] = _Written()
        return self.written[event]


class EventRecorder:
    """Writes events on pods: ten at once and then one every 20 s for each pod.

    A repeat above that rate is counted and written with the next one; an event of another text
    above that rate is left out. now_s: a monotonic clock in seconds.
    """

    def __init__(self, server: ApiServer, now_s: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._now_s = now_s
        self._books: OrderedDict[str, _PodBook] = OrderedDict()
        self._instance = f"{COMPONENT}-{socket.gethostname()}-{os.getpid()}"[:_INSTANCE_CHARS]

    async def record(self, pod: Pod, event: PodEvent) -> None:
        """Write `event` on `pod`, or raise the count of the same event. Raises ClusterError."""
        book = self._book(pod)
        known = book.written.get(event)
        if known:
            known.count += 1
        if (known and not known.path) or not book.may_write(self._now_s()):
            return
        if known is None or not await self._repeat(known):
            await self._create(pod, event, book)

    def _book(self, pod: Pod) -> _PodBook:
        book = self._books.setdefault(pod.uid, _PodBook(as_of_s=self._now_s()))
        self._books.move_to_end(pod.uid)
        if len(self._books) > _MOST_PODS:
            self._books.popitem(last=False)
        return book

    async def _create(self, pod: Pod, event: PodEvent, book: _PodBook) -> None:
        suffix = f".{time.time_ns():x}"
        name = pod.name[: _NAME_CHARS - len(suffix)] + suffix
        path = f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"
        # Noted before the request, so that a repeat meanwhile doesn't make a second one.
        written = book.note(event)
        try:
            await self._server.post(path, self._body(pod, event, name))
        except BaseException:
            book.written.pop(event, None)
            raise
        written.path = f"{path}/{name}"

    async def _repeat(self, written: _Written) -> bool:
        """Write the count. False when the event is no more: the server keeps it for an hour."""
        series = {"count": written.count, "lastObservedTime": _now()}
        try:
            await self._server.patch(written.path, {"series": series})
        except NotFoundError:
            return False
        return True

    def _body(self, pod: Pod, event: PodEvent, name: str) -> Json:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "eventTime": _now(),
            "type": event.type,
            "reason": event.reason,
            "action": "Binding" if event.type == "Normal" else "Scheduling",
            "note": _cut(event.message),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "reportingController": COMPONENT,
            "reportingInstance": self._instance,
        }


def _cut(note: str) -> str:
    raw = note.encode()
    if len(raw) <= _NOTE_BYTES:
        return note
    return raw[: _NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

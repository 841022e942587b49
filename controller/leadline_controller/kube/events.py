"""Writes events on pods, at a limited rate: a pod may stay unschedulable for days.

They are of the API group events.k8s.io, as kube-scheduler's: `kubectl describe pod` shows them,
and a repeat only raises the count of the existing event.
"""

import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import NotFoundError, PodEvent
from leadline_controller.kube.client import ApiServer, Json, micro_time

COMPONENT = "leadline"
_BURST = 10
_REFILL_S = 20.0
_MAX_PODS = 4096
_MAX_EVENTS_PER_POD = 20
_MAX_NOTE_BYTES = 1024
_MAX_NAME_CHARS = 253
_MAX_INSTANCE_CHARS = 128


@dataclass(slots=True)
class _Series:
    """An event and its repeats. path: of the event on the server; empty while the request is
    under way. count: of all repeats, written or not."""

    path: str = ""
    count: int = 1


@dataclass(slots=True)
class _PodEvents:
    """The latest events of one pod, and a token bucket for its writes."""

    tokens: float = _BURST
    refilled_s: float = 0.0
    series: dict[PodEvent, _Series] = field(default_factory=dict)

    def take_token(self, now_s: float) -> bool:
        refill = (now_s - self.refilled_s) / _REFILL_S
        self.tokens = min(self.tokens + refill, _BURST)
        self.refilled_s = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventSink:
    """Writes events on pods: ten at once and then one every 20 s for each pod.

    Above that rate, a repeat is counted and written with the next one, and an event with another
    message is dropped. now_s: a monotonic clock in seconds.
    """

    def __init__(self, server: ApiServer, now_s: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._now_s = now_s
        self._pods: OrderedDict[str, _PodEvents] = OrderedDict()
        self._instance = f"{COMPONENT}-{socket.gethostname()}-{os.getpid()}"[:_MAX_INSTANCE_CHARS]

    async def record(self, pod: Pod, event: PodEvent) -> None:
        """Write `event` on `pod`, or raise the count of the same event. Raises ClusterError."""
        events = self._pods.setdefault(pod.uid, _PodEvents(refilled_s=self._now_s()))
        self._pods.move_to_end(pod.uid)
        if len(self._pods) > _MAX_PODS:
            self._pods.popitem(last=False)
        known = events.series.get(event)
        if known:
            known.count += 1
        if (known and not known.path) or not events.take_token(self._now_s()):
            return
        if known:
            body = {"series": {"count": known.count, "lastObservedTime": micro_time()}}
            with suppress(NotFoundError):  # the server keeps an event for an hour
                await self._server.patch(known.path, body)
                return
        await self._create(pod, event, events)

    async def _create(self, pod: Pod, event: PodEvent, events: _PodEvents) -> None:
        suffix = f".{time.time_ns():x}"
        name = pod.name[: _MAX_NAME_CHARS - len(suffix)] + suffix
        path = f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"
        # Registered before the request, so that a repeat meanwhile does not create a second one.
        events.series.pop(event, None)
        if len(events.series) >= _MAX_EVENTS_PER_POD:
            del events.series[next(iter(events.series))]
        series = events.series[event] = _Series()
        try:
            await self._server.post(path, self._body(pod, event, name))
        except BaseException:
            events.series.pop(event, None)
            raise
        series.path = f"{path}/{name}"

    def _body(self, pod: Pod, event: PodEvent, name: str) -> Json:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "eventTime": micro_time(),
            "type": event.type,
            "reason": event.reason,
            "action": "Binding" if event.type == "Normal" else "Scheduling",
            "note": _truncated(event.message),
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


def _truncated(note: str) -> str:
    raw = note.encode()
    if len(raw) <= _MAX_NOTE_BYTES:
        return note
    return raw[: _MAX_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"

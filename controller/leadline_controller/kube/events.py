"""Writes events on pods and nodes, at a limited rate: a pod may stay unschedulable for days.

They are of the API group events.k8s.io, as kube-scheduler's: `kubectl describe pod` shows them,
and a repeat only raises the count of the existing event. A node's are in the namespace `default`
and carry its name as uid, as kubelet's do; `kubectl describe node` looks for that.
"""

import hashlib
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import ConflictError, Event, NotFoundError
from leadline_controller.kube.client import ApiServer, Json, micro_time

COMPONENT = "leadline"
_BURST = 10
_REFILL_S = 20.0
_MAX_OBJECTS = 4096
_MAX_EVENTS_PER_OBJECT = 20
_MAX_NOTE_BYTES = 1024
_MAX_NAME_CHARS = 253
_MAX_INSTANCE_CHARS = 128


@dataclass(slots=True)
class _Series:
    """An event and its repeats."""

    path: str = ""  # of the event on the server; empty while the request is under way
    count: int = 1  # of all repeats, written or not


@dataclass(slots=True)
class _ObjectEvents:
    """The latest events of one pod or node, and a token bucket for its writes."""

    tokens: float = _BURST
    refilled_s: float = 0.0
    series: dict[Event, _Series] = field(default_factory=dict)

    def take_token(self, now_s: float) -> bool:
        refill = (now_s - self.refilled_s) / _REFILL_S
        self.tokens = min(self.tokens + refill, _BURST)
        self.refilled_s = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventSink:
    """Writes events: ten at once and then one every 20 s for each pod or node.

    Above that rate, a repeat is counted and written with the next one, and an event with another
    message is dropped. now_s: a monotonic clock in seconds.
    """

    def __init__(self, server: ApiServer, now_s: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._now_s = now_s
        self._objects: OrderedDict[str, _ObjectEvents] = OrderedDict()
        self._instance = f"{COMPONENT}-{socket.gethostname()}-{os.getpid()}"[:_MAX_INSTANCE_CHARS]

    async def record(self, about: Pod | Node, event: Event) -> None:
        """Write `event`, or raise the count of the same event. Raises ClusterError."""
        uid = _uid(about)
        events = self._objects.setdefault(uid, _ObjectEvents(refilled_s=self._now_s()))
        self._objects.move_to_end(uid)
        if len(self._objects) > _MAX_OBJECTS:
            self._objects.popitem(last=False)
        known = events.series.get(event)
        if known and event.once:
            return
        if known:
            known.count += 1
        if (known and not known.path) or not events.take_token(self._now_s()):
            return
        if known:
            body = {"series": {"count": known.count, "lastObservedTime": micro_time()}}
            with suppress(NotFoundError):  # the server keeps an event for an hour
                await self._server.patch(known.path, body)
                return
        await self._create(about, event, events)

    async def _create(self, about: Pod | Node, event: Event, events: _ObjectEvents) -> None:
        # The name of one that is told once tells that an earlier controller has told it.
        said = f"{_uid(about)}\n{event.reason}\n{event.message}".encode()
        unique = hashlib.sha256(said).hexdigest()[:16] if event.once else f"{time.time_ns():x}"
        # The part before a dot must end with a letter or digit.
        name = f"{about.name[: _MAX_NAME_CHARS - len(unique) - 1].rstrip('-.')}.{unique}"
        path = f"/apis/events.k8s.io/v1/namespaces/{_namespace(about)}/events"
        # Registered before the request, so that a repeat meanwhile does not create a second one.
        events.series.pop(event, None)
        if len(events.series) >= _MAX_EVENTS_PER_OBJECT:
            del events.series[next(iter(events.series))]
        series = events.series[event] = _Series()
        try:
            await self._server.post(path, self._body(about, event, name))
        except BaseException as error:
            if not (event.once and isinstance(error, ConflictError)):
                events.series.pop(event, None)
                raise
        series.path = f"{path}/{name}"

    def _body(self, about: Pod | Node, event: Event, name: str) -> Json:
        namespace = {"namespace": about.namespace} if isinstance(about, Pod) else {}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(about)},
            "eventTime": micro_time(),
            "type": event.type,
            "reason": event.reason,
            "action": _action(event),
            "note": _truncated(event.message),
            "regarding": {
                "apiVersion": "v1",
                "kind": type(about).__name__,
                **namespace,
                "name": about.name,
                "uid": _uid(about),
            },
            "reportingController": COMPONENT,
            "reportingInstance": self._instance,
        }


def _action(event: Event) -> str:
    if event.reason in ("Preempted", "Preempting", "FailedPreemption"):
        return "Preempting"
    return "Binding" if event.type == "Normal" else "Scheduling"


def _uid(about: Pod | Node) -> str:
    return about.uid if isinstance(about, Pod) else about.name


def _namespace(about: Pod | Node) -> str:
    return about.namespace if isinstance(about, Pod) else "default"


def _truncated(note: str) -> str:
    raw = note.encode()
    if len(raw) <= _MAX_NOTE_BYTES:
        return note
    return raw[: _MAX_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"

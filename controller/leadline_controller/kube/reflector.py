"""List and watch: the nodes, pods, namespaces and storage of an API server, and every change.

Each kind has a Reflector with a watch of its own, which resumes from the last version when it
ends. When the server no longer keeps the changes since then (410), all kinds are listed again,
because the lists must describe the same state. The kubelets' events on image pulls are followed
apart, because pods are scheduled without them too.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import SystemRandom
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from leadline_controller.framework.ports import (
    ClusterChange,
    ClusterError,
    ImagePull,
    InvalidError,
    NodeChanged,
    NodeDeleted,
    NotFoundError,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, ExpiredError, WatchEvent, error_for
from leadline_controller.kube.convert import Converter
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kubeobjects.image_pulls import read_pull
from leadline_controller.kubeobjects.schema import Part
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

# The kinds besides nodes and pods. Pods that need none of them are scheduled without them.
RESOURCES = {
    "Namespace": "/api/v1/namespaces",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "Service": "/api/v1/services",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
}
# How long the server is asked to keep a watch, in seconds: a random time, so that the watches of a
# cluster are not all renewed at once. A watch that has not ended by then, and somewhat later, shows
# that the connection is dead, which has to be known within 45 s.
_WATCH_S = (18, 28)
# The server has no bookmarks of events, so a watch of them that ends often would have to list them
# again often. The other watches show as well that the connection is dead.
_WATCH_PULLS_S = (240, 300)
_LATE_S = 15.0
# A watch that ended earlier has failed.
_MIN_WATCH_S = 10.0
_PAGE_SIZE = 500
_AT_ONCE = 50  # objects of a page that are read before others have their turn
_MAX_PULLS = 10_000
_NOT_LISTED = ""
_RANDOM = SystemRandom()
_log = logging.getLogger(__name__)
T = TypeVar("T")
_PULL_EVENTS = ("Pulling", "Pulled")


class _ListMetadata(Part):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")


class _Page(Part):
    items: tuple[Raw, ...] = ()
    metadata: _ListMetadata = _ListMetadata()


class _Object(Part):
    """Any object."""

    metadata: _ListMetadata = _ListMetadata()
    # code, message: of a Status.
    code: int = 500
    message: str = ""


async def watch_cluster(
    server: ApiServer,
    reachability: ReachabilityLog | None = None,
    watch_s: tuple[int, int] = _WATCH_S,
    late_s: float = _LATE_S,
) -> AsyncGenerator[ClusterChange, None]:
    """All objects, then every change, for ever; see Cluster.watch. reachability: shared with all
    users of the server, so that an outage is logged once. watch_s, late_s: see Reflector."""
    reachability, convert = reachability or ReachabilityLog(server.url), Converter()
    reflect = partial(Reflector, server, reachability, watch_s, late_s)
    nodes = reflect("/api/v1/nodes", convert.node, NodeChanged, lambda node: NodeDeleted(node.name))
    pods = reflect("/api/v1/pods", convert.pod, PodChanged, PodDeleted)
    others = [
        reflect(
            path,
            partial(convert.cluster_object, kind),
            ObjectChanged,
            ObjectDeleted,
            partial(convert.unreadable, path.rpartition("/")[2]),
        )
        for kind, path in RESOURCES.items()
    ]
    reflectors: list[Reflector[Any]] = [nodes, pods, *others]
    waits_s = backoffs_s()
    while True:
        lists = [await reflector.list() for reflector in reflectors]
        (all_nodes, _), (all_pods, _), *rest = lists
        yield Relisted(all_nodes, all_pods, tuple(found for all_, _ in rest for found in all_))
        changes: asyncio.Queue[ClusterChange | None] = asyncio.Queue()
        began_s = time.monotonic()
        watches = [
            asyncio.create_task(_watch_until_relist(reflector, version, changes))
            for reflector, (_, version) in zip(reflectors, lists, strict=True)
        ]
        try:
            while (change := await changes.get()) is not None:
                yield change
        finally:
            for watch in watches:
                watch.cancel()
            for outcome in await asyncio.gather(*watches, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome  # a bug must not pass for a 410
        if time.monotonic() - began_s >= _MIN_WATCH_S:
            waits_s = backoffs_s()
        await asyncio.sleep(next(waits_s))


async def watch_pulls(
    server: ApiServer, reachability: ReachabilityLog
) -> AsyncGenerator[ImagePull, None]:
    """Every image pull that a kubelet reports in an event, for ever; those that were reported
    before come first and are marked as old. An account that may not read events gets none until it
    may."""
    pulls: asyncio.Queue[ImagePull] = asyncio.Queue(_MAX_PULLS)
    refusals: list[str] = []

    def no_pulls(error: ClusterError) -> tuple[ImagePull, ...]:
        if not refusals:
            refusals.append(str(error))
            _log.warning("can't read events: %s; the speed of image pulls is not learned", error)
        return ()

    watches = [
        asyncio.create_task(
            _follow_pulls(
                Reflector(
                    server,
                    reachability,
                    _WATCH_PULLS_S,
                    _LATE_S,
                    "/api/v1/events",
                    read_pull,
                    lambda pull: pull,
                    lambda pull: replace(pull, pod_uid=""),  # an event that expires says nothing
                    no_pulls,
                    {"fieldSelector": f"involvedObject.kind=Pod,reason={reason}"},
                ),
                pulls,
            )
        )
        for reason in _PULL_EVENTS
    ]
    try:
        while True:
            yield await pulls.get()
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def _follow_pulls(reflector: "Reflector[ImagePull]", pulls: asyncio.Queue[ImagePull]) -> None:
    def report(pull: ImagePull) -> None:
        if pull.pod_uid and not pulls.full():  # a burst of more says nothing new
            pulls.put_nowait(pull)

    waits_s, errors = backoffs_s(1.0, 60.0), ErrorLog(_log)
    while True:
        try:
            listed, version = await reflector.list()
            for pull in listed:
                report(replace(pull, is_old=True))
            if version == _NOT_LISTED:
                await reflector.wait_until_readable()
            else:
                await reflector.watch(version, report)
        except Exception as error:  # noqa: BLE001  # pods are scheduled without pulls too
            errors.failed(error, "reading events failed, trying again: %s")
            await asyncio.sleep(next(waits_s))


async def _watch_until_relist(
    reflector: "Reflector[Any]",
    version: str,
    changes: asyncio.Queue[ClusterChange | None],
) -> None:
    try:
        if version == _NOT_LISTED:
            await reflector.wait_until_readable()
        else:
            await reflector.watch(version, changes.put_nowait)
    finally:
        changes.put_nowait(None)


@dataclass(frozen=True, slots=True)
class Reflector(Generic[T]):
    """Lists and watches one kind."""

    server: ApiServer
    reachability: ReachabilityLog
    watch_s: tuple[int, int]  # the least and the most time after which the server is to end a watch
    late_s: float  # a watch that lasts longer by this is given up
    path: str
    read: Callable[[object], T | None]  # converts an object, as JSON; None when it is to be ignored
    # changed, deleted: make the change to report.
    changed: Callable[[T], Any]
    deleted: Callable[[T], Any]
    # The objects to report while the kind can't be read or the server does not have it; None for a
    # kind without which nothing works.
    placeholders: Callable[[ClusterError], tuple[T, ...]] | None = None
    # A field selector, as query parameters.
    selected: Mapping[str, str] = field(default_factory=dict)

    async def list(self) -> tuple[tuple[T, ...], str]:
        """All objects and their resource version. Retries until the server answers, or refuses
        for good a kind that has placeholders."""
        waits_s = backoffs_s()
        while True:
            try:
                listed = await self._list_pages()
            except ExpiredError:
                pass  # reading the pages took longer than the server keeps them
            except ClusterError as error:
                # The server answers 404 for a kind that it does not have.
                if self.placeholders and isinstance(error, InvalidError | NotFoundError):
                    self.reachability.succeeded(self.path)  # it answers again
                    return self.placeholders(error), _NOT_LISTED
                self.reachability.failed(self.path, error)
            else:
                self.reachability.succeeded(self.path)
                return listed
            await asyncio.sleep(next(waits_s))

    async def watch(self, version: str, report: Callable[[Any], None]) -> None:
        """Report every change after `version`. Returns when all must be listed again: the server
        no longer keeps these changes, or no longer serves the kind."""
        waits_s = backoffs_s()
        placeholders: tuple[T, ...] = ()
        is_odd = False  # the last one was opened, and then was no watch
        while True:
            is_open = False
            watch_s, began_s = _RANDOM.randint(*self.watch_s), time.monotonic()
            query = {
                **self.selected,
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(watch_s),
            }
            try:
                async with self.server.stream(self.path, query, watch_s + self.late_s) as events:
                    is_open = True
                    if not is_odd:
                        self.reachability.succeeded(self.path)
                    for placeholder in placeholders:
                        report(self.deleted(placeholder))
                    placeholders = ()
                    async for event in events:
                        self.reachability.succeeded(self.path)
                        version = self._report(event, report) or version
                        is_odd = False
            except ExpiredError as error:
                _log.info("listing again after the watch of %s: %s", self.path, error)
                return
            except ClusterError as error:
                gone = self.placeholders and isinstance(error, NotFoundError)
                if gone and await self._list_fails_with(NotFoundError):
                    return
                placeholders = self._refused(error, placeholders, report)
                is_odd = is_open
            if time.monotonic() - began_s < _MIN_WATCH_S:
                await asyncio.sleep(next(waits_s))
            else:
                waits_s = backoffs_s()

    def _refused(
        self, error: ClusterError, placeholders: tuple[T, ...], report: Callable[[Any], None]
    ) -> tuple[T, ...]:
        """The placeholders after a watch was refused; they are reported if they are new."""
        if self.placeholders is None or not isinstance(error, InvalidError):
            self.reachability.failed(self.path, error)
            return placeholders
        self.reachability.succeeded(self.path)  # it answers again
        if not placeholders:
            placeholders = self.placeholders(error)
            for placeholder in placeholders:
                report(self.changed(placeholder))
        return placeholders

    async def wait_until_readable(self) -> None:
        """Return when the server serves what it refused to list."""
        for wait_s in backoffs_s(1.0, 60.0):
            await asyncio.sleep(wait_s)
            if not await self._list_fails_with(ClusterError):
                return

    async def _list_fails_with(self, kind: type[ClusterError]) -> bool:
        try:
            await self.server.get(self.path, limit="1", **self.selected)
        except ClusterError as error:
            return isinstance(error, kind)
        return False

    async def _list_pages(self) -> tuple[tuple[T, ...], str]:
        found: list[T] = []
        query = {**self.selected, "limit": str(_PAGE_SIZE)}
        while True:
            try:
                page = decode(await self.server.get(self.path, **query), _Page, self.path)
            except FieldError as error:
                raise UnavailableError(f"the answer is not a list: {error}") from None
            for number, manifest in enumerate(page.items):
                if (known := self.read(manifest)) is not None:
                    found.append(known)
                if number % _AT_ONCE == 0:  # others have their turn meanwhile
                    await asyncio.sleep(0)
            if not page.metadata.more:
                return tuple(found), page.metadata.resource_version
            query["continue"] = page.metadata.more

    def _report(self, event: WatchEvent, report: Callable[[Any], None]) -> str:
        """Report the change of an event. Returns its version. Raises the ClusterError of an ERROR
        event."""
        try:
            about = decode(event.object, _Object, "event.object")
        except FieldError as error:
            _log.warning("watch of %s: %s; the event is left out", self.path, error)
            return ""
        if event.type == "ERROR":
            raise error_for(about.code, about.message)
        if event.type != "BOOKMARK" and (known := self.read(event.object)) is not None:
            report((self.deleted if event.type == "DELETED" else self.changed)(known))
        return about.metadata.resource_version


def backoffs_s(first_s: float = 0.2, longest_s: float = 10.0) -> Iterator[float]:
    """Waits that double from `first_s` to `longest_s`, each with a jitter of half its length, so
    that controllers that lost the server together don't return together."""
    ceiling_s = first_s
    while True:
        yield ceiling_s * _RANDOM.uniform(0.5, 1.0)
        ceiling_s = min(2 * ceiling_s, longest_s)

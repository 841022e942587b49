"""One kind of object on the API server: all of them, and every change from exactly there."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Generic, TypeVar

from leadline_controller.core.model import Node, Pod
from leadline_controller.core.ports import ClusterChange, ClusterError
from leadline_controller.kube.backoff import Backoff
from leadline_controller.kube.client import ApiServer, ExpiredError, Json, error_for
from leadline_controller.kube.contact import Contact

_WATCH_S = (240, 300)
_PAGE = 500
_log = logging.getLogger(__name__)
T = TypeVar("T", Node, Pod)


@dataclass(frozen=True, slots=True)
class Reflector(Generic[T]):
    """Lists and follows one kind.

    read: an object as the core has it, None when it is to be left out. changed, gone: what to
    tell of it. silence_s: a watch without a byte for so long is dead.
    """

    server: ApiServer
    contact: Contact
    path: str
    read: Callable[[Json], T | None]
    changed: Callable[[T], ClusterChange]
    gone: Callable[[T], ClusterChange]
    silence_s: float

    async def list(self) -> tuple[tuple[T, ...], str]:
        """All objects, and the version that they are from. Asks until it gets them."""
        backoff = Backoff()
        while True:
            try:
                found = await self._list_once()
            except ExpiredError:
                pass  # reading the pages took longer than the server keeps them
            except ClusterError as error:
                self.contact.lost(self.path, error)
            else:
                self.contact.back(self.path)
                return found
            await asyncio.sleep(backoff.next_s())

    async def follow(self, version: str, tell: Callable[[ClusterChange], None]) -> None:
        """Tell of every change after `version`. Returns when the server no longer has those."""
        backoff = Backoff()
        while True:
            query = {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                # Spread, so that all the watches of a cluster are not renewed at once.
                "timeoutSeconds": str(SystemRandom().randint(*_WATCH_S)),
            }
            try:
                async with self.server.stream(self.path, query, self.silence_s) as events:
                    self.contact.back(self.path)
                    async for event in events:
                        version = self._take(event, tell) or version
                        backoff.reset()
            except ExpiredError as error:
                _log.info("the cluster is listed again: %s", error)
                return
            except ClusterError as error:
                self.contact.lost(self.path, error)
            await asyncio.sleep(backoff.next_s())

    async def _list_once(self) -> tuple[tuple[T, ...], str]:
        found: list[T] = []
        query = {"limit": str(_PAGE)}
        while True:
            page = await self.server.get(self.path, **query)
            for manifest in page.get("items") or ():
                if (thing := self.read(manifest)) is not None:
                    found.append(thing)
            metadata = page.get("metadata", {})
            if not metadata.get("continue"):
                return tuple(found), str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    def _take(self, event: Json, tell: Callable[[ClusterChange], None]) -> str:
        """Tell of one event. Returns its version. Raises ClusterError for an ERROR event."""
        thing: Json = event.get("object") or {}
        metadata = thing.get("metadata") or {}
        if event.get("type") == "ERROR":
            raise error_for(int(thing.get("code") or 500), str(thing.get("message", "")))
        if event.get("type") != "BOOKMARK" and (known := self.read(thing)) is not None:
            tell((self.gone if event.get("type") == "DELETED" else self.changed)(known))
        return str(metadata.get("resourceVersion", ""))

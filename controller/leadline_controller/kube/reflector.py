"""One kind of object on the API server: all of them, and every change from exactly there."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Generic, TypeVar

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    ClusterError,
    InvalidError,
    NotFoundError,
)
from leadline_controller.framework.resources import Resource
from leadline_controller.kube.backoff import Backoff
from leadline_controller.kube.client import ApiServer, ExpiredError, Json, error_for
from leadline_controller.kube.contact import Contact

_WATCH_S = (240, 300)
_PAGE = 500
_log = logging.getLogger(__name__)
# A cluster without the kind says 404, which is what a pod that is gone gets as well.
_REFUSALS = (InvalidError, NotFoundError)
_NO_VERSION = ""
T = TypeVar("T", bound=Node | Pod | Resource)


@dataclass(frozen=True, slots=True)
class Reflector(Generic[T]):
    """Lists and follows one kind.

    read: an object as the core has it, None when it is to be left out. changed, gone: what to
    tell of it. silence_s: a watch without a byte for so long is dead. stand_in: what there is
    while they may not be read or the server has no such kind; None where nothing works without
    them.
    """

    server: ApiServer
    contact: Contact
    path: str
    read: Callable[[Json], T | None]
    changed: Callable[[T], ClusterChange]
    gone: Callable[[T], ClusterChange]
    silence_s: float
    stand_in: Callable[[ClusterError], tuple[T, ...]] | None = None

    async def list(self) -> tuple[tuple[T, ...], str]:
        """All objects, and the version that they are from. Asks until it gets them, or learns
        that it may not."""
        backoff = Backoff()
        while True:
            try:
                found = await self._list_once()
            except ExpiredError:
                pass  # reading the pages took longer than the server keeps them
            except ClusterError as error:
                if self.stand_in is not None and isinstance(error, _REFUSALS):
                    return self.stand_in(error), _NO_VERSION
                self.contact.lost(self.path, error)
            else:
                self.contact.back(self.path)
                return found
            await asyncio.sleep(backoff.next_s())

    async def follow(self, version: str, tell: Callable[[ClusterChange], None]) -> None:
        """Tell of every change after `version`. Returns when all is to be listed again: the
        server no longer has those changes or that kind, or what it refused it now has."""
        if version == _NO_VERSION:
            await self._until_allowed()
            return
        backoff = Backoff()
        refused: tuple[T, ...] = ()
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
                    for each in refused:
                        tell(self.gone(each))
                    refused = ()
                    async for event in events:
                        version = self._take(event, tell) or version
                        backoff.reset()
            except ExpiredError as error:
                _log.info("the cluster is listed again: %s", error)
                return
            except ClusterError as error:
                if await self._is_not_served(error):
                    return
                refused = self._refused(error, refused, tell)
            await asyncio.sleep(backoff.next_s())

    def _refused(
        self, error: ClusterError, before: tuple[T, ...], tell: Callable[[ClusterChange], None]
    ) -> tuple[T, ...]:
        """A watch was refused. before: what stood in already. Returns what stands in now."""
        if self.stand_in is None or not isinstance(error, InvalidError):
            self.contact.lost(self.path, error)
            return before
        if before:
            return before
        stand_ins = self.stand_in(error)
        for each in stand_ins:
            tell(self.changed(each))
        return stand_ins

    async def _is_not_served(self, error: ClusterError) -> bool:
        known = self.stand_in is not None and isinstance(error, NotFoundError)
        return known and await self._is_refused(NotFoundError)

    async def _until_allowed(self) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            await asyncio.sleep(backoff.next_s())
            # It was said that they can't be read.
            if not await self._is_refused(ClusterError):
                return

    async def _is_refused(self, how: type[ClusterError]) -> bool:
        """Whether a list is refused so."""
        try:
            await self.server.get(self.path, limit="1")
        except ClusterError as error:
            return isinstance(error, how)
        return False

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

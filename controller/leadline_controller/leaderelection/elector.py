"""Takes the Lease, renews it, and gives it back: the loop around the rules of an election."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from random import SystemRandom
from typing import Any

from leadline_controller.framework.ports import Clock, ClusterError, LeaseChangedError, LeaseStore
from leadline_controller.leaderelection.lease import LeaseTiming, ObservedLease

log = logging.getLogger(__name__)

_RANDOM = SystemRandom()
_LEAST_PAUSE_S = 0.1


class LeaderElector:
    """One candidate. It leads only while `run` runs.

    identity: as nobody else has it, also not an earlier process of ours. clock: one that goes on
    while the machine sleeps. beat: called each time that it has looked after the Lease.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        clock: Clock,
        timing: LeaseTiming | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._beat = beat
        self._store = store
        self._identity = identity
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._observed = ObservedLease(identity, self._timing)
        self._renewed = asyncio.Event()
        self._written = asyncio.Event()
        self._told: str | None = None

    def leads(self) -> bool:
        """Whether this controller may begin something now."""
        return self._observed.leads(self._clock.now_s())

    def left_s(self) -> float:
        """Seconds within which what is asked for must have taken effect."""
        return self._observed.left_s(self._clock.now_s())

    def holder(self) -> str:
        """Who holds the Lease, as last seen."""
        return self._observed.record.holder if self._observed.record else ""

    async def wait(self) -> None:
        """Wait until this controller leads."""
        while not self.leads():
            self._renewed.clear()
            await self._renewed.wait()

    async def run(self) -> None:
        """Stand for election until cancelled, and then give the Lease back."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stand())
                group.create_task(self._follow())
        finally:
            await self._release()

    async def _stand(self) -> None:
        while True:
            try:
                await self._try()
            except ClusterError as error:
                log.debug("the Lease: %s", error)  # the store says what a person must know
            self._tell()
            self._beat()
            await self._pause(self._observed.pause_s(self._clock.now_s(), _RANDOM.random()))

    async def _follow(self) -> None:
        """Have the Lease looked at as soon as another wrote it. What is told may be past, so it
        is only a reason to look: a leader looks by renewing, which fails if it lost the Lease."""
        while True:
            try:
                async with aclosing(self._store.follow()) as holders:
                    async for holder in holders:
                        if holder != self._identity:
                            self._written.set()
            except ClusterError as error:
                log.debug("the Lease: %s", error)
            await self._clock.sleep(self._timing.retry_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait so long, or until another wrote the Lease, however often that is."""
        least_s = min(pause_s, _LEAST_PAUSE_S)
        await self._clock.sleep(least_s)
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._written.wait()),
            asyncio.ensure_future(self._clock.sleep(pause_s - least_s)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._written.clear()

    async def _try(self) -> None:
        """Where another wrote meanwhile nothing more is begun, and it is looked at once more."""
        for _ in range(2):
            try:
                await self._look()
            except LeaseChangedError:
                self._observed.observe(None, self._clock.now_s())
            else:
                return

    async def _look(self) -> None:
        """Renew what is ours without a look; else look, and take what is free."""
        observed = self._observed
        if not self._is_ours():
            observed.observe(await self._store.read(), self._clock.now_s())
        asked_s = self._clock.now_s()
        if observed.may_write(asked_s):
            duration_s = self._timing.duration_s
            record = await self._store.write(self._identity, duration_s, observed.record)
            observed.renewed(record, asked_s)
            self._renewed.set()

    async def _release(self) -> None:
        """So that another need not wait until it expires; when it fails, that is what happens."""
        record = self._observed.record
        self._observed.observe(None, self._clock.now_s())
        if record is None or record.holder != self._identity:
            return
        try:
            await self._store.write("", 1, record)
        except ClusterError as error:
            log.debug("the Lease: %s", error)

    def _is_ours(self) -> bool:
        return self.holder() == self._identity

    def _tell(self) -> None:
        """Say who leads, once for each change."""
        leads, holder = self.leads(), self.holder()
        if leads:
            say = f"leading as {self._identity}"
        elif holder in ("", self._identity):
            say = "standing by: the Lease could not be renewed"
        else:
            say = f"standing by: {holder} leads"
        if say != self._told:
            self._told = say
            log.info("%s", say)

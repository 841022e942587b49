"""The loop of leader election: acquires the Lease, renews it and releases it."""

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
_MIN_PAUSE_S = 0.1


class LeaderElector:
    """One candidate. It leads only while `run` runs.

    identity: unique, also among earlier processes of this machine. clock: one that goes on while
    the machine sleeps. beat: called after each attempt to acquire or renew the Lease.
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
        self._changed = asyncio.Event()
        self._logged: str | None = None

    def leads(self) -> bool:
        """Whether this controller may start an action now."""
        return self._observed.leads(self._clock.now_s())

    def left_s(self) -> float:
        """Seconds within which the leader's requests must take effect."""
        return self._observed.left_s(self._clock.now_s())

    def holder(self) -> str:
        """The holder of the Lease, as last seen; empty when there is none."""
        return self._observed.record.holder if self._observed.record else ""

    async def wait(self) -> None:
        """Wait until this controller leads."""
        while not self.leads():
            self._renewed.clear()
            await self._renewed.wait()

    async def run(self) -> None:
        """Compete for the Lease until cancelled, then release it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew_loop())
                group.create_task(self._follow())
        finally:
            await self._release()

    async def _renew_loop(self) -> None:
        while True:
            try:
                await self._try_acquire_or_renew()
            except ClusterError as error:
                log.debug("the Lease: %s", error)  # the store logs it for the operator
            self._log_leader()
            self._beat()
            await self._pause(self._observed.pause_s(self._clock.now_s(), _RANDOM.random()))

    async def _follow(self) -> None:
        """End the pause as soon as another controller wrote the Lease. The news may be old, so it
        only triggers the next attempt: a renewal, which fails if the leader lost the Lease."""
        while True:
            try:
                async with aclosing(self._store.follow()) as holders:
                    async for holder in holders:
                        if holder != self._identity:
                            self._changed.set()
            except ClusterError as error:
                log.debug("the Lease: %s", error)
            await self._clock.sleep(self._timing.retry_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait `pause_s`, or until another controller wrote the Lease, but not less than 0.1 s."""
        least_s = min(pause_s, _MIN_PAUSE_S)
        await self._clock.sleep(least_s)
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._changed.wait()),
            asyncio.ensure_future(self._clock.sleep(pause_s - least_s)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._changed.clear()

    async def _try_acquire_or_renew(self) -> None:
        """Renew an own Lease without reading it; otherwise read it, and acquire it if it is free.
        After a conflict the controller no longer leads, and tries once more."""
        observed = self._observed
        for _ in range(2):
            try:
                if self.holder() != self._identity:
                    observed.observe(await self._store.read(), self._clock.now_s())
                sent_s = self._clock.now_s()
                if observed.may_acquire(sent_s):
                    duration_s = self._timing.duration_s
                    record = await self._store.write(self._identity, duration_s, observed.record)
                    observed.renewed(record, sent_s)
                    self._renewed.set()
            except LeaseChangedError:
                observed.observe(None, self._clock.now_s())
            else:
                return

    async def _release(self) -> None:
        """Free the Lease, so that others need not wait until it expires; a failure is harmless."""
        record = self._observed.record
        self._observed.observe(None, self._clock.now_s())
        if record is None or record.holder != self._identity:
            return
        try:
            await self._store.write("", 1, record)
        except ClusterError as error:
            log.debug("the Lease: %s", error)

    def _log_leader(self) -> None:
        """Log who leads, once for each change."""
        leads, holder = self.leads(), self.holder()
        if leads:
            line = f"leading as {self._identity}"
        elif holder in ("", self._identity):
            line = "standing by: the Lease could not be renewed"
        else:
            line = f"standing by: {holder} leads"
        if line != self._logged:
            self._logged = line
            log.info("%s", line)

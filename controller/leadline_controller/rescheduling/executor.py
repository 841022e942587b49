"""Carries a plan out, one move after the other, so that no pod is lost whoever is killed when.

A move evicts its pod; the pod's owner makes another one, which the scheduler binds to the room
that is reserved for it. After each move the world is looked at again: a move that fails, or that
no longer makes sense, cancels those after it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    BudgetError,
    Clock,
    Cluster,
    ClusterError,
    ConflictError,
    InvalidError,
    Leadership,
    NotFoundError,
    NotLeadingError,
    PodEvent,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.rescheduling.journal import Journal, MoveNote
from leadline_controller.rescheduling.plan import Plan, PlannedMove

log = logging.getLogger(__name__)

Ending = Literal["moved", "elsewhere", "refused", "failed", "cancelled"]
_REFUSED_AGAIN_S = (5.0, 10.0, 15.0)
_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended. moved: its replacement runs on the target. elsewhere: it runs on another
    node. refused: nothing was done. failed: it began, and did not end as planned. cancelled: a
    move before it did not end as planned, or the plan was stopped."""

    move: PlannedMove
    ending: Ending
    why: str = ""


class _StoppedError(Exception):
    """A move cannot go on. ending: what to report."""

    def __init__(self, ending: Ending, why: str) -> None:
        super().__init__(why)
        self.ending: Ending = ending


@dataclass(frozen=True, slots=True)
class ExecutorHooks:
    """What the executor asks and tells. refusal(move): why it must not begin now, as the world is;
    empty if it may. requeue: told of room that is free again. record: told what happens to a pod,
    its key and a sentence. now_unix_s: None while the clock is not set."""

    refusal: Callable[[PlannedMove], str]
    now_unix_s: Callable[[], float | None]
    requeue: Callable[[ClusterEvent], None] = lambda _: None
    record: Callable[[str, str], None] = lambda _pod, _what: None


class Executor:
    """Carries plans out, one at a time, while it leads. timeout_s: for each wait, such as for the
    replacement to be ready."""

    def __init__(
        self,
        cluster: Cluster,
        state: ClusterState,
        journal: Journal,
        hooks: ExecutorHooks,
        clock: Clock,
        leadership: Leadership,
        timeout_s: float = 300.0,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._journal = journal
        self._hooks = hooks
        self._clock = clock
        self._leadership = leadership
        self._timeout_s = timeout_s
        self._changed = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def observe(self) -> None:
        """The state has changed."""
        self._changed.set()

    async def carry_out(self, plan: Plan) -> list[MoveOutcome]:
        """Make the moves in turn. Returns an outcome for each; raises nothing of the cluster's."""
        outcomes: list[MoveOutcome] = []
        async with self._one_at_a_time:
            stopped = ""
            for move in plan.moves:
                if stopped:
                    outcomes.append(MoveOutcome(move, "cancelled", stopped))
                    continue
                outcome = await self._move(move)
                outcomes.append(outcome)
                log.info("moving %s from %s to %s: %s", *_names(move), _said(outcome))
                if outcome.ending != "moved":
                    stopped = f"{move.pod.key} before it: {_said(outcome)}"
        return outcomes

    async def _move(self, move: PlannedMove) -> MoveOutcome:
        reserved = False
        try:
            note = self._checked(move)
            reservation = Reservation(move.pod, move.target, move.source, move.why)
            self._state.reserve(reservation)
            reserved = True
            await self._begin(note)
        except _StoppedError as stop:
            if reserved:
                self._hooks.requeue(self._state.release(move.pod.uid))
            return MoveOutcome(move, stop.ending, str(stop))
        return await self._ended(move, self._evict_and_follow(move, note))

    async def _ended(self, move: PlannedMove, steps: Coroutine[Any, Any, None]) -> MoveOutcome:
        """Take the steps of a move that has begun, and note how it ended."""
        try:
            await steps
            outcome = MoveOutcome(move, "moved")
        except _StoppedError as stop:
            outcome = MoveOutcome(move, stop.ending, str(stop))
        finally:
            self._hooks.requeue(self._state.release(move.pod.uid))
        if self._leadership.leads():
            with suppress(ClusterError):  # else whoever leads next finds out how it ended
                await self._journal.end(move.pod.uid, _said(outcome))
        self._hooks.record(move.pod.key, f"{_said(outcome)}: {move.why}")
        return outcome

    def _checked(self, move: PlannedMove) -> MoveNote:
        """The note of a move that may begin now. Raises _StoppedError."""
        now_s = self._hooks.now_unix_s()
        if not self._leadership.leads():
            raise _StoppedError("refused", "this controller does not lead")
        if now_s is None:
            raise _StoppedError("refused", "the clock is not set, so budgets cannot be kept")
        if self._journal.pause is not None and self._journal.pause.holds(now_s):
            raise _StoppedError("refused", "rescheduling is paused")
        pod = self._state.pod(move.pod.uid)
        if pod is None or pod.node_name != move.source:
            raise _StoppedError("refused", f"it is no longer on {move.source}")
        owner = pod.owner.uid if pod.owner else ""
        reason = self._journal.refusal(now_s, owner, (move.source, move.target))
        if reason := reason or self._hooks.refusal(move):
            raise _StoppedError("refused", reason)
        newest = (p.created_s or 0.0 for p, _ in self._state.pods() if _is_of(p, owner))
        return MoveNote(
            pod.uid, pod.key, owner, move.source, move.target, now_s, max(newest, default=0.0)
        )

    async def _begin(self, note: MoveNote) -> None:
        try:
            await self._journal.begin(note)
        except ClusterError as error:
            raise _StoppedError("refused", f"the move could not be noted: {error}") from None

    async def _evict_and_follow(self, move: PlannedMove, note: MoveNote) -> None:
        await self._evict(move)
        await self._tell(move.pod, f"Moving to {move.target}: {move.why}")
        await self._follow(move, note)

    async def _evict(self, move: PlannedMove) -> None:
        """Raises _StoppedError when the pod was not evicted, as far as one can tell."""
        waits_s = iter(_REFUSED_AGAIN_S)
        while True:
            try:
                await self._cluster.evict(move.pod)
            except BudgetError as error:
                wait_s = next(waits_s, None)
                if wait_s is None:
                    raise _StoppedError("refused", str(error)) from None
                await self._clock.sleep(wait_s)
                if reason := self._hooks.refusal(move):
                    raise _StoppedError("refused", reason) from None
                continue
            except (NotFoundError, ConflictError) as error:
                raise _StoppedError("failed", f"somebody else deleted it: {error}") from None
            except (InvalidError, NotLeadingError) as error:
                raise _StoppedError("refused", str(error)) from None
            except ClusterError as error:
                # It may have been evicted all the same; only the watch can tell.
                if not await self._until(lambda: not self._is_here(move)):
                    raise _StoppedError("failed", str(error)) from None
            return

    def _is_here(self, move: PlannedMove) -> bool:
        pod = self._state.pod(move.pod.uid)
        return pod is not None and not pod.terminating and not pod.finished

    async def _follow(self, move: PlannedMove, note: MoveNote) -> None:
        """Wait until the replacement is ready on the target. Raises _StoppedError."""
        found: list[Pod] = []

        def is_ready() -> bool:
            found[:] = self._replacements(move, note)
            return any(pod.ready for pod in found)

        if not await self._until(is_ready):
            where = found[0].node_name if found else None
            seen = f"its replacement on {where} is not ready" if where else "it has no replacement"
            raise _StoppedError("failed", f"{seen} after {self._timeout_s:.0f} s")
        nodes = {pod.node_name for pod in found if pod.ready}
        if move.target not in nodes:
            node = ", ".join(sorted(filter(None, nodes)))
            raise _StoppedError("elsewhere", f"its replacement is on {node}")

    def _replacements(self, move: PlannedMove, note: MoveNote) -> list[Pod]:
        """The bound pods that its owner made for it: the one in its room, or newer ones."""
        own = self._state.replacement_of(move.pod.uid)
        if own is not None:
            return [own] if own.node_name is not None else []
        return [
            pod
            for pod, _ in self._state.pods()
            if _is_of(pod, note.owner)
            and (pod.created_s or 0.0) > note.newest_s
            and pod.uid != note.uid
            and pod.node_name is not None
            and not pod.terminating
            and not pod.finished
        ]

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds; false after the time-out. Raises _StoppedError if this
        controller no longer leads: whoever does goes on from the notes."""
        until_s = self._clock.now_s() + self._timeout_s
        while not holds():
            if not self._leadership.leads():
                raise _StoppedError(
                    "failed", "this controller no longer leads; the next leader goes on"
                )
            left_s = until_s - self._clock.now_s()
            if left_s <= 0:
                return False
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            # Whether it still leads is nothing that the watch tells.
            slept = asyncio.ensure_future(self._clock.sleep(min(left_s, _POLL_S)))
            try:
                await asyncio.wait((changed, slept), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                slept.cancel()
        return True

    async def _tell(self, pod: Pod, message: str) -> None:
        with suppress(ClusterError):
            await self._cluster.record_event(
                pod, PodEvent("Normal", "Rescheduling", message[:1024])
            )


def _is_of(pod: Pod, owner: str) -> bool:
    return pod.owner is not None and pod.owner.uid == owner


def _names(move: PlannedMove) -> tuple[str, str, str]:
    return move.pod.key, move.source, move.target


def _said(outcome: MoveOutcome) -> str:
    return f"{outcome.ending}: {outcome.why}" if outcome.why else outcome.ending

"""Carries a plan out, one move after the other, so that no pod is lost whoever is killed when.

A move either evicts its pod, whose owner then makes another one; or, where the owner is a
Deployment that nobody else scales, the replacement comes first: one replica more, and when it is
ready, one less, which is the old pod by its deletion cost. The scheduler binds the replacement to
the room that is reserved for it. After each move the world is looked at again: a move that fails,
or that no longer makes sense, cancels those after it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Owner, Pod
from leadline_controller.framework.ports import (
    BudgetError,
    Clock,
    Cluster,
    ClusterError,
    ConflictError,
    Event,
    ForbiddenError,
    InvalidError,
    Leadership,
    NotFoundError,
    NotLeadingError,
    Workload,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.kubeobjects.manifest import DELETION_COST, GOES_FIRST
from leadline_controller.logs import ErrorLog
from leadline_controller.rescheduling.journal import Journal, MoveNote
from leadline_controller.rescheduling.plan import Plan, PlannedMove
from leadline_controller.waiting import within

log = logging.getLogger(__name__)

Ending = Literal["moved", "elsewhere", "refused", "failed", "cancelled"]
FIRST = "none: its replacement is ready first"
_EVICT_AGAIN_S = (5.0, 10.0, 15.0)
_WRITE_AGAIN_S = 2.0
_POLL_S = 1.0
# An API server that has just started may answer 404 about what exists.
_NOT_FOUND_TIMES = 5


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended. moved: its replacement runs on the target. elsewhere: it runs on another
    node. refused: nothing was done. failed: it began, and did not end as planned. cancelled: a
    move before it did not end as planned."""

    move: PlannedMove
    ending: Ending
    why: str = ""

    def __str__(self) -> str:
        return f"{self.ending}: {self.why}" if self.why else self.ending


class _StoppedError(Exception):
    """A move cannot go on. ending: what to report."""

    def __init__(self, ending: Ending, why: str) -> None:
        super().__init__(why)
        self.ending: Ending = ending


class _ExtraStaysError(_StoppedError):
    """The extra replica could not be removed: the note stays open, for whoever leads next."""


class _NotLeadingError(Exception):
    """This controller no longer leads: whoever does goes on from the notes."""


@dataclass(frozen=True, slots=True)
class ExecutorHooks:
    """What the executor asks and tells."""

    refusal: Callable[[PlannedMove], str]  # why it must not begin now; empty if it may
    # Whether the target has room while the old pod still runs.
    fits_beside: Callable[[PlannedMove], bool]
    now_unix_s: Callable[[], float | None]  # None while the clock is not set
    requeue: Callable[[ClusterEvent], None] = lambda _: None  # told of room that is free again
    # Told what happens to a pod: its key and a sentence.
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
        # Of all moves so far. Counters begin at 0, so that Prometheus sees the first one.
        self.endings: Counter[Ending] = Counter(dict.fromkeys(get_args(Ending), 0))
        self._changed = asyncio.Event()
        self._unended: dict[str, str] = {}  # uid -> how its move ended; not noted yet

    def observe(self) -> None:
        """The state has changed."""
        self._changed.set()

    async def carry_out(self, plan: Plan) -> list[MoveOutcome]:
        """Make the moves in turn. Returns an outcome for each; raises nothing of the cluster's."""
        outcomes: list[MoveOutcome] = []
        stopped = ""
        for move in plan.moves:
            if stopped:
                outcome = MoveOutcome(move, "cancelled", stopped)
            else:
                outcome = await self._move(move)
                if outcome.ending == "moved" and move.makes_room and not await self._leaves(move):
                    outcome = MoveOutcome(move, "failed", "the old pod does not end")
                log.info("moving %s from %s to %s: %s", *_names(move), outcome)
            if outcome.ending not in ("moved", "cancelled"):
                stopped = f"{move.pod.key} before it: {outcome}"
            self.endings[outcome.ending] += 1
            outcomes.append(outcome)
        return outcomes

    async def _leaves(self, move: PlannedMove) -> bool:
        """Wait until the old pod has ended: the next move, or a pending pod, may need its room,
        which it has until then. Returns whether it has."""
        with suppress(_NotLeadingError):
            return await self._until(
                lambda: (old := self._state.pod(move.pod.uid)) is None or old.finished
            )
        return False

    async def replacement_first(self, pod: Pod) -> Workload | None:
        """The Deployment that can have one replica more while this pod moves; None if the pod must
        be evicted. Raises ClusterError."""
        # Two pods cannot write to one volume from two nodes.
        if pod.owner is None or pod.claims:
            return None
        workload = await self._cluster.deployment(pod.namespace, pod.owner)
        if workload is None or workload.autoscaled or workload.recreates or workload.replicas < 1:
            return None
        return workload

    # The notes of an earlier leader.

    async def adopt(self) -> list[MoveNote]:
        """Reserve room for the moves that another leader began, before any pod is placed. Returns
        those that are to be finished. Raises ClusterError."""
        await self._journal.load()
        self._unended.clear()
        unfinished = []
        for note in self._journal.begun():
            if await self._is_open(note):
                taker = min(
                    self._replacements(note), key=lambda p: p.created_s or 0.0, default=None
                )
                self._state.reserve(self._reservation(note), taker)
                unfinished.append(note)
            else:
                await self._end(note.uid, "not begun, or finished by an earlier leader")
                pods = [self._state.pod(note.uid), *self._replacements(note)]
                await self._restore_costs(note, pods)
        return unfinished

    async def _is_open(self, note: MoveNote) -> bool:
        """Whether a noted move is to be finished. One answer about one move that is missing or
        wrong must not keep the others: then it is, and `finish` asks again."""
        if not note.deployment:
            return not self._is_here(note.uid)
        try:
            workload = await self._workload(note)
        except NotLeadingError:
            raise
        except ClusterError as error:
            log.warning("Deployment %s: %s", note.deployment, error)
            return True
        return workload is None or workload.extra == note.uid

    async def finish(self, notes: list[MoveNote]) -> None:
        """Finish or undo the moves that `adopt` returned."""
        for note in notes:
            pod = self._reservation(note).pod
            move = PlannedMove(pod, note.source, note.target, "begun by an earlier leader")
            steps = self._finish_extra if note.deployment else self._follow
            outcome = await self._ended(move, note, steps(note))
            self.endings[outcome.ending] += 1
            log.info(
                "moving %s from %s to %s, begun by an earlier leader: %s", *_names(move), outcome
            )

    def _reservation(self, note: MoveNote) -> Reservation:
        """The room for a noted move, as large as a pod of the same workload."""
        namespace, _, name = note.pod.partition("/")
        alike = (pod for pod, _ in self._state.pods() if _is_of(pod, note.owner))
        pod = self._state.pod(note.uid) or next(alike, None)
        if pod is None:
            pod = Pod(namespace, name, owner=Owner(note.kind, "", note.owner))
        pod = replace(pod, name=name, uid=note.uid, node_name=note.source, deletion_cost=note.cost)
        return Reservation(pod, note.target, note.source, "a move that another controller began")

    # One move.

    async def _move(self, move: PlannedMove) -> MoveOutcome:
        try:
            note, workload = await self._checked(move)
        except _StoppedError as stop:
            return MoveOutcome(move, stop.ending, str(stop))
        pod = replace(move.pod, deletion_cost=note.cost)
        self._state.reserve(Reservation(pod, move.target, move.source, move.why))
        try:
            await self._journal.begin(note)
        except ClusterError as error:
            self._hooks.requeue(self._state.unreserve(note.uid))
            outcome = MoveOutcome(move, "refused", f"the move could not be noted: {error}")
            self._unended[note.uid] = str(outcome)  # it may have been noted all the same
            return outcome
        steps = self._evict(move, note) if workload is None else self._add(move, note, workload)
        return await self._ended(move, note, steps)

    async def _ended(
        self, move: PlannedMove, note: MoveNote, steps: Coroutine[Any, Any, None]
    ) -> MoveOutcome:
        """Take the steps of a move that is noted, and note how it ended."""
        try:
            await steps
            outcome = MoveOutcome(move, "moved")
        except _ExtraStaysError as stop:
            return MoveOutcome(move, stop.ending, str(stop))
        except _StoppedError as stop:
            outcome = MoveOutcome(move, stop.ending, str(stop))
        except (_NotLeadingError, NotLeadingError):
            why = "this controller no longer leads; whoever does goes on"
            return MoveOutcome(move, "failed", why)
        finally:
            self._hooks.requeue(self._state.unreserve(note.uid))
        await self._end(note.uid, str(outcome))
        self._hooks.record(note.pod, f"{outcome}, from {note.source} to {note.target}: {move.why}")
        return outcome

    async def _end(self, uid: str, outcome: str) -> None:
        """Note how a move ended, now or later: a note that stays open counts in the budgets."""
        self._unended[uid] = outcome
        with suppress(ClusterError):
            await self.note_endings()

    async def note_endings(self) -> None:
        """Note how moves ended where that has failed before. Raises ClusterError."""
        for uid, outcome in list(self._unended.items()):
            await self._journal.end(uid, outcome)
            self._unended.pop(uid, None)

    async def _checked(self, move: PlannedMove) -> tuple[MoveNote, Workload | None]:
        """The note of a move that may begin now, and the Deployment if the replacement comes
        first. Raises _StoppedError."""
        now_s, pod = self._hooks.now_unix_s(), self._state.pod(move.pod.uid)
        if not self._leadership.leads():
            raise _StoppedError("refused", "this controller does not lead")
        if now_s is None:
            raise _StoppedError("refused", "the clock is not set, so budgets cannot be kept")
        if pod is None or pod.owner is None or pod.node_name != move.source:
            raise _StoppedError("refused", f"it is no longer on {move.source}")
        workload = await self._read_world(pod)
        if self._journal.is_paused(now_s):
            raise _StoppedError("refused", "rescheduling is paused")
        reason = self._journal.refusal(now_s, pod.owner.uid, (move.source, move.target))
        if reason := reason or self._hooks.refusal(move):
            raise _StoppedError("refused", reason)
        if workload is not None and not self._hooks.fits_beside(move):
            workload = None
        newest = (p.created_s or 0.0 for p, _ in self._state.pods() if _is_of(p, pod.owner.uid))
        note = MoveNote(
            uid=pod.uid,
            pod=pod.key,
            owner=pod.owner.uid,
            kind=pod.owner.kind,
            source=move.source,
            target=move.target,
            begun_s=now_s,
            newest_s=max(newest, default=0.0),
            cost=None if pod.deletion_cost == GOES_FIRST else pod.deletion_cost,
        )
        if workload is not None:
            note = replace(note, deployment=workload.key, replicas=workload.replicas)
        return note, workload

    async def _read_world(self, pod: Pod) -> Workload | None:
        """Read the notes anew, and the Deployment if the replacement comes first. Raises
        _StoppedError."""
        try:
            await self._journal.load()
            await self.note_endings()
            workload = await self.replacement_first(pod)
        except ClusterError as error:
            raise _StoppedError("refused", f"the API server does not say all: {error}") from None
        if workload is not None and workload.extra is not None:
            raise _StoppedError("refused", f"Deployment {workload.name} has an extra replica")
        if workload is not None and not workload.rolled_out:
            raise _StoppedError("refused", f"Deployment {workload.name} has not rolled out")
        return workload

    # By eviction.

    async def _evict(self, move: PlannedMove, note: MoveNote) -> None:
        waits_s = iter(_EVICT_AGAIN_S)
        while True:
            try:
                await self._cluster.evict(move.pod)
            except BudgetError as error:
                if (wait_s := next(waits_s, None)) is None:
                    raise _StoppedError("refused", str(error)) from None
                await self._clock.sleep(wait_s)
                if reason := self._hooks.refusal(move):
                    raise _StoppedError("refused", reason) from None
                continue
            except (NotFoundError, ConflictError) as error:
                raise _StoppedError("failed", f"somebody else deleted it: {error}") from None
            except InvalidError as error:
                raise _StoppedError("refused", str(error)) from None
            except NotLeadingError:
                raise
            except ClusterError as error:
                # It may have been evicted all the same; only the watch can tell.
                if not await self._until(lambda: not self._is_here(note.uid)):
                    raise _StoppedError("refused", str(error)) from None
            break
        await self._tell(move)
        await self._follow(note)

    async def _follow(self, note: MoveNote) -> None:
        """Wait until the replacement is ready on the target. Raises _StoppedError."""
        found: list[Pod] = []

        def is_ready() -> bool:
            found[:] = self._replacements(note)
            return any(pod.ready for pod in found)

        if not await self._until(is_ready):
            where = found[0].node_name if found else None
            seen = f"its replacement on {where} is not ready" if where else "no replacement came"
            raise _StoppedError("failed", f"{seen} after {self._timeout_s:.0f} s")
        nodes = {pod.node_name for pod in found if pod.ready}
        if note.target not in nodes:
            node = ", ".join(sorted(filter(None, nodes)))
            raise _StoppedError("elsewhere", f"its replacement is on {node}")

    def _replacements(self, note: MoveNote) -> list[Pod]:
        """The bound pods that its owner made for it: the one in its room, or newer ones."""
        own = self._state.replacement_of(note.uid)
        if own is not None:
            return [own] if own.node_name is not None else []
        return [
            pod
            for pod, _ in self._state.pods()
            if _is_of(pod, note.owner)
            and (pod.created_s or 0.0) > note.newest_s
            and pod.uid != note.uid
            and pod.node_name is not None
            and self._is_here(pod.uid)
        ]

    # With an extra replica.

    async def _add(self, move: PlannedMove, note: MoveNote, workload: Workload) -> None:
        try:
            await self._cluster.scale(workload, workload.replicas + 1, note.uid)
        except (ConflictError, NotFoundError, InvalidError) as error:
            raise _StoppedError("refused", str(error)) from None
        except NotLeadingError:
            raise
        except ClusterError as error:
            log.warning("Deployment %s: %s", workload.key, error)  # it may have been done
        await self._tell(move)
        await self._finish_extra(note)

    async def _finish_extra(self, note: MoveNote) -> None:
        """Remove the old pod once its replacement is ready on the target; else the extra one."""
        old = self._state.pod(note.uid)
        try:
            await self._follow(note)
            leaving = [] if old is None else [old]
            failure = None
        except _StoppedError as stop:
            await self._restore_costs(note, [old])
            leaving = self._replacements(note)
            failure = stop
        leaving = [pod for pod in leaving if self._is_here(pod.uid)]
        for pod in leaving:
            try:
                await self._insist(partial(self._make_first, pod), self._timeout_s)
            except _StoppedError as stop:
                failure = failure or stop
                continue
            # A ReplicaSet's controller that sees the new number before the cost removes the newest
            # pod. It watches as we do.
            await self._until(partial(self._goes_first, pod.uid))
        try:
            await self._insist(lambda: self._remove_extra(note))
        except _StoppedError as stop:
            raise _ExtraStaysError("failed", f"its extra replica stays: {stop}") from None
        # The cost must stay until the ReplicaSet has acted.
        has_gone = not leaving or await self._until(
            lambda: not all(self._is_here(pod.uid) for pod in leaving)
        )
        await self._restore_costs(note, leaving)
        if failure is not None:
            raise failure
        if not has_gone:
            raise _StoppedError("failed", "another pod of its ReplicaSet was removed instead")

    async def _make_first(self, pod: Pod) -> None:
        """Have its ReplicaSet remove this pod before all others."""
        if self._is_here(pod.uid):
            await self._cluster.annotate(pod, {DELETION_COST: str(GOES_FIRST)})

    def _goes_first(self, uid: str) -> bool:
        pod = self._state.pod(uid)
        return pod is None or pod.deletion_cost == GOES_FIRST or not self._is_here(uid)

    async def _remove_extra(self, note: MoveNote) -> None:
        """Take back the extra replica, unless somebody else has scaled the Deployment since."""
        workload = await self._workload(note)
        if workload is None:
            raise NotFoundError(f"404: Deployment {note.deployment} not found")
        if workload.extra == note.uid:
            is_ours = workload.replicas == note.replicas + 1
            await self._cluster.scale(
                workload, note.replicas if is_ours else workload.replicas, None
            )

    async def _workload(self, note: MoveNote) -> Workload | None:
        namespace, _, name = note.deployment.partition("/")
        return await self._cluster.deployment(namespace, Owner("Deployment", name, ""))

    async def _insist(
        self, write: Callable[[], Coroutine[Any, Any, None]], forbidden_s: float = float("inf")
    ) -> None:
        """Write until it works: an extra replica must not stay. What is not found time after time
        is gone. forbidden_s: how long a 403 is tried again. Raises _StoppedError if it cannot
        work, and _NotLeadingError."""
        errors = ErrorLog(log, logging.WARNING)
        not_found, begun_s = 0, self._clock.now_s()
        while self._leadership.leads():
            try:
                return await write()
            except NotFoundError:
                not_found += 1
                if not_found >= _NOT_FOUND_TIMES:
                    return None
                await self._clock.sleep(_WRITE_AGAIN_S)
            except ConflictError:  # its status changed meanwhile; read it again
                await self._clock.sleep(0.1)
            except ClusterError as error:
                may_pass = not isinstance(error, InvalidError) or (
                    # An API server that has just started says this, too.
                    isinstance(error, ForbiddenError)
                    and self._clock.now_s() - begun_s < forbidden_s
                )
                if not may_pass:
                    raise _StoppedError("failed", str(error)) from None
                errors.failed(str(error), "a move is not finished, trying again: %s")
                await self._clock.sleep(_WRITE_AGAIN_S)
        raise _NotLeadingError

    async def _restore_costs(self, note: MoveNote, pods: Iterable[Pod | None]) -> None:
        """Pods that stay after all are no longer the first to go: each gets the cost that it had.
        `pods` are as they were before; for the old pod the note knows it."""
        for before in pods:
            pod = None if before is None else self._state.pod(before.uid)
            if before is None or pod is None or pod.deletion_cost != GOES_FIRST:
                continue
            if not self._is_here(pod.uid):
                continue
            cost = note.cost if pod.uid == note.uid else before.deletion_cost
            text = None if cost is None or cost == GOES_FIRST else str(cost)
            with suppress(ClusterError):
                await self._cluster.annotate(pod, {DELETION_COST: text})

    # Waiting.

    def _is_here(self, uid: str) -> bool:
        pod = self._state.pod(uid)
        return pod is not None and not pod.terminating and not pod.finished

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds; false after the time-out. Raises _NotLeadingError."""
        until_s = self._clock.now_s() + self._timeout_s
        while not holds():
            if not self._leadership.leads():
                raise _NotLeadingError
            left_s = until_s - self._clock.now_s()
            if left_s <= 0:
                return False
            self._changed.clear()
            # Whether it still leads is nothing that the watch tells.
            await within(self._clock, self._changed.wait(), min(left_s, _POLL_S))
        return True

    async def _tell(self, move: PlannedMove) -> None:
        message = f"Moving from {move.source} to {move.target}: {move.why}"
        with suppress(ClusterError):
            event = Event("Normal", "Rescheduling", message[:1024])
            await self._cluster.record_event(move.pod, event)


def _is_of(pod: Pod, owner: str) -> bool:
    return pod.owner is not None and pod.owner.uid == owner


def _names(move: PlannedMove) -> tuple[str, str, str]:
    return move.pod.key, move.source, move.target

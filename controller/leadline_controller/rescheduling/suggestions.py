"""The moves of a batch strategy (leadline, KubeDSM): those of a plan for pending
pods, and, once an interval, a suggestion without any (Algorithm 2).

KubeDSM's placement manager verifies each step by an event (its Table 3): the pod is deleted,
another one of the same Deployment appears, and the node that it is bound to is the target. The
executor waits for just these, and a step that fails or is contradicted cancels those after it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from leadline_controller.framework.batch import MayGo, Move, suggested_steps
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Leadership
from leadline_controller.framework.view import Bools, ClusterView
from leadline_controller.rescheduling.executor import MoveOutcome
from leadline_controller.rescheduling.journal import MoveNote
from leadline_controller.rescheduling.plan import of_moves
from leadline_controller.rescheduling.rescheduler import Rescheduler
from leadline_controller.scheduling.decision_step import DecisionStep

log = logging.getLogger(__name__)


class Suggestions:
    """Plans and submits the moves of a batch strategy, while this controller leads, rescheduling is
    automatic and not paused, and no other plan is under way."""

    def __init__(
        self, rescheduler: Rescheduler, step: DecisionStep, leadership: Leadership
    ) -> None:
        self._rescheduler = rescheduler
        self._step = step
        self._leadership = leadership

    def may_go(self, view: ClusterView) -> MayGo:
        """The nodes to which a running pod of the view may be moved now: none, or those of which,
        as of its own, all that the strategy needs was measured lately and without doubt."""
        table, none = view.table, view.table.none()
        if self._why_not():
            return lambda _: none
        rescheduler = self._rescheduler
        why_unreliable = rescheduler.why_unreliable(view.for_another_thread())
        why_it_stays, now_s = rescheduler.why_it_stays(), rescheduler.now_unix_s() or 0.0
        # What has just failed would fail again, and users would notice each time.
        failed = {
            note.owner
            for note in rescheduler.journal.of_the_hour(now_s)
            if note.outcome.startswith(("failed", "elsewhere")) and rescheduler.settings.cooldown_s
        }

        def may_go(pod: Pod) -> Bools:
            stays = (pod.owner is not None and pod.owner.uid in failed) or why_it_stays(pod)
            if stays or pod.node_name is None:
                return none
            own = pod.node_name
            return np.array([not why_unreliable(pod, own, name) for name in table.names], np.bool_)

        return may_go

    def have_moved(self, view: ClusterView, moves: Sequence[Move]) -> Awaitable[bool] | None:
        """Submit these moves of pods of `view`, unless they exceed the budgets: a part of them
        could leave the cluster worse than none. True when all are done; None if none begins."""
        why_not = self._why_not() or self._over_budget()(view, moves)
        if why_not:
            log.info("%d moves are not begun: %s", len(moves), why_not)
            return None
        return _all_moved(self._rescheduler.submit(of_moves(self._step.rule.strategy, view, moves)))

    async def run(self, interval_s: float) -> None:
        """Make a suggestion once an interval, until cancelled. An error must not end it."""
        while True:
            await self._step.clock.sleep(interval_s)
            try:
                await self.suggest()
            except Exception as error:  # the next suggestion may work
                log.error("a suggestion failed: %r", error, exc_info=error)

    async def suggest(self) -> int:
        """Plan moves without pending pods, have them made, and wait for that. Returns how many were
        begun."""
        step = self._step
        if self._why_not() or not step.state.listed:
            return 0
        view, over_budget = step.view(), self._over_budget()
        moves = await asyncio.to_thread(
            suggested_steps,
            *(view.for_another_thread(), step.state.staying(view), step.rule, self.may_go(view)),
            # What goes by way of the cloud rests there.
            may_return=not self._rescheduler.settings.cooldown_s,
            fits=lambda moves: not over_budget(view, moves),
        )
        moved = self.have_moved(view, moves) if moves else None
        if moved is None:
            return 0
        await moved
        return len(moves)

    def _why_not(self) -> str:
        rescheduler = self._rescheduler
        pause, now_s = rescheduler.journal.pause, rescheduler.now_unix_s()
        if rescheduler.settings.mode != "automatic":
            return "rescheduling is not automatic"
        if not self._leadership.leads():
            return "this controller does not lead"
        if now_s is None or (pause is not None and pause.holds(now_s)):
            return "rescheduling is paused, or the clock is not set"
        if not rescheduler.notes_read:
            return "the moves that have begun cannot be read yet"
        return "another plan is under way" if rescheduler.is_busy else ""

    def _over_budget(self) -> Callable[[ClusterView, Sequence[Move]], str]:
        """Says which budget moves would exceed together after those of now, "" if none."""
        journal, settings = self._rescheduler.journal, self._rescheduler.settings
        now_s = self._rescheduler.now_unix_s() or 0.0
        made = list(journal.of_the_hour(now_s))

        def over_budget(view: ClusterView, moves: Sequence[Move]) -> str:
            notes, names = list(made), view.table.names
            for move in moves:
                owner = move.pod.owner.uid if move.pod.owner else ""
                source, target = names[move.source], names[move.target]
                if reason := settings.budgets.refusal(notes, owner, (source, target)):
                    return reason
                notes.append(MoveNote(move.pod.uid, move.pod.key, owner, source, target, now_s))
            return ""

        return over_budget


async def _all_moved(outcomes: "asyncio.Future[list[MoveOutcome]]") -> bool:
    return all(outcome.ending == "moved" for outcome in await outcomes)

"""Makes plans of moves from the cluster as it is, and has them carried out: when somebody asks, or
when another part submits one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from leadline_controller.framework.cycle import filtered
from leadline_controller.framework.model import SCHEDULER_NAME, Pod
from leadline_controller.framework.ports import (
    Cluster,
    ClusterChange,
    ClusterError,
    ForbiddenError,
    InvalidError,
    Leadership,
    PodChanged,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.record import DecisionRecord
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.settings import section, setting
from leadline_controller.rescheduling.executor import FIRST, Executor, ExecutorHooks, MoveOutcome
from leadline_controller.rescheduling.guards import Guards
from leadline_controller.rescheduling.journal import HourlyBudgets, Journal, Pause
from leadline_controller.rescheduling.plan import (
    Plan,
    PlanLimits,
    PlannedMove,
    Stay,
    plan_moves,
    propose,
)
from leadline_controller.rescheduling.quality import why_unreliable
from leadline_controller.rescheduling.trigger import Assumptions
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.waiting import within

log = logging.getLogger(__name__)

_POLL_S = 1.0
_RECOVER_S = 10.0
_LOOK_S = 10.0
_STORED_S = 20.0
Mode = Literal["off", "manual", "automatic"]
_WEEK_S = 604_800.0


@dataclass(frozen=True, slots=True)
class ReschedulingSettings:
    """When pods may be moved."""

    mode: Mode = setting(
        "off",
        "when running pods are [moved](rescheduling.md): off: never; manual: when somebody asks; "
        "automatic: also by itself",
    )
    min_gain: float = setting(
        0.2,
        "the least gain of a move, and by how much a placement must be worse than assumed, as a "
        "share",
        most=1,
    )
    worse_for_s: float = setting(
        300.0, "how long it must be worse before a plan is made", most=_WEEK_S
    )
    cooldown_s: float = setting(
        3600.0, "a workload rests for so long after its last new pod", most=_WEEK_S
    )
    timeout_s: float = setting(
        300.0,
        "how long each step of a move may take, such as the replacement's start",
        least=10,
        most=_WEEK_S,
    )
    budgets: HourlyBudgets = section(HourlyBudgets, name="")
    admins: tuple[str, ...] = setting(
        (),
        "common names of client certificates that may move pods and pause from "
        "[other machines](rescheduling.md#who-may-do-it)",
    )


class PlanChangedError(Exception):
    """The plan that somebody wants carried out is no longer the one that would be made now."""


class RefusedError(Exception):
    """Nothing is moved now; str() says why and what to do."""


class Rescheduler:
    """Plans moves, and carries them out while it leads.

    requeue: told of room that is free again. about: the stored decisions about the pod with this
    key, the newest first. scheduler_name: of the pods that Leadline places.
    """

    def __init__(
        self,
        cluster: Cluster,
        step: DecisionStep,
        settings: ReschedulingSettings,
        leadership: Leadership,
        requeue: Callable[[ClusterEvent], None] = lambda _: None,
        about: Callable[[str], Awaitable[Sequence[DecisionRecord]]] | None = None,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        self.settings = settings
        self.journal = Journal(cluster, settings.budgets)
        self.notes_read = False
        self.running: Plan | None = None
        self.last: tuple[str, tuple[MoveOutcome, ...]] = ("", ())
        self._step = step
        self._rule = step.rule
        self._state = step.state
        self._clock = step.clock
        self._scheduler_name = scheduler_name
        self._leadership = leadership
        self._submitted: asyncio.Queue[tuple[Plan, asyncio.Future[list[MoveOutcome]]]] = (
            asyncio.Queue()
        )
        self._assumptions = Assumptions(
            step.rule.strategy.needs, settings.min_gain, peer_is_user=step.rule.peer_is_user
        )
        self._about = about
        self._looked_s = float("-inf")
        self._planning = asyncio.Lock()
        self._recovered = asyncio.Event()
        if settings.mode == "off":
            self._recovered.set()
        hooks = ExecutorHooks(
            self._refusal, self._fits_beside, self.now_unix_s, requeue, step.decisions.set_outcome
        )
        self._executor = Executor(
            cluster, step.state, self.journal, hooks, step.clock, leadership, settings.timeout_s
        )
        self.endings = self._executor.endings

    def now_unix_s(self) -> float | None:
        """Seconds since 1970; None while the clock is not set."""
        now = self._step.decisions.now()
        return now.unix_s(now)

    def observe(self, change: ClusterChange) -> None:
        """The cluster's state has changed."""
        self._executor.observe()
        match change:
            case PodChanged(pod) if pod.node_name and not self._assumptions.knows(pod.uid):
                self._looked_s = float("-inf")  # before what was assumed is forgotten
            case _:
                pass

    def why_it_stays(self) -> Callable[[Pod], str]:
        """Says of each pod why it must not be moved now, "" if it may."""
        return self._guards().why_it_stays

    def why_unreliable(self, view: ClusterView) -> Callable[[Pod, str, str], str]:
        """See `quality.why_unreliable`, for the strategy in force."""
        return why_unreliable(
            *(self._step.telemetry, view, self._rule.strategy.needs, self._clock.now_s()),
            peer_is_user=self._rule.peer_is_user,
        )

    @property
    def is_busy(self) -> bool:
        """Whether a plan is being carried out, or waits for that, or none can be: the notes of
        moves are not read yet."""
        return not self.notes_read or self.running is not None or not self._submitted.empty()

    async def plan(self, only: Container[str] | None = None) -> Plan:
        """The moves that would be made now, and why the other pods stay. only: the uids of the pods
        to look at, None for all. Thousands of pods take seconds, so a thread searches, one plan
        at a time."""
        async with self._planning:
            guards = self._guards()
            running = [each for each in self._running() if only is None or each[0].uid in only]
            limits = self._limits(lambda pod, _: guards.why_it_stays(pod))
            view = self._step.view().for_another_thread()
            plan = await asyncio.to_thread(plan_moves, view, running, self._rule, limits)
            moves = [replace(m, disruption=await self._disruption(m)) for m in plan.moves]
            return replace(plan, moves=tuple(moves))

    def submit(self, plan: Plan) -> "asyncio.Future[list[MoveOutcome]]":
        """Have a plan carried out after those before it. Every move is checked again when its turn
        comes, by the same rules. The future has an outcome for each move, and no exception."""
        done: asyncio.Future[list[MoveOutcome]] = asyncio.get_running_loop().create_future()
        self._submitted.put_nowait((plan, done))
        return done

    async def apply(self, plan_id: str) -> Plan:
        """Have just this plan carried out. Raises PlanChangedError if another one would be made
        now, and RefusedError."""
        if self.settings.mode == "off":
            raise RefusedError(
                'rescheduling is off: set mode = "manual" in the section [rescheduling] of the '
                "controller's settings"
            )
        plan = await self.plan()
        if not self._leadership.leads():
            raise RefusedError(f"another controller leads: {self._leadership.holder() or 'none'}")
        if self.recovered() and not self.notes_read:
            raise RefusedError("the moves that have begun cannot be read yet; try again")
        if self.running is not None:
            raise RefusedError(f"plan {self.running.id} is being carried out; wait for its end")
        if plan.id != plan_id:
            raise PlanChangedError(
                f"the cluster has changed since plan {plan_id[:40]}: it would be {plan.id} now, "
                f"with {len(plan.moves)} moves; look at it with --dry-run"
            )
        self.running = plan  # until its turn is over
        self.submit(plan)
        return plan

    async def pause(self, duration_s: float | None, reason: str) -> None:
        """Move nothing for some time, or until `resume`. Raises ClusterError, and RefusedError if
        nobody can say when some time is over."""
        now_s = self.now_unix_s()
        if now_s is None and duration_s is not None:
            raise RefusedError("the controller's clock is not set: pause without --for")
        until_s = None if now_s is None or duration_s is None else now_s + duration_s
        await self.journal.set_pause(Pause(now_s or 0.0, until_s, reason))

    async def resume(self) -> None:
        """End a pause. Raises ClusterError."""
        await self.journal.set_pause(None)

    def recovered(self) -> bool:
        """Whether pods may be placed: the room for moves that an earlier leader began is kept."""
        return self._recovered.is_set()

    async def wait_recovered(self) -> None:
        """Wait until pods may be placed."""
        await self._recovered.wait()

    async def run(self) -> None:
        """While this controller leads, finish what an earlier leader began, then carry out what is
        submitted; until cancelled."""
        errors = ErrorLog(log)
        while True:
            await self._leadership.wait()
            try:
                await self._lead()
            except Exception as error:  # noqa: BLE001  # any error is logged once
                errors.failed(error, "rescheduling failed, starting again: %s")
                self._recovered.set()  # pods must be placed all the same
                await self._clock.sleep(_POLL_S)

    async def _lead(self) -> None:
        """What `run` does, until this controller no longer leads."""
        await self._recover()
        while self._leadership.leads():
            await self._carry_out_next()
            with suppress(ClusterError):
                await self._executor.note_endings()
            if self.settings.mode == "automatic":
                await self._look()
        self.notes_read = False
        self._cancel_submitted()
        if self.settings.mode != "off":
            self._recovered.clear()

    def _cancel_submitted(self) -> None:
        """Plans of now must not be carried out when this controller leads again."""
        self.running = None
        while not self._submitted.empty():
            plan, done = self._submitted.get_nowait()
            why = "this controller no longer leads"
            if not done.done():
                done.set_result([MoveOutcome(move, "cancelled", why) for move in plan.moves])

    async def _recover(self) -> None:
        """Finish what an earlier leader began, also when rescheduling is off since then."""
        while not self._state.listed:
            await self._clock.sleep(_POLL_S)
        begun_s, said = self._clock.now_s(), ""
        while self._leadership.leads():
            try:
                notes = await self._executor.adopt()
            except ClusterError as error:
                if self.settings.mode == "off" and isinstance(error, ForbiddenError):
                    return  # without these rights nothing was begun
                if type(error).__name__ != said:
                    said = type(error).__name__
                    log.warning("the moves that have begun cannot be read, trying again: %s", error)
                # Pods must not wait for long; what has begun is finished later all the same.
                if self._clock.now_s() - begun_s >= _RECOVER_S or isinstance(error, InvalidError):
                    self._recovered.set()
                await self._clock.sleep(_POLL_S)
            else:
                self.notes_read = True
                self._recovered.set()
                await self._executor.finish(notes)
                return

    async def _carry_out_next(self) -> None:
        """Carry out a submitted plan, if one comes within a second."""
        getting = asyncio.ensure_future(self._submitted.get())
        if not await within(self._clock, getting, _POLL_S):
            return
        plan, done = getting.result()
        self.running, outcomes = plan, None
        try:
            outcomes = await self._executor.carry_out(plan)
        except Exception as error:
            # Whoever waits for the plan must go on.
            outcomes = [MoveOutcome(move, "failed", f"an error: {error!r}") for move in plan.moves]
            raise
        finally:
            self.running = None
            if outcomes is None:  # the controller ends
                done.cancel()
            else:
                self.last = (plan.id, tuple(outcomes))
                if not done.done():
                    done.set_result(outcomes)

    async def _look(self) -> None:
        """Plan moves of the pods whose placements have been worse than assumed for long enough."""
        now_s = self._clock.now_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stored = await self._stored(pod for pod, _ in self._running())

        def decided_on(pod: Pod, node: str) -> Mapping[str, float]:
            record = self._step.decisions.get(pod.key)
            if record is None or record.uid != pod.uid or not record.has_explanation:
                return stored.get((pod.uid, node), {})
            return record.measured(node) if record.node == node else {}

        view, running = self._step.view(), self._running()
        worse = self._assumptions.look(view, running, now_s, decided_on)
        # Of a pod that is due twice, the later one, a link, counts.
        due = {
            each.pod.uid: each
            for each in worse
            if now_s - each.since_s >= self.settings.worse_for_s
        }
        if not due or not self._submitted.empty() or self.journal.is_paused(self.now_unix_s()):
            return
        plan = await self.plan(due)
        found, moves = {move.pod.uid: move for move in plan.moves}, []
        for each in due.values():
            move = found.get(each.pod.uid)
            if self._assumptions.may_move(each, now_s, moves=move is not None) and move:
                moves.append(replace(move, why=f"{each.why}; {move.why}"))
            elif move:
                log.info("%s stays on %s unless it would move for longer", each.pod.key, each.node)
        order = list(found)
        moves.sort(key=lambda move: order.index(move.pod.uid))
        plan = replace(plan, moves=tuple(moves))
        for stay in plan.stays:
            log.info("%s stays on %s: %s", stay.pod, stay.node, stay.why)
        if plan.moves:
            self.submit(plan)

    async def _stored(self, pods: Iterable[Pod]) -> dict[tuple[str, str], Mapping[str, float]]:
        """What stored decisions knew, by the pod's uid and the node that they chose: those about
        pods that no look has seen, and whose decision is not in memory with what it knew, after a
        restart all. What cannot be read in time is left out. They are decoded here one by one,
        because all at once would hold up the scheduler."""
        found: dict[tuple[str, str], Mapping[str, float]] = {}
        if self._about is None:
            return found
        with suppress(TimeoutError):
            async with asyncio.timeout(_STORED_S):
                for pod in list(pods):
                    record = self._step.decisions.get(pod.key)
                    is_here = record is not None and record.uid == pod.uid
                    if self._assumptions.knows(pod.uid) or (
                        is_here and record is not None and record.has_explanation
                    ):
                        continue
                    about = await self._about(pod.key)
                    stored = next((each for each in about if each.uid == pod.uid), None)
                    if stored is not None and stored.node is not None:
                        found[pod.uid, stored.node] = stored.measured(stored.node)
        return found

    def _running(self) -> list[tuple[Pod, str]]:
        return [
            (pod, node)
            for pod, node in self._state.pods()
            if node is not None and pod.node_name == node and not pod.finished
        ]

    async def _disruption(self, move: PlannedMove) -> str:
        """What the users of a moved pod notice."""
        owner = move.pod.owner.uid if move.pod.owner else ""
        try:
            workload = await self._executor.replacement_first(move.pod)
        except ClusterError:
            workload = None
        if workload is not None and self._fits_beside(move):
            return FIRST
        alike = [p for p, _ in self._state.pods() if p.owner is not None and p.owner.uid == owner]
        others = sum(each.ready and not each.terminating for each in alike) - 1
        if others < 1:
            return "the only ready pod of its workload is away until another is ready"
        return f"one pod of its workload is away, {others} stay"

    def _guards(self, *, rests: bool = True) -> Guards:
        """rests: whether workloads rest after their last new pod."""
        storage = self._step.view().storage
        return Guards(
            pods=[pod for pod, _ in self._state.pods()],
            budgets=self._state.objects.budgets(),
            claims=storage.claims,
            volumes=storage.volumes,
            now_s=self.now_unix_s() or float("-inf"),
            cooldown_s=self.settings.cooldown_s if rests else 0.0,
            scheduler_name=self._scheduler_name,
        )

    def _limits(self, may_move: Callable[[Pod, str], str]) -> PlanLimits:
        return PlanLimits(
            min_gain=self.settings.min_gain,
            most=self.settings.budgets.cluster,
            may_move=may_move,
            reliable=self.why_unreliable(self._step.view()),
        )

    def _refusal(self, move: PlannedMove) -> str:
        """Why a move must not begin now; empty if it may."""
        pod = self._state.pod(move.pod.uid)
        if pod is None:
            return "it is gone"
        # A plan of a batch is one: that a pod of the workload has just moved for it is no reason.
        alike = (
            []
            if self.running is None
            else [
                each.pod.uid
                for each in self.running.moves
                if each.gain is None and each.pod.owner == pod.owner
            ]
        )
        if reason := self._guards(rests=not alike or alike[0] == pod.uid).why_it_stays(pod):
            return reason
        view = self._step.view(pod)
        wanted = replace(pod, requests=move.pod.requests)  # more, if it moves for want of room
        target = view.table.index.get(move.target)
        if target is None:
            return f"{move.target} is gone"
        if move.source not in view.table.index:
            return f"{move.source} is gone"
        if move.gain is not None:
            limits = self._limits(lambda _pod, _node: "")
            found = propose(view, pod, move.source, self._rule, limits)
            if isinstance(found, Stay):
                return f"it need not move any more: {found.why}"
            if found.target != move.target:
                return f"{found.target} is better than {move.target} now"
        else:
            without = view.without_placement(pod, view.table.index[move.source])
            for name, result in filtered(without, wanted, self._rule.filters).items():
                if not result.passes[target]:
                    return f"{move.target}: {name}: {result.reason(target)}"
        return ""

    def _fits_beside(self, move: PlannedMove) -> bool:
        """Whether the replacement passes the filters on the target while the old pod runs."""
        view = self._step.view(move.pod)
        target = view.table.index.get(move.target)
        results = filtered(view, move.pod, self._rule.filters).values()
        return target is not None and all(each.passes[target] for each in results)

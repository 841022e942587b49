"""The rescheduling service over gRPC: plans, and the requests that change the cluster."""

# ruff: noqa: N802  # the methods are named by the schema

import asyncio
import math
from collections.abc import Awaitable, Sequence
from typing import Any

import grpc
from leadline_wire.v1 import rescheduling_pb2 as pb
from leadline_wire.v1 import rescheduling_pb2_grpc

from leadline_controller.framework.ports import ClusterError
from leadline_controller.inspect.messages import message
from leadline_controller.inspect.parts import Parts
from leadline_controller.rescheduling.plan import Plan, PlannedMove
from leadline_controller.rescheduling.rescheduler import PlanChangedError, RefusedError, Rescheduler
from leadline_controller.serve.settings import DEFAULT_ADDRESS

Context = grpc.aio.ServicerContext[Any, Any]
SERVICE = pb.DESCRIPTOR.services_by_name["Rescheduling"].full_name
_MAX_REASON = 200
_MAX_PAUSE_S = 31_536_000.0


class _Methods(rescheduling_pb2_grpc.ReschedulingServicer):
    def __init__(self, source: Parts) -> None:
        self._source = source

    async def GetPlan(self, _: pb.GetPlanRequest, context: Context) -> pb.GetPlanResponse:
        rescheduler = await self._rescheduler(context)
        plan = await rescheduler.plan()
        answer = await asyncio.to_thread(_plan_message, plan)
        answer.state.CopyFrom(self._state(rescheduler))
        return answer

    async def GetReschedulingState(
        self, _: pb.GetReschedulingStateRequest, context: Context
    ) -> pb.ReschedulingState:
        return self._state(await self._rescheduler(context))

    async def ApplyPlan(
        self, request: pb.ApplyPlanRequest, context: Context
    ) -> pb.ApplyPlanResponse:
        rescheduler = await self._for_changes(context)
        try:
            await rescheduler.apply(request.id)
        except PlanChangedError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        except RefusedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.ApplyPlanResponse(state=self._state(rescheduler))

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.ReschedulingState:
        rescheduler = await self._for_changes(context)
        duration_s = request.duration_s
        if not math.isfinite(duration_s) or not 0 <= duration_s <= _MAX_PAUSE_S:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "duration_s: expected seconds, a year at most"
            )
        reason = " ".join(request.reason.split())[:_MAX_REASON]
        try:
            await _written(context, rescheduler.pause(duration_s or None, reason))
        except RefusedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return self._state(rescheduler)

    async def Resume(self, _: pb.ResumeRequest, context: Context) -> pb.ReschedulingState:
        rescheduler = await self._for_changes(context)
        await _written(context, rescheduler.resume())
        return self._state(rescheduler)

    async def _rescheduler(self, context: Context) -> Rescheduler:
        rescheduler = self._source.rescheduler
        if not self._source.state.listed:
            why = "nodes and pods are not read from the API server yet; see leadline status"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        return rescheduler

    async def _for_changes(self, context: Context) -> Rescheduler:
        rescheduler = await self._rescheduler(context)
        refusal = _why_refused(context, rescheduler.settings.admins)
        if refusal:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"you may not change the cluster: {refusal}"
            )
        return rescheduler

    def _state(self, rescheduler: Rescheduler) -> pb.ReschedulingState:
        now_s, leadership = rescheduler.now_unix_s() or 0.0, self._source.leadership
        pause = rescheduler.journal.pause
        last, outcomes = rescheduler.last
        state = pb.ReschedulingState(
            mode=rescheduler.settings.mode,
            leader=leadership.leads(),
            lease_holder=leadership.holder(),
            running=rescheduler.running.id if rescheduler.running else "",
            last=last,
            outcomes=[
                message(pb.MoveOutcome, each, move=_move_message(each.move)) for each in outcomes
            ],
            moves_in_hour=len(rescheduler.journal.of_the_hour(now_s)),
            moves_per_hour=rescheduler.settings.budgets.cluster,
        )
        if pause is not None and pause.holds(now_s):
            state.paused, state.pause_reason = True, pause.reason
            if pause.until_s is not None:
                state.pause_left_s = min(pause.until_s - now_s, _MAX_PAUSE_S)
        return state


def service(source: Parts) -> rescheduling_pb2_grpc.ReschedulingServicer:
    """The service of the controller's rescheduler."""
    return _Methods(source)


def _why_refused(context: Context, admins: Sequence[str]) -> str:
    """Why this caller may not change the cluster; empty if it may: whoever can write to the Unix
    socket may, and those whose certificate has the name of one of the admins."""
    certificate = context.auth_context()
    if b"ssl" in certificate.get("transport_security_type", ()):
        names = [each.decode(errors="replace") for each in certificate.get("x509_common_name", ())]
        if any(name in admins for name in names):
            return ""
        shown = ", ".join(name[:80] for name in names) or "none"
        return (
            f"the certificate's common name ({shown}) is not in admins of the section "
            "[rescheduling] of the controller's settings"
        )
    if context.peer().startswith("unix"):
        return ""
    return (
        f"a port without certificates is only to look; call it with sudo at {DEFAULT_ADDRESS}, "
        "which grpc.address of the controller's settings has by default"
    )


async def _written(context: Context, work: Awaitable[None]) -> None:
    try:
        await work
    except ClusterError as error:
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the API server did not keep it: {error}; apply `leadline kube manifests "
            "--rescheduling`",
        )


def _plan_message(plan: Plan) -> pb.GetPlanResponse:
    return pb.GetPlanResponse(
        id=plan.id,
        strategy=plan.strategy,
        better=plan.better,
        moves=map(_move_message, plan.moves),
        stays=[message(pb.PodStays, each) for each in plan.stays],
    )


def _move_message(move: PlannedMove) -> pb.PlannedMove:
    values = {"score": move.score, "better_score": move.better_score, "gain": move.gain}
    known = {name: x if x is not None and math.isfinite(x) else None for name, x in values.items()}
    return message(pb.PlannedMove, move, pod=move.pod.key, **known)

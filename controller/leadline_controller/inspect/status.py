"""The diagnosis service over gRPC: how each part of the controller is, and what is wrong."""

# ruff: noqa: N802  # the method is named by the schema

import asyncio
import statistics
from collections.abc import Iterator
from typing import Any

import grpc
from leadline_wire.v1 import control_pb2, status_pb2_grpc
from leadline_wire.v1 import status_pb2 as pb

from leadline_controller import __version__
from leadline_controller.framework.options import values_of
from leadline_controller.inspect.messages import message
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.parts import Parts
from leadline_controller.inspect.problems import FAILED, SKEWED_S, assess
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.telemetry.session import BrokerStatus

Context = grpc.aio.ServicerContext[Any, Any]
SERVICE = pb.DESCRIPTOR.services_by_name["Diagnosis"].full_name
_SPENT_S = 3600.0  # until the bytes of the day pay for a test
_NAMED_STATES = ("under-voltage", "throttled")
_WATCHED = ("/api/v1/nodes", "/api/v1/pods")


class Diagnosis(status_pb2_grpc.DiagnosisServicer):
    """The service of this controller."""

    def __init__(self, source: Parts) -> None:
        self._source = source
        self._lock = asyncio.Lock()

    async def GetStatus(self, _: pb.GetStatusRequest, __: Context) -> pb.GetStatusResponse:
        """See the schema."""
        return await self.status()

    async def status(self) -> pb.GetStatusResponse:
        """How each part is, and what is wrong."""
        async with self._lock:  # one at a time, as all boards are read
            await self._source.history.measure()
            status = self._parts()
            status.boards.CopyFrom(await self._boards())
            budget, now_s = self._source.probe_scheduler.budget, self._source.clock.now_s()
            status.probing.CopyFrom(await asyncio.to_thread(lambda: _probing(budget(now_s))))
            status.certificates.extend(await asyncio.to_thread(list, self._certificates()))
        problems, fine = assess(status)
        status.problems.extend(problems)
        status.fine.extend(fine)
        return status

    def _parts(self) -> pb.GetStatusResponse:
        source, now_s = self._source, self._source.clock.now_s()
        modes = ["standalone"] if source.scheduler is not None else []
        modes += ["extender"] if source.advises else []
        status = pb.GetStatusResponse(
            version=__version__,
            cluster=source.cluster_name,
            up_s=now_s - source.started_s,
            modes=modes or ["follow"],
            strategy=source.rule.strategy.name,
            strategy_kept=source.keeps_strategy,
            options={name: str(value) for name, value in values_of(source.rule.strategy).items()},
            leadership=pb.LeadershipCondition(
                leads=source.leadership.leads(), holder=source.leadership.holder()
            ),
            stuck=source.heartbeats.late(),
            unserved=[
                message(pb.ServerCondition, each, since_s=now_s - each.since_s)
                for each in source.unserved.values()
            ],
        )
        status.broker.CopyFrom(self._broker(source.session.status(), now_s))
        if source.api_server is not None:
            server = source.api_server.status()
            watched = [server.by_path[path] for path in _WATCHED if path in server.by_path]
            answered = server.answered_s
            status.api_server.CopyFrom(
                pb.ApiServerCondition(
                    url=server.url,
                    listed=source.state.listed,
                    answered_age_s=None if answered is None else now_s - answered,
                    watched_age_s=now_s - min(watched) if len(watched) == len(_WATCHED) else None,
                    failures=[
                        message(pb.RequestFailure, each, since_s=now_s - each.since_s)
                        for each in server.failures
                    ],
                )
            )
        if source.delivery is not None:
            since_s = source.delivery.since_s
            status.notifications.CopyFrom(
                pb.NotificationCondition(
                    receiver=source.delivery.receiver,
                    error=source.delivery.problem,
                    age_s=None if since_s is None else now_s - since_s,
                )
            )
        if source.scheduler is not None:
            status.queue.CopyFrom(message(pb.QueueCondition, source.scheduler.queue()))
        self._fill_decisions(status)
        self._fill_moves(status)
        return status

    def _broker(self, broker: BrokerStatus, now_s: float) -> pb.BrokerCondition:
        telemetry = self._source.telemetry
        return message(
            pb.BrokerCondition,
            broker,
            since_s=now_s - broker.since_s,
            heard_age_s=None if broker.heard_s is None else now_s - broker.heard_s,
            answers=broker.answers(now_s),
            accepted=telemetry.accepted,
            not_accepted=dict(telemetry.refused),
        )

    def _fill_decisions(self, status: pb.GetStatusResponse) -> None:
        source, now = self._source, self._source.decisions.now()
        last = max(source.decisions.all(), key=lambda record: record.number, default=None)
        if last is not None:
            status.last_decision.CopyFrom(
                pb.DecisionCondition(
                    pod=last.pod,
                    node=last.node or "",
                    strategy=last.strategy,
                    outcome=last.outcome,
                    age_s=last.last.age_s(now),
                )
            )
        database = source.history.status()
        status.database.CopyFrom(
            message(
                pb.DatabaseCondition,
                database,
                path="" if database.path is None else str(database.path),
                error=database.problem,
            )
        )
        if source.recording is not None:
            recording = source.recording.status()
            status.recording.CopyFrom(
                message(
                    pb.RecordingCondition,
                    recording,
                    folder=str(recording.folder),
                    error=recording.problem,
                )
            )

    def _fill_moves(self, status: pb.GetStatusResponse) -> None:
        rescheduler = self._source.rescheduler
        now_s, journal = rescheduler.now_unix_s(), rescheduler.journal
        moves = pb.MovesCondition(
            mode=rescheduler.settings.mode,
            paused=journal.is_paused(now_s),
            running=rescheduler.running.id if rescheduler.running else "",
            moves_in_hour=0 if now_s is None else len(journal.of_the_hour(now_s)),
        )
        until_s = journal.pause.until_s if journal.pause is not None else None
        if moves.paused and until_s is not None and now_s is not None:
            moves.pause_left_s = until_s - now_s
        status.rescheduling.CopyFrom(moves)

    async def _boards(self) -> pb.BoardsCondition:
        reader, ages_s = NodeReader(self._source), []
        telemetry = self._source.telemetry
        boards = pb.BoardsCondition(total=len(reader.names), report_ttl_s=telemetry.ttl.report_s)
        for node in await reader.statuses():
            ahead_s = telemetry.board(node.name, self._source.clock.now_s()).clock_ahead_s
            said = list(states(node))
            if node.agent == "online" and node.HasField("report_age_s"):
                ages_s.append(node.report_age_s)
            skewed = ahead_s is not None and abs(ahead_s) >= SKEWED_S
            if node.agent != "online" or said or skewed:
                age_s = node.report_age_s if node.HasField("report_age_s") else None
                boards.boards.append(
                    pb.BoardCondition(
                        name=node.name,
                        agent=node.agent,
                        states=said,
                        report_age_s=age_s,
                        clock_ahead_s=ahead_s,
                    )
                )
        boards.reporting = len(ages_s)
        if ages_s:
            boards.median_age_s, boards.oldest_age_s = statistics.median(ages_s), max(ages_s)
        return boards

    def _certificates(self) -> Iterator[pb.CertificateCondition]:
        now = self._source.decisions.now()
        now_unix_s = now.unix_s(now)
        for each in self._source.certificates:
            ends_s = each.ends_unix_s()
            if ends_s is not None and now_unix_s is None:
                continue  # a clock that was never set cannot tell
            left_s = None if ends_s is None or now_unix_s is None else ends_s - now_unix_s
            yield pb.CertificateCondition(setting=each.setting, path=str(each.path), left_s=left_s)


def states(node: control_pb2.NodeStatus) -> Iterator[str]:
    """What is to be said of a board, as BoardCondition has it."""
    yield from (note for note in _NAMED_STATES if note in node.notes)
    if any(metric.host_limited for metric in node.metrics):
        yield "host-limited"
    yield from (f"{what} contradict" for what in node.contradicting)
    yield from (f"{name}{FAILED}" for name in sorted(node.failed))


def _probing(budget: ProbingStatus) -> pb.ProbingCondition:
    accounts = (*budget.nodes, *budget.uplinks)
    spent = [each.name for each in accounts if each.bytes_wait_s >= _SPENT_S]
    probing = pb.ProbingCondition(running=len(budget.running), spent=spent)
    if accounts:
        most = max(accounts, key=lambda each: each.hour_share)
        probing.hour_share, probing.allowed_share = most.hour_share, most.allowed_share
    return probing

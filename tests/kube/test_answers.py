"""A scheduler against each answer of an API server: a refusal, Retry-After, a failure, a broken
connection, or a lost answer to a request that took effect.

test_bind, test_lease and test_writes test the error of each answer alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU
from leadline_controller.framework.ports import Relisted
from leadline_controller.history.log import BOUND, DecisionLog
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kube.reflector import RESOURCES, watch_cluster, watch_pulls
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.objects import Object, node, pod
from tests.kube.wire import (
    NO_ANSWER,
    Answer,
    FakeServer,
    broken_connection,
    connected,
    event,
    json_answer,
    listing,
    refusal,
    served,
    stream,
)
from tests.support.manual_clock import ManualClock
from tests.support.tasks import until

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
PULLS = "/api/v1/events"
BINDING = "/api/v1/namespaces/default/pods/p/binding"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
DONE = json_answer({"kind": "Status", "status": "Success"}, status=201)
MADE = pod("p", cpu="500m")
PENDING: Object = {**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}}


@dataclass
class SchedulerHarness:
    """A scheduler on a manual clock, and a server with one node and a pending pod."""

    wire: FakeServer = field(default_factory=FakeServer)
    watch_events: asyncio.Queue[Object] = field(default_factory=asyncio.Queue)
    clock: ManualClock = field(default_factory=ManualClock)
    state: ClusterState = field(default_factory=ClusterState)
    decisions: DecisionLog = field(default_factory=DecisionLog)
    telemetry: TelemetryState = field(default_factory=lambda: TelemetryState(TimesToLive()))

    def __post_init__(self) -> None:
        for path in (NODES, PODS, *RESOURCES.values()):
            self.wire.answer(path, listing(version="5"))
            self.wire.answer(f"watch {path}", stream())
        self.wire.answer(NODES, listing(node("n"), version="5"))
        self.wire.answer(PODS, listing(PENDING, version="5"))
        self.wire.answer(f"watch {PODS}", self._serve_watch)
        self.wire.answer(EVENTS, json_answer({"kind": "Event", "metadata": {}}, status=201))

    async def _serve_watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(json.dumps(await self.watch_events.get()).encode() + b"\n")

    def report_bound(self, to: str = "n") -> None:
        """The watch reports that the pod is bound."""
        bound = {**PENDING, "spec": {**PENDING["spec"], "nodeName": to}}
        self.watch_events.put_nowait(event("MODIFIED", bound, "9"))

    def bindings(self) -> int:
        return len(self.wire.queries(BINDING))

    def event_reasons(self) -> list[str]:
        return [body["reason"] for body in self.wire.bodies if body and "reason" in body]

    def outcome(self) -> str:
        record = self.decisions.get("default/p")
        return record.outcome if record else ""

    def requested_cpu_milli(self) -> int:
        return int(self.state.view(self.telemetry, self.clock.now_s()).requested_of(CPU)[0])

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[None]:
        async with (
            served(self.wire, folder) as kubeconfig,
            KubeCluster.connect(kubeconfig) as cluster,
        ):
            rule = Rule(KubeDefault(), FILTERS, Random(7))
            step = DecisionStep(self.state, self.telemetry, self.decisions, rule, self.clock)
            task = asyncio.create_task(Scheduler(cluster, step).run())
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


# A binding.

STILL_PENDING: dict[str, tuple[Answer, bool]] = {
    "404": (refusal(404, "no such page, says a proxy"), False),
    "409": (refusal(409, "etcdserver: request timed out"), False),
    "410": (refusal(410), True),
    "429": (refusal(429), True),
    "429 with a time": (refusal(429, Retry_After="0.2"), True),
    "500": (refusal(500), True),
    "503 with a time": (refusal(503, Retry_After="0.2"), True),
    "403, while it starts": (refusal(403, "no role of that name"), True),
    "hangs up": (broken_connection(), True),
    "no JSON": (stream("<html>a proxy</html>", then_silence=False), True),
}


@pytest.mark.parametrize(("trouble", "has_event"), STILL_PENDING.values(), ids=STILL_PENDING.keys())
async def test_a_pod_that_is_still_pending_is_bound_after_a_second(
    tmp_path: Path, trouble: Answer, has_event: bool
) -> None:
    harness = SchedulerHarness()
    harness.wire.answer(BINDING, trouble, DONE)
    async with harness.running(tmp_path):
        await until(lambda: harness.outcome().startswith("failed: "))
        await harness.clock.advance(0.4)
        assert (harness.bindings(), harness.requested_cpu_milli()) == (1, 0)
        await harness.clock.advance(1)
        await until(lambda: harness.outcome() == BOUND)
        await until(lambda: "Scheduled" in harness.event_reasons())
        assert (harness.bindings(), harness.requested_cpu_milli()) == (2, 500)
    assert harness.event_reasons() == ["FailedBinding", "Scheduled"] if has_event else ["Scheduled"]


@pytest.mark.parametrize("status", [400, 422])
async def test_a_permanent_refusal_is_retried_after_a_minute(tmp_path: Path, status: int) -> None:
    harness = SchedulerHarness()
    harness.wire.answer(BINDING, refusal(status), DONE)
    async with harness.running(tmp_path):
        await until(lambda: "FailedBinding" in harness.event_reasons())
        await harness.clock.advance(59)
        assert harness.bindings() == 1
        await harness.clock.advance(2)
        await until(lambda: harness.outcome() == BOUND)


@pytest.mark.parametrize("watch_first", [True, False])
@pytest.mark.parametrize(
    "answer",
    [refusal(409), refusal(429), refusal(500), refusal(504), broken_connection()],
    ids=["409", "429", "500", "504", "hangs up"],
)
async def test_a_binding_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, answer: Answer, watch_first: bool
) -> None:
    harness = SchedulerHarness()

    async def done(request: web.Request) -> web.StreamResponse:
        if watch_first:
            harness.report_bound()
            await until(lambda: (shown := harness.state.pod("u-1")) and shown.node_name)
        return await answer(request)

    harness.wire.answer(BINDING, done)
    async with harness.running(tmp_path):
        await until(harness.bindings)
        if not watch_first:
            await until(lambda: harness.outcome().startswith("failed: "))
            harness.report_bound()
        await until(lambda: harness.outcome() == BOUND)
        await harness.clock.advance(300)
        assert (harness.bindings(), harness.requested_cpu_milli()) == (1, 500)


async def test_a_pod_that_was_bound_elsewhere_is_dropped(tmp_path: Path) -> None:
    harness = SchedulerHarness()
    harness.wire.answer(NODES, listing(node("n"), node("other"), version="5"))

    async def overtaken(request: web.Request) -> web.StreamResponse:
        asked_for = (await request.json())["target"]["name"]
        harness.report_bound("other" if asked_for == "n" else "n")
        return await refusal(409, "pod p is already assigned")(request)

    harness.wire.answer(BINDING, overtaken)
    async with harness.running(tmp_path):
        await until(lambda: harness.outcome().startswith("failed: "))
        await until(lambda: (shown := harness.state.pod("u-1")) and shown.node_name)
        await harness.clock.advance(300)
        assert (harness.bindings(), harness.event_reasons()) == (1, [])


async def test_a_deleted_pod_is_dropped(tmp_path: Path) -> None:
    harness = SchedulerHarness()

    async def gone(request: web.Request) -> web.StreamResponse:
        harness.watch_events.put_nowait(event("DELETED", PENDING, "9"))
        return await refusal(404)(request)

    harness.wire.answer(BINDING, gone)
    async with harness.running(tmp_path):
        await until(harness.outcome)
        await until(lambda: harness.state.pod("u-1") is None)
        await harness.clock.advance(300)
        assert (harness.bindings(), harness.event_reasons(), harness.requested_cpu_milli()) == (
            1,
            [],
            0,
        )


@pytest.mark.parametrize(
    "answer",
    [refusal(404), refusal(409), refusal(410), refusal(429), refusal(500), broken_connection()],
    ids=["404", "409", "410", "429", "500", "hangs up"],
)
async def test_failed_events_do_not_fail_the_binding(tmp_path: Path, answer: Answer) -> None:
    harness = SchedulerHarness()
    harness.wire.answer(BINDING, DONE)
    harness.wire.answer(EVENTS, answer)
    async with harness.running(tmp_path):
        await until(lambda: harness.event_reasons() == ["Scheduled"])
        assert (harness.outcome(), harness.bindings()) == (BOUND, 1)


# Lists and watches.

TROUBLE = {
    "404": refusal(404),
    "409": refusal(409),
    "429": refusal(429),
    "429 with a time": refusal(429, Retry_After="0.2"),
    "500": refusal(500),
    "503": refusal(503),
    "nothing": NO_ANSWER,
    "hangs up": broken_connection(),
    "no JSON": stream("<html>a proxy</html>", then_silence=False),
}


@pytest.mark.usefixtures("quick_backoff")
@pytest.mark.parametrize("path", [NODES, RESOURCES["StorageClass"]])
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_a_failed_list_is_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: Answer, path: str
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    wire = SchedulerHarness().wire
    wire.answer(path, trouble, listing(version="7"))
    async with connected(wire, tmp_path, trouble) as server, asyncio.timeout(PATIENCE_S):
        changes = watch_cluster(server)
        assert isinstance(await anext(changes), Relisted)
        await changes.aclose()
    problems = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(problems) <= 1
    refused = ": 404: " in "".join(problems) and path != NODES  # known as unreadable from then on
    assert len(wire.queries(path)) == (1 if refused else 2) or trouble is NO_ANSWER


@pytest.mark.usefixtures("quick_backoff")
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_a_failed_watch_resumes_from_its_version(tmp_path: Path, trouble: Answer) -> None:
    wire = SchedulerHarness().wire
    wire.answer(f"watch {PODS}", trouble, stream(event("DELETED", PENDING, "6")))
    async with connected(wire, tmp_path, trouble) as server, asyncio.timeout(PATIENCE_S):
        changes = watch_cluster(server, watch_s=(0, 0), late_s=0.5)
        first, second = await anext(changes), await anext(changes)
        await changes.aclose()
    assert isinstance(first, Relisted)
    assert type(second).__name__ == "PodDeleted"
    watches = [query for query in wire.queries(PODS) if "watch" in query]
    assert {query["resourceVersion"] for query in watches} == {"5"}
    assert len(wire.queries(PODS)) == len(watches) + 1  # listed once


@pytest.mark.usefixtures("quick_backoff")
async def test_an_event_that_cannot_be_read_loses_only_itself(tmp_path: Path) -> None:
    message = 'Successfully pulled image "web:1" in 2s'
    about, source = {"kind": "Pod", "uid": "u"}, {"host": "n1"}
    pulled = {"reason": "Pulled", "message": message, "involvedObject": about, "source": source}
    wire, bad = FakeServer(), json_answer({"kind": "EventList", "items": 5, "metadata": {}})
    odd: Any = "no event"
    wire.answer(PULLS, bad, bad, listing(odd, pulled))
    wire.answer(f"watch {PULLS}", stream())
    async with connected(wire, tmp_path) as server, asyncio.timeout(PATIENCE_S):
        pulls = watch_pulls(server, ReachabilityLog(server.url))
        assert (await anext(pulls)).took_s == 2.0
        await pulls.aclose()

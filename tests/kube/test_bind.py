"""Bindings, for each answer of an API server and after the Lease has expired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    Fence,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, ExpiredError
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kubeobjects.manifest import read_pod

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.objects import pod
from tests.kube.wire import (
    NO_ANSWER,
    Answer,
    FakeServer,
    broken_connection,
    connected,
    json_answer,
    no_answer,
    refusal,
)

BINDING = "/api/v1/namespaces/default/pods/p/binding"
MADE = pod("p")
POD = read_pod({**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}})
BOUND = json_answer({"kind": "Status", "status": "Success"}, status=201)


class FakeFence:
    """A fence whose remaining time is a function of how often it was asked."""

    def __init__(self, left: Callable[[int], float]) -> None:
        self._left = left
        self.checks = 0

    def left_s(self) -> float:
        self.checks += 1
        return self._left(self.checks)


async def bind(server: ApiServer, bound: Pod, node: str, fence: Fence | None = None) -> None:
    cluster = KubeCluster(server, server)
    await (cluster.fenced(fence) if fence else cluster).bind(bound, node)


ANSWERS: list[tuple[Answer, type[ClusterError], str]] = [
    (refusal(403, "cannot create pods/binding"), InvalidError, "403"),
    (refusal(404, "pods p not found"), NotFoundError, "404"),
    (refusal(409, "pod p is already assigned to node n2"), ConflictError, "409"),
    (refusal(410, "gone"), ExpiredError, "410"),
    (refusal(422, "invalid"), InvalidError, "422"),
    (refusal(429, "too many requests"), UnavailableError, "429"),
    (refusal(500, "etcdserver: request timed out"), UnavailableError, "500"),
    (refusal(504, "Timeout: request did not complete"), UnavailableError, "504"),
    (NO_ANSWER, UnavailableError, BINDING),
    (broken_connection(), UnavailableError, BINDING),
]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("answer", "error", "message"), ANSWERS)
async def test_each_answer_is_the_right_error_and_nothing_is_sent_twice(
    tmp_path: Path, answer: Answer, error: type[ClusterError], message: str, warm: bool
) -> None:
    """warm: over a used connection, on which some clients repeat a failed request."""
    wire = FakeServer()
    wire.answer(BINDING, *[BOUND] * warm, answer)
    async with connected(wire, tmp_path, answer) as server:
        if warm:
            await bind(server, POD, "n0")
        with pytest.raises(error, match=message):
            await bind(server, POD, "n1")
    assert len(wire.requests) == 1 + warm


async def test_a_fenced_binding_sends_its_remaining_time_as_timeout(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(BINDING, BOUND)
    async with connected(wire, tmp_path) as server:
        await bind(server, POD, "n1", FakeFence(lambda _: 4.5))
        await bind(server, POD, "n1")
    assert wire.queries(BINDING) == [{"timeout": "4.500s"}, {}]
    assert wire.bodies[0] == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "default", "name": "p", "uid": "u-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_nothing_is_sent_after_the_fence_closed(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(BINDING, BOUND)
    async with connected(wire, tmp_path) as server:
        with pytest.raises(NotLeadingError):
            await bind(server, POD, "n1", FakeFence(lambda _: 0))
    assert wire.requests == []


@pytest.mark.parametrize("warm", [False, True])
async def test_a_fence_that_closes_at_the_last_moment_stops_the_binding(
    tmp_path: Path, warm: bool
) -> None:
    """As when this process is stopped after its decision and continues much later."""
    wire = FakeServer()
    wire.answer(BINDING, BOUND)
    async with connected(wire, tmp_path) as server:
        if warm:
            await bind(server, POD, "n1")
        open_fence = FakeFence(lambda _: 9)
        await bind(server, POD, "n1", open_fence)
        before = len(wire.requests)
        late = FakeFence(lambda check: 9 if check < open_fence.checks else -1)
        with pytest.raises(NotLeadingError):
            await bind(server, POD, "n1", late)
        assert late.checks >= open_fence.checks
        await bind(server, POD, "n1")
    assert len(wire.requests) == before + 1


async def test_a_binding_without_an_answer_ends_when_the_fence_closes(
    tmp_path: Path,
) -> None:
    wire = FakeServer()
    wire.answer(BINDING, no_answer())
    closes_s = asyncio.get_running_loop().time() + 0.5
    fence = FakeFence(lambda _: closes_s - asyncio.get_running_loop().time())
    async with connected(wire, tmp_path) as server, asyncio.timeout(PATIENCE_S):
        with pytest.raises(NotLeadingError):
            await bind(server, POD, "n1", fence)
    assert len(wire.requests) == 1


async def test_a_retry_after_beyond_the_fence_fails_at_once(
    tmp_path: Path,
) -> None:
    wire = FakeServer()
    wire.answer(BINDING, refusal(429, "too many requests", Retry_After="30"))
    async with connected(wire, tmp_path) as server, asyncio.timeout(PATIENCE_S / 2):
        with pytest.raises(UnavailableError, match="429"):
            await bind(server, POD, "n1", FakeFence(lambda _: 9))
        with pytest.raises(UnavailableError, match="retry after"):
            await bind(server, POD, "n1", FakeFence(lambda _: 9))
    assert len(wire.requests) == 1


async def test_a_binding_is_sent_after_retry_after(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(BINDING, refusal(429, "too many requests", Retry_After="1"), BOUND)
    async with connected(wire, tmp_path) as server:
        with pytest.raises(UnavailableError):
            await bind(server, POD, "n1", FakeFence(lambda _: 9))
        await bind(server, POD, "n1", FakeFence(lambda _: 9))
    (_, _, refused_s), (_, _, again_s) = wire.requests
    assert again_s - refused_s >= 0.99

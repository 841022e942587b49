"""The Lease, for each answer of an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.clock import LeaseClock
from leadline_controller.framework.ports import (
    ClusterError,
    InvalidError,
    LeaseChangedError,
    LeaseRecord,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer, ExpiredError
from leadline_controller.kube.connection import Login
from leadline_controller.kube.lease import KubeLease
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.leaderelection.elector import LeaderElector, LeaseTiming

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.wire import (
    Answer,
    FakeServer,
    broken_connection,
    json_answer,
    kubeconfig,
    no_answer,
    refusal,
    served,
    stream,
)
from tests.support.ports import free_port

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/leadline-controller"
SEEN = LeaseRecord("other", 10, "then", "just now", 3, "41")
QUICK = LeaseTiming(duration_s=2, renew_deadline_s=1, retry_s=0.1, margin_s=0.2)


def lease(holder: str = "me", version: str = "42", **spec: Any) -> dict[str, Any]:
    fields = {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": version, **spec}
    return {"kind": "Lease", "metadata": {"resourceVersion": version}, "spec": fields}


@asynccontextmanager
async def store(wire: FakeServer, folder: Path, timeout_s: float = 10) -> AsyncIterator[KubeLease]:
    async with served(wire, folder) as login, ApiServer.connect(Login(login), timeout_s) as server:
        yield KubeLease(server, ReachabilityLog(server.url))


ANSWERS: list[tuple[Answer, type[ClusterError], str]] = [
    (refusal(403, "cannot get resource leases"), InvalidError, "403"),
    (refusal(410, "too old"), ExpiredError, "410"),
    (refusal(429, "too many requests"), UnavailableError, "429"),
    (refusal(500, "etcdserver: request timed out"), UnavailableError, "500"),
    (refusal(503, "apiserver is shutting down"), UnavailableError, "503"),
    (no_answer(), UnavailableError, LEASES),
    (broken_connection(), UnavailableError, LEASES),
    (stream("<html>a proxy</html>", then_silence=False), UnavailableError, LEASES),
    (json_answer({}), UnavailableError, "not what was asked for"),
    (json_answer({"kind": "Lease"}), UnavailableError, "not what was asked for"),
    (
        json_answer({"kind": "Lease", "metadata": {"resourceVersion": 7}, "spec": []}),
        UnavailableError,
        "not a Lease: lease.metadata.resourceVersion: expected text, got 7",
    ),
]


@pytest.mark.parametrize(("answer", "error", "message"), ANSWERS)
@pytest.mark.parametrize("call", ["read", "create", "renew"])
async def test_each_bad_answer_is_the_right_error(
    tmp_path: Path, call: str, answer: Answer, error: type[ClusterError], message: str
) -> None:
    wire = FakeServer()
    wire.answer(f"GET {LEASE}", answer)
    wire.answer(f"PATCH {LEASE}", answer)
    wire.answer(f"POST {LEASES}", answer)
    async with store(wire, tmp_path, timeout_s=0.3) as kept:
        over = SEEN if call == "renew" else None
        asked = kept.read() if call == "read" else kept.write("me", 10, over)
        with pytest.raises(error, match=message):
            await asked
    # A failed write is not sent again without the caller; libcurl may repeat a read.
    assert len(wire.requests) == 1 or call == "read"


@pytest.mark.parametrize("status", [404, 409])
async def test_a_conflict_is_a_changed_lease(tmp_path: Path, status: int) -> None:
    wire = FakeServer()
    wire.answer(f"PATCH {LEASE}", refusal(status))
    wire.answer(f"POST {LEASES}", refusal(status))
    async with store(wire, tmp_path) as kept:
        for over in (SEEN, None):
            with pytest.raises(LeaseChangedError, match=str(status)):
                await kept.write("me", 10, over)


async def test_a_missing_lease_is_none(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(LEASE, refusal(404))
    async with store(wire, tmp_path) as kept:
        assert await kept.read() is None


async def test_a_write_replaces_exactly_the_version_that_was_read(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(f"PATCH {LEASE}", json_answer(lease()))
    async with store(wire, tmp_path) as kept:
        written = await kept.write("me", 10, SEEN)
    assert written == LeaseRecord("me", 10, "", "42", 0, "42")
    (body,) = wire.bodies
    assert body["metadata"] == {"resourceVersion": "41"}
    assert body["spec"]["leaseTransitions"] == 4
    assert body["spec"]["acquireTime"] == body["spec"]["renewTime"]


async def test_who_acquires_the_lease_notes_its_strategy(tmp_path: Path) -> None:
    wire = FakeServer()
    noted = lease()
    noted["metadata"]["annotations"] = {"leadline.dev/strategy": "netsched", "other": "kept"}
    wire.answer(f"PATCH {LEASE}", json_answer(noted))
    wire.answer(f"POST {LEASES}", json_answer(noted))
    async with store(wire, tmp_path) as kept:
        kept.strategy = "netsched"
        written = await kept.write("me", 10, None)
        taken = await kept.write("me", 10, SEEN)
        await kept.write("me", 10, taken)
        await kept.write("", 1, taken)
    assert written.strategy == taken.strategy == "netsched"
    noting = [each["metadata"].get("annotations") for each in wire.bodies]
    assert noting == [{"leadline.dev/strategy": "netsched"}] * 2 + [None, None]


@pytest.mark.parametrize("over", [None, SEEN])
async def test_a_policy_of_an_older_release_refuses_the_note_and_not_the_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, over: LeaseRecord | None
) -> None:
    wire = FakeServer()
    request = f"POST {LEASES}" if over is None else f"PATCH {LEASE}"
    wire.answer(request, refusal(403, "may change nothing else"), json_answer(lease()))
    async with store(wire, tmp_path) as kept:
        kept.strategy = "netsched"
        written = await kept.write("me", 10, over)
    assert (written.holder, written.strategy) == ("me", "")
    assert ["annotations" in each["metadata"] for each in wire.bodies] == [True, False]
    (warning,) = (each for each in caplog.messages if "runs netsched" in each)
    assert "may change nothing else" in warning
    assert "apply what `leadline kube manifests` prints" in warning


@pytest.mark.parametrize(
    "spec",
    [
        {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None},
        {},
    ],
)
async def test_an_emptied_lease_is_free(tmp_path: Path, spec: dict[str, Any]) -> None:
    wire = FakeServer()
    emptied = {"kind": "Lease", "metadata": {"resourceVersion": "5"}, "spec": spec}
    wire.answer(LEASE, json_answer(emptied))
    async with store(wire, tmp_path) as kept:
        read = await kept.read()
    assert read is not None
    assert (read.holder, read.duration_s, read.transitions) == ("", 0, 0)


async def test_follow_yields_the_holders_and_ends_with_the_connection(tmp_path: Path) -> None:
    wire = FakeServer()
    events = [
        {"type": "ADDED", "object": lease("a")},
        {"type": "BOOKMARK", "object": {}},
        {"type": "MODIFIED", "object": lease("b", "43")},
        {"type": "DELETED", "object": lease("b", "44")},
    ]
    wire.answer(f"watch {LEASES}", stream(*events, then_silence=False))
    async with store(wire, tmp_path) as kept, aclosing(kept.follow()) as holders:
        assert [holder async for holder in holders] == ["a", "b", ""]
    (asked,) = wire.queries(LEASES)
    assert asked["fieldSelector"] == "metadata.name=leadline-controller"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(403), InvalidError),
        (refusal(410), ExpiredError),
        (refusal(429), UnavailableError),
        (refusal(500), UnavailableError),
        (stream({"type": "MODIFIED", "object": {}}), UnavailableError),
    ],
)
async def test_a_refused_follow_is_the_right_error(
    tmp_path: Path, answer: Answer, error: type[ClusterError]
) -> None:
    wire = FakeServer()
    wire.answer(f"watch {LEASES}", answer)
    async with store(wire, tmp_path) as kept, aclosing(kept.follow()) as holders:
        with pytest.raises(error):
            await anext(holders)


async def test_a_reported_theft_is_checked_at_once(tmp_path: Path) -> None:
    """Although the next renewal is due much later."""
    wire = FakeServer()
    theft = {"type": "MODIFIED", "object": lease("thief", "77")}
    wire.answer(f"watch {LEASES}", stream(theft))
    wire.answer(f"GET {LEASE}", refusal(404), json_answer(lease("thief", "77")))
    wire.answer(f"POST {LEASES}", json_answer(lease()))
    wire.answer(f"PATCH {LEASE}", refusal(409))
    slow = LeaseTiming(duration_s=1000, renew_deadline_s=900, retry_s=800)
    async with candidate(wire, tmp_path, slow) as elector, asyncio.timeout(PATIENCE_S):
        while elector.holder() != "thief":  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
        assert not elector.leads()


@asynccontextmanager
async def candidate(
    wire: FakeServer, folder: Path, timing: LeaseTiming = QUICK
) -> AsyncIterator[LeaderElector]:
    async with store(wire, folder, timeout_s=0.3) as kept:
        elector = LeaderElector(kept, "me", LeaseClock(), timing)
        running = asyncio.create_task(elector.run())
        try:
            yield elector
        finally:
            running.cancel()
            await asyncio.wait({running})


async def until(elector: LeaderElector, *, leads: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while elector.leads() != leads:  # noqa: ASYNC110  # losing has no event: time passes
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(410),
        refusal(429),
        refusal(429, Retry_After="30"),
        refusal(500),
        no_answer(),
        broken_connection(),
    ],
    ids=["410", "429", "429 wait", "500", "no answer", "hangs up"],
)
async def test_a_leader_that_cannot_renew_leads_until_its_deadline(
    tmp_path: Path, trouble: Answer
) -> None:
    wire = FakeServer()
    wire.answer(f"watch {LEASES}", trouble)
    wire.answer(f"GET {LEASE}", refusal(404), trouble)
    wire.answer(f"POST {LEASES}", json_answer(lease()))
    wire.answer(f"PATCH {LEASE}", json_answer(lease(version="43")), trouble)
    async with candidate(wire, tmp_path) as elector:
        await until(elector, leads=True)
        await until(elector, leads=False)
        assert elector.holder() == "me"
        assert elector.left_s() > 0


async def test_temporary_errors_do_not_end_leadership(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(f"watch {LEASES}", stream())
    wire.answer(f"GET {LEASE}", refusal(404))
    wire.answer(f"POST {LEASES}", json_answer(lease()))
    troubles = [refusal(410), refusal(429), refusal(500), no_answer()]
    wire.answer(f"PATCH {LEASE}", *troubles, json_answer(lease(version="43")))
    async with candidate(wire, tmp_path) as elector:
        await until(elector, leads=True)
        async with asyncio.timeout(PATIENCE_S):
            while len(wire.queries(LEASE)) < 7:
                assert elector.leads()
                await asyncio.sleep(0.01)


async def test_a_conflict_ends_leadership_at_once(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(f"watch {LEASES}", stream())
    wire.answer(
        f"GET {LEASE}", refusal(404), json_answer(lease("thief", "77", leaseDurationSeconds=60))
    )
    wire.answer(f"POST {LEASES}", json_answer(lease()))
    wire.answer(f"PATCH {LEASE}", refusal(409))
    async with candidate(wire, tmp_path) as elector:
        await until(elector, leads=True)
        await until(elector, leads=False)
        async with asyncio.timeout(PATIENCE_S):
            while elector.holder() != "thief":  # noqa: ASYNC110  # it is read a moment later
                await asyncio.sleep(0.01)
        assert elector.left_s() <= 0


async def test_an_unreachable_server_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    file = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{free_port()}")
    async with ApiServer.connect(Login(file), 1) as server:
        elector = LeaderElector(
            KubeLease(server, ReachabilityLog(server.url)), "me", LeaseClock(), QUICK
        )
        running = asyncio.create_task(elector.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not caplog.messages:  # noqa: ASYNC110  # there is no event to wait for
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
        finally:
            running.cancel()
            await asyncio.wait({running})
    assert not elector.leads()
    assert len([m for m in caplog.messages if "can't be reached" in m]) == 1

"""Writes of events, claims and volumes, for each answer of an API server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    Event,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StorageChangedError,
    UnavailableError,
)
from leadline_controller.kube.client import ExpiredError
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kube.events import EventSink
from leadline_controller.kubeobjects.manifest import read_pod

from tests.kube.objects import Object, pod
from tests.kube.volumes import SELECTED_NODE, claim, volume
from tests.kube.wire import (
    NO_ANSWER,
    Answer,
    FakeServer,
    broken_connection,
    connected,
    json_answer,
    made,
    refusal,
)

REFUSALS: dict[str, tuple[Answer, type[ClusterError]]] = {
    "403": (refusal(403), ForbiddenError),
    "409": (refusal(409), ConflictError),
    "410": (refusal(410), ExpiredError),
    "422": (refusal(422), InvalidError),
    "429": (refusal(429), UnavailableError),
    "500": (refusal(500), UnavailableError),
    "nothing": (NO_ANSWER, UnavailableError),
    "hangs up": (broken_connection(), UnavailableError),
}
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
MADE = pod("p")
POD = read_pod({**MADE, "metadata": {**MADE["metadata"], "namespace": "default", "uid": "u-1"}})
SAYING = Event("Warning", "FailedScheduling", "0/3 nodes fit")


@pytest.mark.parametrize(("answer", "error"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_an_event_that_failed_is_written_the_next_time(
    tmp_path: Path, answer: Answer, error: type[ClusterError]
) -> None:
    wire = FakeServer()
    wire.answer(EVENTS, answer, made("Event", 201))
    async with connected(wire, tmp_path, answer) as server:
        sink = EventSink(server)
        with pytest.raises(error):
            await sink.record(POD, SAYING)
        assert len(wire.requests) == 1
        await sink.record(POD, SAYING)
    first, second = (body["metadata"]["name"] for body in wire.bodies)
    assert first != second  # else one that was taken after all would be in the way


@pytest.mark.parametrize(
    ("answer", "error"),
    [*REFUSALS.values(), (refusal(404), NotFoundError)],
    ids=[*REFUSALS.keys(), "404"],
)
async def test_a_count_that_failed_is_written_the_next_time(
    tmp_path: Path, answer: Answer, error: type[ClusterError]
) -> None:
    wire = FakeServer()
    wire.answer(EVENTS, made("Event", 201))
    async with connected(wire, tmp_path, answer) as server:
        sink = EventSink(server)
        await sink.record(POD, SAYING)
        there = f"{EVENTS}/{wire.bodies[0]['metadata']['name']}"
        wire.answer(there, answer, made("Event"))
        if error is NotFoundError:  # the server dropped it: written anew
            await sink.record(POD, SAYING)
            assert len(wire.queries(EVENTS)) == 2
            return
        with pytest.raises(error):
            await sink.record(POD, SAYING)
        await sink.record(POD, SAYING)
    assert [body["series"]["count"] for body in wire.bodies[1:]] == [2, 3]


# Claims and volumes.

CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/c"
VOLUME = "/api/v1/persistentvolumes/v"
SELECTS = VolumePlan("n", selects=("default/c",))
BINDS = VolumePlan("n", (("v", "default/c"),))
PLANS = [pytest.param(SELECTS, CLAIM, id="claim"), pytest.param(BINDS, VOLUME, id="volume")]
KINDS = {CLAIM: "PersistentVolumeClaim", VOLUME: "PersistentVolume"}
_versions: Iterator[int] = count(1)


def stored(path: str, thing: Object, **spec: Any) -> Object:
    metadata = {**thing["metadata"], "uid": "u-c", "resourceVersion": str(next(_versions))}
    return {**thing, "kind": KINDS[path], "metadata": metadata, "spec": {**thing["spec"], **spec}}


def storing() -> FakeServer:
    """A server with a claim that waits for its first consumer and a free volume."""
    wire = FakeServer()
    a_claim = stored(CLAIM, claim("c", "slow"))
    a_claim["metadata"]["namespace"] = "default"
    wire.answer(f"GET {CLAIM}", json_answer(a_claim))
    wire.answer(f"GET {VOLUME}", json_answer(stored(VOLUME, volume("v", "slow"))))
    return wire


def patches(wire: FakeServer) -> int:
    return sum("annotations" in body["metadata"] for body in wire.bodies if body)


@pytest.mark.parametrize(("plan", "path"), PLANS)
@pytest.mark.parametrize(
    ("answer", "error"),
    [*REFUSALS.values(), (refusal(404), StorageChangedError)],
    ids=[*REFUSALS.keys(), "404"],
)
async def test_each_failed_write_of_a_plan_is_the_right_error(
    tmp_path: Path, answer: Answer, error: type[ClusterError], plan: VolumePlan, path: str
) -> None:
    wire = storing()
    wire.answer(f"PATCH {path}", answer)
    conflict = error is ConflictError
    async with connected(wire, tmp_path, answer) as server:
        with pytest.raises(StorageChangedError if conflict else error):
            await KubeCluster(server, server).prepare(plan)
    # After a conflict it reads the object again, and gives up in the end.
    assert patches(wire) == (3 if conflict else 1)


@pytest.mark.parametrize(("plan", "read"), [(SELECTS, CLAIM), (BINDS, CLAIM), (BINDS, VOLUME)])
@pytest.mark.parametrize(
    ("answer", "error"),
    [*REFUSALS.values(), (refusal(404), StorageChangedError)],
    ids=[*REFUSALS.keys(), "404"],
)
async def test_an_unreadable_object_is_not_changed(
    tmp_path: Path, answer: Answer, error: type[ClusterError], plan: VolumePlan, read: str
) -> None:
    wire = storing()
    wire.answer(f"GET {read}", answer)
    wire.answer(f"PATCH {CLAIM}", made("PersistentVolumeClaim"))
    wire.answer(f"PATCH {VOLUME}", made("PersistentVolume"))
    async with connected(wire, tmp_path, answer) as server:
        with pytest.raises(error):
            await KubeCluster(server, server).prepare(plan)
    assert patches(wire) == 0


@pytest.mark.parametrize(("plan", "path"), PLANS)
async def test_after_a_conflict_the_object_is_read_and_changed_again(
    tmp_path: Path, plan: VolumePlan, path: str
) -> None:
    wire = storing()
    wire.answer(f"PATCH {path}", refusal(409), made(KINDS[path]))
    async with connected(wire, tmp_path) as server:
        await KubeCluster(server, server).prepare(plan)
    assert patches(wire) == 2


@pytest.mark.parametrize("answer", [refusal(500), broken_connection()], ids=["500", "hangs up"])
async def test_a_write_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, answer: Answer
) -> None:
    wire = storing()
    wire.answer(f"PATCH {CLAIM}", answer)
    wire.answer(f"PATCH {VOLUME}", answer)
    kept = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "u-c"}
    done = stored(CLAIM, claim("c", "slow"))
    done["metadata"] |= {"namespace": "default", "annotations": {SELECTED_NODE: "n"}}
    async with connected(wire, tmp_path, answer) as server:
        for plan in (SELECTS, BINDS):
            with pytest.raises(UnavailableError):
                await KubeCluster(server, server).prepare(plan)
        wire.answer(f"GET {CLAIM}", json_answer(done))
        wire.answer(
            f"GET {VOLUME}", json_answer(stored(VOLUME, volume("v", "slow"), claimRef=kept))
        )
        for plan in (SELECTS, BINDS):
            await KubeCluster(server, server).prepare(plan)
    assert patches(wire) == 2

"""Events on a real API server: readable, counted, and limited in rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import Event, NotFoundError
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.events import EventSink
from leadline_controller.kubeobjects.manifest import read_pod

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import pod

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_numbers: Iterator[int] = count(1)


class Watch:
    """A clock that the test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Watch:
    return Watch()


@pytest.fixture
async def recorder(plane: ControlPlane, clock: Watch) -> AsyncIterator[EventSink]:
    async with ApiServer.connect(Login(plane.kubeconfig)) as server:
        yield EventSink(server, clock)


@pytest.fixture
def made(api: Api) -> Iterator[Pod]:
    name = f"event-{next(_numbers)}"
    yield read_pod(api.create(PODS, pod(name)))
    api.delete(f"{PODS}/{name}")


def written(api: Api, made: Pod) -> list[dict[str, Any]]:
    items = api.get(EVENTS)["items"]
    return [item for item in items if item["regarding"]["uid"] == made.uid]


def failed(message: str = "0/3 nodes fit") -> Event:
    return Event("Warning", "FailedScheduling", message)


async def test_an_event_is_as_kubectl_shows_it(recorder: EventSink, api: Api, made: Pod) -> None:
    await recorder.record(made, failed())

    (event,) = written(api, made)
    assert (event["type"], event["reason"], event["note"]) == (
        "Warning",
        "FailedScheduling",
        "0/3 nodes fit",
    )
    assert event["reportingController"] == "leadline"
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", made.name)
    # kubectl describe asks the older group.
    query = f"fieldSelector=involvedObject.uid={made.uid},reportingComponent=leadline"
    (older,) = api.get(f"/api/v1/namespaces/default/events?{query}")["items"]
    assert older["message"] == "0/3 nodes fit"


async def test_repeats_above_the_rate_are_counted_and_written_later(
    recorder: EventSink, api: Api, made: Pod, clock: Watch
) -> None:
    for _ in range(100):
        await recorder.record(made, failed())
    (event,) = written(api, made)
    assert event["series"]["count"] == 10

    clock.now_s += 20
    await recorder.record(made, failed())
    await recorder.record(made, failed())

    (event,) = written(api, made)
    assert event["series"]["count"] == 101


async def test_ever_new_messages_do_not_flood_a_pod(
    recorder: EventSink, api: Api, made: Pod, clock: Watch
) -> None:
    for i in range(50):
        await recorder.record(made, failed(f"attempt {i}"))
    assert len(written(api, made)) == 10

    clock.now_s += 3600
    for i in range(50, 100):
        await recorder.record(made, failed(f"attempt {i}"))
    assert len(written(api, made)) == 20


async def test_the_same_event_at_once_is_one_event(
    recorder: EventSink, api: Api, made: Pod
) -> None:
    await asyncio.gather(*(recorder.record(made, failed()) for _ in range(5)))
    await recorder.record(made, failed())

    (event,) = written(api, made)
    assert event["series"]["count"] == 6


async def test_an_event_that_the_server_dropped_is_created_again(
    recorder: EventSink, api: Api, made: Pod
) -> None:
    await recorder.record(made, failed())
    (event,) = written(api, made)
    api.delete(f"{EVENTS}/{event['metadata']['name']}")

    await recorder.record(made, failed())
    await recorder.record(made, failed())

    (anew,) = written(api, made)
    assert anew["metadata"]["name"] != event["metadata"]["name"]
    assert anew["series"]["count"] == 2


async def test_one_that_is_told_once_is_not_told_again_by_the_next_controller(
    recorder: EventSink, plane: ControlPlane, api: Api, made: Pod
) -> None:
    typo = Event("Warning", "UnknownAnnotation", "leadline.dev/x means nothing", once=True)
    about = Node(made.name, {})
    async with ApiServer.connect(Login(plane.kubeconfig)) as server:
        for each in (recorder, EventSink(server)):
            for _ in range(2):
                await each.record(made, typo)
                await each.record(about, typo)

    (event,) = written(api, made)
    assert (event["note"], "series" in event) == (typo.message, False)
    # What kubectl describe node asks for.
    query = f"fieldSelector=involvedObject.kind=Node,involvedObject.uid={about.name}"
    (on_node,) = api.get(f"/api/v1/namespaces/default/events?{query}")["items"]
    assert on_node["message"] == typo.message


async def test_a_long_message_is_truncated(recorder: EventSink, api: Api, made: Pod) -> None:
    await recorder.record(made, failed("ä" * 2000))

    (event,) = written(api, made)
    assert event["note"].endswith("ä…")
    assert 1000 < len(event["note"].encode()) <= 1024


@pytest.mark.parametrize("name", ["n" * 253, f"n{'-' * 251}n", "n." * 126 + "n"])
async def test_a_pod_with_the_longest_name_gets_its_event(
    recorder: EventSink, api: Api, name: str
) -> None:
    made = read_pod(api.create(PODS, pod(name)))
    try:
        await recorder.record(made, failed())
        assert len(written(api, made)) == 1
    finally:
        api.delete(f"{PODS}/{name}")


async def test_an_event_in_a_deleted_namespace_fails_and_the_next_is_written(
    recorder: EventSink,
) -> None:
    lost = Pod("no-such-namespace", "p", uid="u-1")

    for _ in range(2):
        with pytest.raises(NotFoundError, match="404"):
            await recorder.record(lost, failed())

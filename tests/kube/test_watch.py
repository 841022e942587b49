"""List and watch: survive every failure of the API server and lose no change.

The real server is restarted and made to forget changes; a fake one does what the real one can't.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import Claim, CsiNode, Unreadable
from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    NodeDeleted,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    UnavailableError,
)
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.convert import Converter
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kube.reflector import RESOURCES, Reflector, watch_cluster

from tests.contracts.harnesses import PATIENCE_S, Watched
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.objects import node, pod
from tests.kube.volumes import claim
from tests.kube.wire import FakeServer, event, expired, listing, refusal, served, stream
from tests.support.tasks import until

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
CLAIMS = RESOURCES["PersistentVolumeClaim"]
CSI_NODES = RESOURCES["CSINode"]
IN_DEFAULT = "/api/v1/namespaces/default/pods"


class Mirror:
    """The nodes and pods that a follower of the changes knows."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.pods: dict[str, str] = {}

    async def follow(self, watched: Watched) -> None:
        while True:
            self.take(await watched.next())

    def take(self, change: ClusterChange) -> None:
        match change:
            case Relisted():
                self.nodes = {node.name for node in change.nodes}
                self.pods = {pod.name: pod.uid for pod in change.pods}
            case NodeChanged():
                self.nodes.add(change.node.name)
            case NodeDeleted():
                self.nodes.discard(change.name)
            case PodChanged():
                self.pods[change.pod.name] = change.pod.uid
            case PodDeleted():
                if self.pods.get(change.pod.name) == change.pod.uid:
                    del self.pods[change.pod.name]


def names(things: tuple[Any, ...]) -> set[str]:
    return {thing.name for thing in things}


@asynccontextmanager
async def watching(
    kubeconfig: Path,
    reachability: ReachabilityLog | None = None,
    watch_s: tuple[int, int] = (60, 60),
    late_s: float = 60,
) -> AsyncIterator[Watched]:
    async with (
        ApiServer.connect(Login(kubeconfig)) as server,
        aclosing(watch_cluster(server, reachability, watch_s, late_s)) as changes,
    ):
        yield Watched(changes)


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that may be stopped, because no other test uses it."""
    environ = {k: v for k, v in os.environ.items() if k != "LEADLINE_TEST_KUBECONFIG"}
    with control_plane(tmp_path_factory.mktemp("own-plane"), environ) as running:
        yield running


@pytest.mark.cluster
async def test_a_restart_of_the_api_server_loses_no_change(
    own_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    api = Api(own_plane.kubeconfig)
    for name in ("stays", "goes", "again"):
        api.create(IN_DEFAULT, pod(name))
    api.add_node(node("old"))

    def meanwhile() -> dict[str, str]:
        own_plane.restart()
        for name in ("goes", "again"):
            api.delete(f"{IN_DEFAULT}/{name}")
        for name in ("again", "comes"):
            api.create(IN_DEFAULT, pod(name))
        api.delete(f"{NODES}/old")
        api.add_node(node("new"))
        items = api.get(IN_DEFAULT)["items"]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}

    mirror = Mirror()
    async with watching(own_plane.kubeconfig) as watched:
        mirror.take(await watched.next())
        assert mirror.pods.keys() == {"stays", "goes", "again"}
        following = asyncio.create_task(mirror.follow(watched))
        truth = await asyncio.to_thread(meanwhile)
        await until(lambda: (mirror.pods, mirror.nodes) == (truth, {"new"}) or following.done())
        following.cancel()
        await asyncio.wait({following})

    assert mirror.pods.keys() == {"stays", "again", "comes"}
    reached = [m for m in caplog.messages if "can't be reached" in m]
    answers = [m for m in caplog.messages if "answers again" in m]
    assert (len(reached), len(answers)) == (1, 1)


@pytest.mark.cluster
async def test_the_watch_waits_for_an_api_server_that_is_down_at_start(
    own_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    kubeconfig = own_plane.kubeconfig.with_name("kubeconfig-kept")
    kubeconfig.write_text(own_plane.kubeconfig.read_text())
    own_plane.stop()
    async with watching(kubeconfig) as watched:
        first = asyncio.create_task(watched.next())
        await until(lambda: caplog.messages)

        await asyncio.to_thread(own_plane.start)

        assert isinstance(await first, Relisted)
    assert "can't be reached" in caplog.messages[0]
    assert kubeconfig.read_text().split('"server": "')[1].split('"')[0] in caplog.messages[0]
    assert "answers again" in caplog.messages[-1]
    assert len(caplog.messages) == 2


@pytest.mark.cluster
async def test_a_watch_from_an_expired_version_ends(
    own_plane: ControlPlane,
) -> None:
    """An API server keeps no changes from before its start, so none since version 1."""
    changes: list[ClusterChange] = []
    async with ApiServer.connect(Login(own_plane.kubeconfig)) as server:
        nodes = Reflector(
            server,
            ReachabilityLog(server.url),
            (60, 60),
            PATIENCE_S,
            NODES,
            Converter().node,
            NodeChanged,
            lambda gone: NodeDeleted(gone.name),
        )
        async with asyncio.timeout(PATIENCE_S):
            await nodes.watch("1", changes.append)
    assert changes == []


@pytest.mark.cluster
async def test_more_pods_than_a_page_holds_are_all_listed(plane: ControlPlane) -> None:
    api = Api(plane.kubeconfig)
    label = {"leadline-test": "paging"}
    wanted = {f"page-{i}" for i in range(510)}
    try:
        for name in wanted:
            api.create(IN_DEFAULT, pod(name, scheduler="nobody", labels=label))
        async with watching(plane.kubeconfig) as watched:
            listed = await watched.until(Relisted)
    finally:
        api.delete(f"{IN_DEFAULT}?labelSelector=leadline-test=paging")
    assert wanted <= names(listed.pods)
    assert len(listed.pods) == len({pod.uid for pod in listed.pods})


@pytest.fixture
def wire(quick_backoff: None) -> FakeServer:
    """A server with one node and one pod at version 5, and silent watches."""
    wire = FakeServer()
    wire.answer(NODES, listing(node("n"), version="5"))
    wire.answer(PODS, listing(pod("p"), version="5"))
    wire.answer(f"watch {NODES}", stream())
    wire.answer(f"watch {PODS}", stream())
    for path in RESOURCES.values():
        wire.answer(path, listing(version="5"))
        wire.answer(f"watch {path}", stream())
    return wire


async def test_all_kinds_are_listed_again_when_one_watch_expires(
    wire: FakeServer, tmp_path: Path
) -> None:
    wire.answer(f"watch {PODS}", stream(event("ADDED", pod("q"), "6"), expired()), stream())
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert isinstance(await watched.next(), Relisted)
        assert isinstance(await watched.next(), PodChanged)
        wire.answer(PODS, listing(pod("r"), version="9"))

        again = await watched.until(Relisted)

    assert (names(again.nodes), names(again.pods)) == ({"n"}, {"r"})
    lists = [query for query in wire.queries(NODES) if "watch" not in query]
    assert len(lists) == 2


async def test_a_watch_that_is_refused_as_expired_causes_a_relist(
    wire: FakeServer, tmp_path: Path
) -> None:
    wire.answer(f"watch {NODES}", refusal(410, "too old resource version"), stream())
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert isinstance(await watched.next(), Relisted)
        assert isinstance(await watched.next(), Relisted)


async def test_a_list_that_expires_between_two_pages_starts_again(
    wire: FakeServer, tmp_path: Path
) -> None:
    wire.answer(
        PODS,
        listing(pod("old"), version="5", more="page-2"),
        refusal(410, "The provided continue parameter is too old"),
        listing(pod("p"), version="7", more="page-2"),
        listing(pod("q"), version="7"),
    )
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        listed = await watched.until(Relisted)

    assert names(listed.pods) == {"p", "q"}
    assert [q.get("continue") for q in wire.queries(PODS)[:4]] == [None, "page-2", None, "page-2"]


async def test_a_watch_resumes_from_the_last_bookmark(wire: FakeServer, tmp_path: Path) -> None:
    bookmark = event("BOOKMARK", {"kind": "Pod"}, "70")
    wire.answer(
        f"watch {PODS}",
        stream(event("MODIFIED", pod("p"), "6"), bookmark, then_silence=False),
        stream(event("DELETED", pod("p"), "71")),
    )
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        seen = [await watched.next() for _ in range(3)]

    assert [type(change) for change in seen] == [Relisted, PodChanged, PodDeleted]
    assert [q["resourceVersion"] for q in wire.queries(PODS)[1:]] == ["5", "70"]


async def test_an_incomplete_line_is_not_an_event(wire: FakeServer, tmp_path: Path) -> None:
    wire.answer(
        f"watch {PODS}",
        stream(event("ADDED", pod("q"), "6"), '{"type": "DELETED", "obj', then_silence=False),
        stream(event("ADDED", pod("r"), "7")),
    )
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        await watched.until(Relisted)
        seen = [await watched.next(), await watched.next()]

    assert [change.pod.name for change in seen if isinstance(change, PodChanged)] == ["q", "r"]
    assert [q["resourceVersion"] for q in wire.queries(PODS)[1:]] == ["5", "6"]


@pytest.mark.parametrize(
    "odd",
    [
        "no JSON\n",
        '{"type": "ADDED", "object": 5}\n',
        '{"type": "ADDED", "object": ' + "[" * 100_000 + "\n",
    ],
    ids=["text", "number", "deep"],
)
async def test_an_event_that_cannot_be_read_loses_only_itself(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    wire.answer(f"watch {PODS}", stream(odd, event("ADDED", pod("q"), "6")))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        changed = await watched.until(PodChanged)

    assert changed.pod.name == "q"
    (message,) = caplog.messages
    assert message.endswith("; the event is left out")
    assert len(message) < 300


@pytest.mark.parametrize(
    "page",
    [
        "<html>\n" + "<p>a proxy</p>\n" * 5000,
        "<html>a proxy</html>",
        '{"kind": "Status", "status": "Failure", "message": "a proxy", "code": 401}',
        '{"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": []}\n\n',
    ],
    ids=["long page", "page", "status", "list"],
)
async def test_what_is_no_watch_is_a_failure_and_told_once(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, page: str
) -> None:
    odd = stream(page, then_silence=False)
    wire.answer(f"watch {PODS}", odd, odd, odd, stream("\n", event("ADDED", pod("q"), "6")))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert (await watched.until(PodChanged)).pod.name == "q"

    said = [each for each in caplog.messages if PODS in each]
    assert [f"GET {PODS}: the answer is no watch, but " in each for each in said] == [True]
    assert len(said[0]) < 600


async def test_a_server_whose_watches_all_expire_is_listed_ever_more_seldom(
    wire: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def backoffs_s(*_: float) -> Iterator[float]:
        for number in range(100):
            waits.append(number)
            yield 0.0

    monkeypatch.setattr("leadline_controller.kube.reflector.backoffs_s", backoffs_s)
    wire.answer(f"watch {PODS}", stream(expired()))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        for _ in range(5):
            await watched.until(Relisted)
    assert waits[:4] == [0, 1, 2, 3]


async def test_a_silent_watch_is_replaced(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire.answer(f"watch {NODES}", stream(), stream(event("ADDED", node("late"), "6")))
    async with (
        served(wire, tmp_path) as kubeconfig,
        watching(kubeconfig, watch_s=(0, 0), late_s=0.2) as watched,
    ):
        late = await watched.until(NodeChanged)

    assert late.node.name == "late"
    # A quiet cluster is not an error. The test's server may log that a watch was left.
    assert [each.message for each in caplog.records if each.name.startswith("leadline")] == []


async def test_errors_of_a_watch_neither_end_it_nor_cause_a_relist(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="leadline_controller")
    failure = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}}
    wire.answer(
        f"watch {PODS}",
        refusal(429),
        stream(failure, then_silence=False),
        refusal(500),
        stream(event("ADDED", pod("q"), "6")),
    )
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        await watched.until(Relisted)
        change = await watched.next()

    assert isinstance(change, PodChanged)
    assert {q["resourceVersion"] for q in wire.queries(PODS)[1:]} == {"5"}
    assert len([m for m in caplog.messages if "answers again" in m]) <= 2


async def test_a_forbidden_list_is_logged_once_and_retried(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = refusal(403, 'pods is forbidden: User "x" cannot list resource "pods"')
    wire.answer(PODS, forbidden, forbidden, forbidden, listing(pod("p"), version="5"))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        await watched.until(Relisted)

    (message,) = caplog.messages
    assert "cannot list resource" in message


def forbidden(kind: str, verb: str) -> str:
    return f'{kind} is forbidden: User "x" cannot {verb} resource "{kind}" at the cluster scope'


async def test_storage_that_cannot_be_listed_is_unreadable_until_it_can(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no = refusal(403, forbidden("csinodes", "list"))
    limits = {"drivers": [{"name": "d", "allocatable": {"count": 3}}]}
    csi_node = {"metadata": {"name": "n"}, "spec": limits}
    wire.answer(CSI_NODES, no, no, listing(csi_node, version="7"))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        first = await watched.until(Relisted)
        second = await watched.until(Relisted)

    (unreadable,) = first.objects
    assert isinstance(unreadable, Unreadable)
    assert unreadable.kind == "csinodes"
    assert 'cannot list resource "csinodes"' in unreadable.why
    assert second.objects == (CsiNode("n", {"d": 3}),)
    (message,) = caplog.messages
    assert 'cannot list resource "csinodes"' in message


async def test_storage_that_cannot_be_watched_is_unreadable_until_it_can(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no = refusal(403, forbidden("persistentvolumeclaims", "watch"))
    added = event("ADDED", claim("c", "slow"), "6")
    wire.answer(f"watch {CLAIMS}", no, no, stream(added))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert (await watched.until(Relisted)).objects == ()
        refused = await watched.next()
        allowed = await watched.next()
        seen = await watched.next()

    assert isinstance(refused, ObjectChanged)
    assert isinstance(refused.object, Unreadable)
    assert allowed == ObjectDeleted(refused.object)
    assert isinstance(seen, ObjectChanged)
    assert isinstance(seen.object, Claim)
    (message,) = caplog.messages
    assert "persistentvolumeclaims" in message


NOT_SERVED = "the server could not find the requested resource"


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_that_may_be_ends_an_outage(
    wire: FakeServer, tmp_path: Path, status: int
) -> None:
    outage, no = refusal(500), refusal(status, forbidden("csinodes", "list"))
    wire.answer(CSI_NODES, outage, *[no] * 20)
    wire.answer(f"watch {CLAIMS}", outage, *[refusal(403, forbidden("claims", "watch"))] * 20)
    reachability = ReachabilityLog("https://k:6443")
    async with (
        served(wire, tmp_path) as kubeconfig,
        watching(kubeconfig, reachability=reachability) as watched,
    ):
        await watched.until(Relisted)
        assert CSI_NODES not in {each.path for each in reachability.status().failures}
        await watched.until(ObjectChanged)
        assert reachability.status().failures == ()


async def test_a_kind_that_the_server_does_not_serve_has_no_objects_until_it_does(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no = refusal(404, NOT_SERVED)
    csi_node = {"metadata": {"name": "n"}, "spec": {"drivers": []}}
    wire.answer(CSI_NODES, no, no, no, listing(csi_node, version="7"))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert (await watched.until(Relisted)).objects == ()
        assert (await watched.until(Relisted)).objects == (CsiNode("n", {}),)

    assert caplog.messages == [
        "there are no csinodes: the API server does not serve them:"
        f" 404: {NOT_SERVED} (GET {CSI_NODES})"
    ]


async def test_a_kind_that_is_no_longer_served_has_no_objects(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    csi_node = {"metadata": {"name": "n"}, "spec": {"drivers": []}}
    no = refusal(404, NOT_SERVED)
    wire.answer(CSI_NODES, listing(csi_node, version="5"), no)
    wire.answer(f"watch {CSI_NODES}", no)
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        assert (await watched.until(Relisted)).objects == (CsiNode("n", {}),)
        assert (await watched.until(Relisted)).objects == ()

    (message,) = caplog.messages
    assert "does not serve them" in message


async def test_a_watch_that_is_not_found_while_the_list_is_served_is_an_error(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no = refusal(404, NOT_SERVED)
    added = event("ADDED", claim("c", "slow"), "6")
    wire.answer(f"watch {CLAIMS}", no, no, stream(added))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        await watched.until(Relisted)
        assert isinstance(await watched.next(), ObjectChanged)

    (message,) = caplog.messages
    assert f"refuses: 404: {NOT_SERVED}" in message


async def test_an_unreadable_claim_is_ignored_and_logged_once(
    wire: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = claim("odd", "slow")
    odd["spec"]["volumeMode"] = "Tape"
    wire.answer(CLAIMS, listing(odd, claim("fine", "slow"), version="5"))
    events = (event("MODIFIED", odd, "6"), event("MODIFIED", claim("fine", "fast"), "7"))
    wire.answer(f"watch {CLAIMS}", stream(*events))
    async with served(wire, tmp_path) as kubeconfig, watching(kubeconfig) as watched:
        listed = await watched.until(Relisted)
        changed = await watched.until(ObjectChanged)

    assert [each.key for each in listed.objects] == ["default/fine"]
    assert changed.object.key == "default/fine"
    (message,) = caplog.messages
    assert "PersistentVolumeClaim odd" in message


async def test_all_requests_wait_for_retry_after(wire: FakeServer, tmp_path: Path) -> None:
    wire.answer(NODES, refusal(429, "too many requests", Retry_After="1"), listing(version="5"))
    async with served(wire, tmp_path) as kubeconfig, ApiServer.connect(Login(kubeconfig)) as server:
        with pytest.raises(UnavailableError, match="429: too many requests"):
            await server.get(NODES)
        await asyncio.gather(server.get(PODS), server.get(NODES))

    (_, _, refused_s), *later = wire.requests
    assert [at_s - refused_s >= 0.99 for _, _, at_s in later] == [True, True]


async def test_an_answer_that_is_not_json_is_unavailable(wire: FakeServer, tmp_path: Path) -> None:
    wire.answer(NODES, stream("<html>a proxy</html>", then_silence=False))
    wire.answer(PODS, stream("[]", then_silence=False))
    async with served(wire, tmp_path) as kubeconfig, ApiServer.connect(Login(kubeconfig)) as server:
        for path in (NODES, PODS):
            with pytest.raises(UnavailableError, match=path):
                await server.get(path)

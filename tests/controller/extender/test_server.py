"""The extender's protocol: right answers, and an error of the protocol for a wrong request."""

import asyncio
import json

import aiohttp
import pytest
from leadline_controller.extender.server import ExtenderServer, Limits
from leadline_controller.framework.model import Pod
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.serve.settings import ExtenderSettings, ServeError

from tests.attack.extender import mutations
from tests.attack.extender_client import Address
from tests.controller.extender.harness import (
    NAMES,
    PATIENCE_S,
    ExtenderHarness,
    args,
    listed,
    nodes_with_mbps,
    pod_manifest,
    wide,
)
from tests.controller.extender.listening import BRIEF, Secured, answering, post
from tests.support.memory_cluster import MemoryCluster
from tests.support.ports import free_port


async def test_filter_prioritize_and_bind(secured: Secured) -> None:
    harness = listed()
    pod = harness.put_manifest(pod_manifest("web", 50))
    arguments = args(pod_manifest("web", 50, data_mb="100"), NAMES)
    async with answering(harness, tls=secured.tls) as address:
        status, filtered = await post(address, "filter", arguments, secured.shown)
        assert (status, filtered["NodeNames"], filtered["Error"]) == (200, ["n2", "n3"], "")
        assert filtered["FailedAndUnresolvableNodes"].keys() == {"n1"}
        status, ranked = await post(address, "prioritize", arguments, secured.shown)
        assert status == 200
        assert {each["Host"]: each["Score"] for each in ranked}["n1"] == 0
        binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
        body = json.dumps(binding).encode()
        assert await post(address, "bind", body, secured.shown) == (200, {"Error": ""})
    assert harness.cluster.pod("default/web").node_name == "n3"


async def test_bind_is_disabled_unless_configured() -> None:
    harness = listed()
    pod = harness.put_manifest(pod_manifest("web"))
    async with answering(harness) as address:
        await post(address, "filter", args(pod_manifest("web"), NAMES))
        binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
        status, answer = await post(address, "bind", json.dumps(binding).encode())
    assert status == 404
    assert "set bind = true in [extender]" in answer["Error"]
    assert harness.cluster.pod("default/web").node_name is None


async def test_health() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 100, 1000))
    async with answering(harness) as address, aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, "has not listed" in await answer.text()) == (503, True)
        harness.list()
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


@pytest.mark.parametrize("verb", ["filter", "bind", "prioritize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"Pod":' + b"[" * 50_000])
async def test_a_malformed_request_gets_an_error_of_the_protocol(
    verb: str, body: bytes, secured: Secured
) -> None:
    async with answering(listed(), tls=secured.tls) as address:
        status, answer = await post(address, verb, body, secured.shown)
    assert status == (400 if verb == "prioritize" else 200)
    assert answer.keys() == {"Error"}
    assert answer["Error"].startswith("leadline: ")


async def test_an_annotation_that_cannot_be_read_is_named() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web", "plenty"), NAMES))
    assert answer["Error"].startswith("leadline: annotation leadline.dev/bandwidth-mbps: expected")


async def test_unknown_nodes_are_an_error() -> None:
    async with answering(listed()) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web"), ["x", "y"]))
        assert "none of these nodes is known" in answer["Error"]
        _, answer = await post(address, "filter", args(pod_manifest("web"), ["x", "n1"]))
        assert (answer["NodeNames"], answer["Error"]) == (["n1"], "")
        assert "x" in answer["FailedAndUnresolvableNodes"]


async def test_other_paths_and_methods_are_refused() -> None:
    async with answering(listed()) as address, aiohttp.ClientSession() as session:
        async with session.post(f"http://{address}/preempt", data=b"{}") as answer:
            assert answer.status == 404
        async with session.get(f"http://{address}/filter") as answer:
            assert answer.status == 405


async def test_ten_thousand_names() -> None:
    count = 10_000
    names = [f"n{i}" for i in range(count)]
    harness = listed([read_node(wide(name, i % 100)) for i, name in enumerate(names)])
    arguments = args(pod_manifest("web", 50, data_mb="10"), names)
    async with answering(harness, Limits(answer_s=PATIENCE_S)) as address:
        _, filtered = await post(address, "filter", arguments)
        assert len(filtered["NodeNames"]) == count // 2
        assert len(filtered["FailedAndUnresolvableNodes"]) == count // 2
        _, ranked = await post(address, "prioritize", arguments)
        assert len(ranked) == count


async def test_damaged_requests_are_answered_correctly_or_refused(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering(listed(), tls=secured.tls) as text:
        assert await mutations(Address.of(text, secured.shown), 250) == []
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_many_random_bytes_get_an_error_of_the_protocol(verb: str, secured: Secured) -> None:
    arguments = b'{"Pod": "' + b"x" * 2_000_000 + b'"}'
    async with answering(listed(), Limits(answer_s=PATIENCE_S), secured.tls) as address:
        _, answer = await post(address, verb, arguments, secured.shown)
        assert answer["Error"].startswith("leadline: ")


async def test_a_service_that_is_not_ready_says_so_in_time() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 100, 1000))
    async with answering(harness, BRIEF) as address:
        _, answer = await post(address, "filter", args(pod_manifest("web"), NAMES))
        assert "the API server has not listed" in answer["Error"]
        status, _ = await post(address, "prioritize", args(pod_manifest("web"), NAMES))
        assert status == 400


class Stuck(MemoryCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_binding_that_takes_too_long_is_cancelled(secured: Secured) -> None:
    harness = listed(cluster=Stuck(nodes_with_mbps(10, 100, 1000)))
    pod = harness.put_manifest(pod_manifest("web"))
    binding = {"PodName": "web", "PodNamespace": "default", "PodUID": pod.uid, "Node": "n3"}
    async with answering(harness, BRIEF, secured.tls) as address:
        await post(address, "filter", args(pod_manifest("web"), NAMES), secured.shown)
        _, answer = await post(address, "bind", json.dumps(binding).encode(), secured.shown)
    assert answer["Error"] == "leadline: not answered within 0.3 s"


async def test_an_internal_error_is_an_error_of_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = listed()
    monkeypatch.setattr(harness.extender_service, "filter", lambda _: 1 / 0)
    async with answering(harness) as address:
        status, answer = await post(address, "filter", args(pod_manifest("web"), NAMES))
    assert (status, "ZeroDivisionError" in answer["Error"]) == (200, True)


async def test_an_address_in_use_is_reported() -> None:
    harness = listed()
    async with answering(harness) as address:
        server = ExtenderServer(ExtenderSettings(address), harness.extender_service)
        with pytest.raises(ServeError, match=f"extender address {address}: cannot listen there"):
            await server.start()
        await server.stop()


async def test_the_actual_port_is_returned() -> None:
    port = free_port()
    server = ExtenderServer(ExtenderSettings(f"localhost:{port}"), listed().extender_service)
    assert await server.start() == f"localhost:{port}"
    await server.stop()

"""The joined rooms: the extender with and without the scheduler, and what else answers."""

import asyncio
import logging
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from leadline_controller import wiring
from leadline_controller.extender.service import extender_rule
from leadline_controller.framework.model import Pod
from leadline_controller.history.log import BOUND, GONE
from leadline_controller.history.store import HistorySettings
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.map.settings import WebSettings, WebTls
from leadline_controller.notifications import loop
from leadline_controller.notifications.settings import NotifySettings
from leadline_controller.scheduling.shadow import ShadowSettings
from leadline_controller.serve.settings import (
    ExtenderSettings,
    GrpcSettings,
    HealthSettings,
    KedaSettings,
    MetricsSettings,
)
from leadline_controller.settings import Settings
from leadline_controller.wiring import Servers
from leadline_wire.v1.control_pb2_grpc import InspectionStub
from leadline_wire.v1.shadow_pb2 import CompareStrategiesRequest
from leadline_wire.v1.status_pb2 import GetStatusRequest
from leadline_wire.v1.status_pb2_grpc import DiagnosisStub

from tests.controller.extender.harness import args, pending, pod_manifest, wide
from tests.controller.extender.listening import post
from tests.controller.notifications.harness import LocalReceiver
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.ports import free_port
from tests.support.tasks import until

NODES = [wide("n1", 10), wide("n2", 1000)]
ANY_PORT = ExtenderSettings("127.0.0.1:0")


@pytest.mark.parametrize("standalone", [True, False])
async def test_kube_scheduler_is_answered_and_the_watch_sets_the_outcome(
    standalone: bool,
) -> None:
    serve = GrpcSettings("127.0.0.1:0")
    settings = Settings(serve=serve, extender=ANY_PORT, warm_up_s=0.0, standalone=standalone)
    cluster = MemoryCluster([read_node(each) for each in NODES])
    controller = wiring.Controller(settings, cluster)
    async with (
        Servers(controller).serving() as addresses,
        wiring.running(*controller.placing()),
    ):
        address = addresses["extender"]
        other = cluster.put_pod(pending(pod_manifest("other", 50)))
        own = cluster.put_pod(Pod("default", "own"))
        await until(lambda: controller.state.pod(own.uid) is not None)
        _, answer = await post(address, "filter", args(pod_manifest("other", 50), ["n1", "n2"]))
        assert (answer["NodeNames"], answer["Error"]) == (["n2"], "")
        await cluster.bind(other, "n2")
        await until(
            lambda: (
                (record := controller.decisions.get("default/other")) and record.outcome == BOUND
            )
        )
        if standalone:
            await until(lambda: cluster.pod("default/own").node_name)
        assert (cluster.pod("default/own").node_name is not None) == standalone
        await until(lambda: [e for e in cluster.events if e.about.name == "other"])
        gone = cluster.put_pod(pending(pod_manifest("gone", 5000)))
        await until(lambda: controller.state.pod(gone.uid) is not None)
        await post(address, "filter", args(pod_manifest("gone", 5000), ["n1", "n2"]))
        cluster.remove_pod("default/gone")
        await until(
            lambda: (record := controller.decisions.get("default/gone")) and record.outcome == GONE
        )


async def test_only_what_has_a_section_is_answered_and_nothing_is_counted_for_nobody() -> None:
    controller = wiring.Controller(
        Settings(serve=GrpcSettings("127.0.0.1:0"), broker_port=free_port()), MemoryCluster()
    )
    async with Servers(controller).serving() as addresses:
        assert list(addresses) == ["grpc"]
    assert controller.instruments is None


@pytest.mark.parametrize("every", [True, False])
async def test_what_runs_in_the_extender(every: bool) -> None:
    """The strategy's own filter does, and kube-scheduler's where the settings say so."""
    ours = wiring.scheduling_rule(Settings(strategy="response-time"))
    filters = extender_rule(ours, every_filter=every).filters.keys()
    assert filters >= {"NodeBandwidthFit", "ResponseTime"}
    assert ("NodeResourcesFit" in filters) == every


# Metrics.


async def metrics_of(address: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as got:
        assert got.status == 200
        return await got.text()


async def test_prometheus_reads_how_pods_were_placed(tmp_path: Path) -> None:
    settings = Settings(
        serve=GrpcSettings("127.0.0.1:0"),
        metrics=MetricsSettings("127.0.0.1:0"),
        extender=ANY_PORT,
        strategy="dacs",
        warm_up_s=0.0,
        decisions=HistorySettings(tmp_path / "decisions.db"),
    )
    cluster = MemoryCluster([read_node(each) for each in NODES])
    controller = wiring.Controller(settings, cluster)
    async with (
        controller.storing_decisions(),
        Servers(controller).serving() as addresses,
        wiring.running(*controller.placing()),
    ):
        address, extender = addresses["metrics"], addresses["extender"]
        for name in ("a", "b"):
            cluster.put_pod(Pod("default", name))
        cluster.put_pod(Pod("default", "huge", requests={"cpu": 10**9}))
        await post(extender, "filter", b"nonsense")
        expected = (
            'leadline_decisions_total{outcome="bound",reason="",strategy="dacs"} 2.0',
            'outcome="unschedulable",reason="NodeResourcesFit",strategy="dacs"} 1.0',
            'leadline_scheduling_duration_seconds_count{phase="queue"} 3.0',
            'leadline_scheduling_duration_seconds_count{phase="decide"} 3.0',
            'leadline_scheduling_duration_seconds_count{phase="bind"} 2.0',
            'leadline_pending_pods{queue="unschedulable"} 1.0',
            'leadline_nodes{state="ready"} 2.0',
            'leadline_extender_request_duration_seconds_count{verb="filter"} 1.0',
            'leadline_extender_errors_total{verb="filter"} 1.0',
            "leadline_leader 1.0",
        )
        missing = list(expected)
        for _ in range(180):  # an answer is used again for a second
            text = await metrics_of(address)
            missing = [each for each in expected if each not in text]
            if not missing:
                break
            await asyncio.sleep(0.5)
        assert not missing, text


# Shadows.


async def test_a_shadow_of_the_settings_decides_beside_and_its_comparison_is_answered(
    tmp_path: Path,
) -> None:
    settings = Settings(
        serve=GrpcSettings("127.0.0.1:0"),
        metrics=MetricsSettings("127.0.0.1:0"),
        strategy="dacs",
        warm_up_s=0.0,
        shadow=ShadowSettings(("netsched", "dacs"), 0.5, {"dacs": {"alpha": 0.25}}),
        decisions=HistorySettings(tmp_path / "decisions.db"),
    )
    cluster = MemoryCluster([read_node(each) for each in NODES])
    controller = wiring.Controller(settings, cluster)
    async with (
        controller.storing_decisions(),
        Servers(controller).serving() as addresses,
        wiring.running(*controller.placing()),
        grpc.aio.insecure_channel(addresses["grpc"]) as channel,
    ):
        cluster.put_pod(Pod("default", "a", uid="a"))
        await until(lambda: cluster.pod("default/a").node_name)
        shadow = controller.shadow
        assert shadow is not None
        await until(lambda: sum(shadow.counts().values()) == 2)
        answer = await InspectionStub(channel).CompareStrategies(CompareStrategiesRequest())
        text = await metrics_of(addresses["metrics"])
    assert sorted(answer.strategies) == ["dacs", "netsched"]
    assert {(x.strategy, x.decided_by, x.decisions) for x in answer.comparisons} == {
        ("dacs", "dacs", 1),
        ("netsched", "dacs", 1),
    }
    counts = re.findall(r'leadline_shadow_decisions_total{.*strategy="netsched"} (.+)', text)
    assert sorted(map(float, counts)) == [0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(("preferences", "tolerance"), [("on", None), (5.0, None), ("off", "off")])
def test_a_tolerance_of_the_strategy_in_force_is_not_that_of_a_shadow(
    preferences: str | float, tolerance: str | None
) -> None:
    settings = Settings(preferences=preferences, shadow=ShadowSettings(("netsched",)))
    shadow = wiring.Controller(settings, MemoryCluster()).shadow
    assert shadow is not None
    prefer: Any = shadow._rules["netsched"].prefer
    assert ("off" if prefer is None else prefer.tolerance) == tolerance


def test_all_certificates_of_the_settings_are_watched() -> None:
    files = [Path(f"/{name}.pem") for name in ("cert", "key", "ca")]
    settings = Settings(web=WebSettings("127.0.0.1:0", WebTls(*files)))
    controller = wiring.Controller(settings, MemoryCluster(), login=Path("/login.pem"))
    assert [each.setting for each in controller.certificates] == [
        "web.tls.cert_file",
        "web.tls.client_ca_file",
        "kubernetes.kubeconfig",
    ]


async def test_a_problem_of_the_doctor_is_told_and_the_doctor_says_that_it_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "LOOK_S", 0.01)
    cluster = MemoryCluster()
    async with LocalReceiver().serving() as receiver:
        settings = Settings(
            serve=GrpcSettings("127.0.0.1:0"),
            broker_port=free_port(),
            notify=NotifySettings("ntfy", f"{receiver.url}/topic", after_s=0.0),
        )
        controller = wiring.Controller(settings, cluster)
        async with (
            Servers(controller).serving() as addresses,
            wiring.running(*controller.work()),
            grpc.aio.insecure_channel(addresses["grpc"]) as channel,
        ):
            await until(lambda: "broker" in str(receiver.got))
            status = await DiagnosisStub(channel).GetStatus(GetStatusRequest())
        assert status.notifications.receiver == receiver.url.replace("http://", "ntfy at ")
        assert status.notifications.age_s < 90
        assert "notifications" in status.fine
        assert "broker-away" in dict(await cluster.read_notes())["told"]


@pytest.mark.parametrize("section", ["web", "metrics", "extender", "keda", "health"])
async def test_a_server_whose_port_is_taken_comes_when_it_is_free(
    section: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leadline_controller.wiring.servers")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        at = f"127.0.0.1:{port}"
        made: dict[str, Any] = {
            "web": WebSettings(at),
            "metrics": MetricsSettings(at),
            "extender": ExtenderSettings(at),
            "keda": KedaSettings(at),
            "health": HealthSettings(at),
        }
        settings = replace(Settings(serve=GrpcSettings("127.0.0.1:0")), **{section: made[section]})
        clock = ManualClock()
        controller = wiring.Controller(settings, MemoryCluster(), clock=clock)

        async def problems(channel: grpc.aio.Channel) -> list[str]:
            status = await DiagnosisStub(channel).GetStatus(GetStatusRequest())
            assert ("servers" in status.fine) == (not status.unserved)
            return [f"{x.where}: {x.what}" for x in status.problems if x.kind == "address-taken"]

        async with (
            Servers(controller).serving() as addresses,
            grpc.aio.insecure_channel(addresses["grpc"]) as channel,
        ):
            assert list(addresses) == ["grpc"]
            why = f"{section} address {at}: cannot listen there"
            (line,) = [each for each in caplog.messages if why in each]
            assert "going on without it" in line
            await clock.advance(1.0)
            (problem,) = await problems(channel)
            assert problem.startswith(why)
            taken.close()
            for _ in range(200):
                await clock.advance(30.0)
                if not await problems(channel):
                    break
                await asyncio.sleep(0.01)
            socket.create_connection(("127.0.0.1", port)).close()
            assert await problems(channel) == []
            assert len([each for each in caplog.messages if "cannot listen" in each]) == 1
            assert caplog.messages[-1].rstrip("/").endswith(at)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert controller.unserved == {}

"""Every query of every panel of the Grafana dashboards has an answer from a real Prometheus that
scrapes a real controller: with agents, an API server, pods, kube-scheduler's questions, and a
simulated Raspberry Pi that is hot and short of voltage, as this machine is not."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.wire_client import WireClient, connected
from tests.kube.objects import pod
from tests.support.dashboards import PanelQuery, dashboards, panel_queries
from tests.support.mosquitto import Broker
from tests.support.ports import free_port
from tests.support.prometheus import RULES, Prometheus, prometheus
from tests.system.daemons import eventually
from tests.system.harness import BOARDS, CLUSTER, LeadlineSystem, leadline_system

pytestmark = [pytest.mark.cluster, pytest.mark.broker, pytest.mark.prometheus]

PI = "pi-1"
PATIENCE_S = 240.0
# The Pi has sensors that this machine lacks; the others have links.
SHOWN_BOARDS = (PI, *BOARDS)


@dataclass
class HotPi:
    """A Raspberry Pi whose agent says what this machine's can not."""

    client: WireClient
    messages: BoardMessages

    def report(self) -> None:
        """Say how it is, and something that nobody understands."""
        report = self.messages.report(
            cpu=pb.Cpu(busy_percent=12.5, throttled=True, under_voltage=True),
            memory=pb.Memory(total_bytes=4 << 30, available_bytes=3 << 30),
            temperature=pb.Temperature(cpu_celsius=81.0),
            disk=pb.Disk(read_bytes_per_s=10_240.0, written_bytes_per_s=20_480.0),
            network=[
                pb.NetworkInterface(
                    name="eth0", link_mbps=1000, bytes_sent_per_s=9e4, bytes_received_per_s=4e4
                )
            ],
        )
        self.client.send(self.messages, report)
        self.client.publish(self.messages.topic(topics.Kind.REPORT), b"\xff", topics.Kind.REPORT)


@dataclass
class Watched:
    """A system, its Pi, and the Prometheus that scrapes its controller. extender: its port."""

    system: LeadlineSystem
    pi: HotPi
    prometheus: Prometheus
    extender: int


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    extender, metrics = free_port(), f"127.0.0.1:{free_port()}"
    settings = (
        '[[probe.uplinks]]\nname = "lte"\nnodes = ["edge-1"]\nmbps = 1000\n'
        f'[extender]\naddress = "127.0.0.1:{extender}"\n[rescheduling]\nmode = "manual"\n'
        f'[metrics]\naddress = "{metrics}"\n[shadow]\nstrategies = ["netsched"]\n'
    )
    job = {"job_name": "leadline", "static_configs": [{"targets": [metrics]}]}
    with (
        leadline_system(tmp_path_factory.mktemp("system"), settings) as system,
        connected(
            Broker("127.0.0.1", system.broker.port, system.broker.pid or 0),
            tls=system.authority.client(PI),
        ) as client,
        prometheus([job], rules=[RULES]) as server,
    ):
        pi = HotPi(client, BoardMessages(PI, CLUSTER))
        birth = pb.Birth(
            origin=pi.messages.origin(),
            timing=pi.messages.timing(),
            agent_version="0.1.0",
            hardware_model="Raspberry Pi 4 Model B Rev 1.4",
            interval_s=1,
        )
        client.send(pi.messages, birth)
        client.send(pi.messages, pb.Status(origin=pi.messages.origin(), online=True))
        # Rates need a sample from before what they count.
        server.wait_for("leadline_leader == 1")
        yield Watched(system, pi, server, extender)
        system.clean()


def ask_extender(port: int) -> None:
    """Ask what kube-scheduler asks."""
    known = {"metadata": {"name": "asked", "namespace": "default", "uid": "asked"}, "spec": {}}
    question = json.dumps({"Pod": known, "NodeNames": list(BOARDS)})
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", "/filter", question, {"Content-Type": "application/json"})
    assert client.getresponse().status == 200
    client.close()


def is_answered(server: Prometheus, query: PanelQuery) -> bool:
    """Whether a panel shows a number for any of the boards."""
    expressions = {query.expanded({"node": board, "phase": "bind"}) for board in SHOWN_BOARDS}
    return any(
        math.isfinite(float(found["value"][1]))
        for expression in expressions
        for found in server.query(expression)
    )


def test_every_query_of_every_panel_has_an_answer(watched: Watched) -> None:
    watched.system.add_pod(pod("small", cpu="100m"))
    watched.system.add_pod(pod("huge", cpu="1000"))
    watched.system.wait_bound("small", 1)
    ask_extender(watched.extender)

    def unanswered() -> list[PanelQuery]:
        watched.pi.report()
        return [each for each in panel_queries() if not is_answered(watched.prometheus, each)]

    eventually(unanswered, lambda left: not left, "every query is answered", PATIENCE_S, 1.0)


def test_each_variable_has_the_boards_to_choose_from(watched: Watched) -> None:
    watched.pi.report()
    variables = [each for every in dashboards().values() for each in every["templating"]["list"]]
    (asked,) = (each["query"] for each in variables if each["type"] == "query")
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked)
    assert found
    metric, label = found.groups()
    eventually(
        lambda: {series["metric"][label] for series in watched.prometheus.query(metric)},
        lambda seen: seen == set(SHOWN_BOARDS),
        "all boards are there",
        PATIENCE_S,
    )

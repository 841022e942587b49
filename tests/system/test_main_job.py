"""The main job with nothing faked: agents and controller as processes, over TLS to a real
broker, placing pods through a real API server, through every failure that a cluster knows."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.homeassistant.messages import Topics

from tests.controller.homeassistant.state_brokers import MosquittoBroker, observed
from tests.kube.objects import condition, node, pod
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.threads import beside
from tests.system.daemons import Daemon, eventually, leadline, unreachable_kubeconfig
from tests.system.harness import BOARDS, CLUSTER, NODES, PODS, LeadlineSystem, leadline_system

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

BANDWIDTH = "leadline.dev/bandwidth-mbps"
CONNECTED = "connected"  # in the log line of agent and controller about a session with the broker
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"


@pytest.fixture(scope="module")
def running_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeadlineSystem]:
    with leadline_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture
def system(running_system: LeadlineSystem) -> Iterator[LeadlineSystem]:
    try:
        yield running_system
    finally:
        running_system.clean()


def metrics_of(answer: Any) -> dict[str, set[str]]:
    return {each["name"]: set(each["metrics"]) for each in answer["nodes"]}


@pytest.mark.smoke
def test_started_before_everything_it_waits_and_says_so_once(system: LeadlineSystem) -> None:
    system.controller.wait_said("connected to the broker")
    system.controller.wait_said("answers again")
    assert system.controller.said("no broker at") == 1
    assert system.controller.said("can't be reached") == 1


@pytest.mark.smoke
def test_the_agents_are_heard_and_sound_each_other(system: LeadlineSystem) -> None:
    nodes = eventually(
        lambda: system.ask("nodes"),
        lambda answer: all("bandwidth_mbps" in known for known in metrics_of(answer).values()),
        "each node's bandwidth is measured",
    )
    assert metrics_of(nodes).keys() == BOARDS.keys()
    for each in nodes["nodes"]:
        assert {"cpu_percent", "memory_percent"} <= set(each["metrics"])
        assert (each["agent"], each["in_cluster"], each["ready"]) == ("online", True, True)
        assert each["address"] == BOARDS[each["name"]]
    matrix = eventually(
        lambda: system.ask("matrix"),
        lambda answer: len(answer["links"]) == 3 and all(x["rtt_ms"] for x in answer["links"]),
        "all round trips are measured",
    )
    assert matrix["nodes"] == sorted(BOARDS)
    # All this is one machine and its loopback interface.
    assert all(link["rtt_ms"] > 0 for link in matrix["links"])
    assert any(link["bandwidth_mbps"] for link in matrix["links"])


@pytest.mark.smoke
def test_pods_are_bound_and_say_why(system: LeadlineSystem) -> None:
    system.add_pod(pod("theirs", cpu="100m", scheduler="another-scheduler"))
    for number in range(3):
        system.add_pod(pod(f"plain-{number}", cpu="100m", memory="64Mi"))
    bound = system.wait_bound("plain-", 3)
    assert set(bound.values()) <= set(BOARDS)
    for name, node_name in bound.items():
        event = system.wait_event(name, "Scheduled")
        assert event["type"] == "Normal"
        assert event["reportingController"] == "leadline"
        assert event["note"].startswith(f"Assigned default/{name} to {node_name} by leadline: ")
        explained = system.ask("explain", name)
        assert (explained["node"], explained["outcome"]) == (node_name, "bound")
        assert explained["why"] in event["note"]
        assert set(explained["scores"]) == set(BOARDS)
    listed = {each["pod"]: each["node"] for each in system.ask("placements")["placements"]}
    assert {f"default/{name}": node_name for name, node_name in bound.items()}.items() <= (
        listed.items()
    )
    assert system.bindings("theirs") == {"theirs": None}
    assert system.events("theirs") == []
    noted = system.api.get(LEASE)["metadata"]["annotations"]
    assert noted == {"leadline.dev/strategy": "leadline"}, "of a new installation"
    assert "default/theirs" not in listed


def test_an_annotation_that_cannot_be_read_is_named_and_the_pod_waits(
    system: LeadlineSystem,
) -> None:
    system.add_pod(pod("puzzle", annotations={BANDWIDTH: "plenty"}))
    event = system.wait_event("puzzle", "FailedScheduling")
    assert event["type"] == "Warning"
    assert f"annotation {BANDWIDTH}: expected a number" in event["note"]
    assert "'plenty'" in event["note"]
    system.add_pod(pod("after-puzzle"))
    system.wait_bound("after-puzzle", 1)
    assert system.bindings("puzzle") == {"puzzle": None}
    assert system.ask("explain", "puzzle")["outcome"] == "pending"
    system.api.patch(f"{PODS}/puzzle", {"metadata": {"annotations": {BANDWIDTH: "0.001"}}})
    system.wait_bound("puzzle", 1)


def test_a_misspelt_annotation_is_told_and_a_deleted_pod_is_not_bound_any_more(
    system: LeadlineSystem,
) -> None:
    system.add_pod(pod("typo", annotations={"leadline.dev/bandwith-mbps": "0.001"}))
    system.wait_bound("typo", 1)
    event = system.wait_event("typo", "UnknownAnnotation")
    assert event["type"] == "Warning"
    assert event["note"].endswith(f"means nothing: did you mean {BANDWIDTH}?")
    explained = system.ask("explain", "typo")
    assert event["note"] in explained["why"]
    system.api.delete(f"{PODS}/typo")
    eventually(
        lambda: [
            each["outcome"]
            for each in system.ask("placements", "--node", explained["node"])["placements"]
            if each["pod"] == "default/typo"
        ],
        lambda outcomes: outcomes == ["deleted"],
        "the pod is told as deleted",
        timeout_s=90,
    )


def test_a_misspelt_label_of_a_node_is_told_by_one_event(system: LeadlineSystem) -> None:
    system.add_node(node("typo-node", labels={"leadline.dev/teir": "edge"}, unschedulable=True))
    event = system.wait_event("typo-node", "UnknownAnnotation")
    assert event["regarding"]["kind"] == "Node"
    assert event["note"].endswith("means nothing: did you mean leadline.dev/tier?")
    system.api.patch(f"{NODES}/typo-node", {"metadata": {"labels": {"leadline.dev/clas": "pi4"}}})
    system.wait_event("typo-node", "UnknownAnnotation", lambda note: "leadline.dev/clas " in note)
    assert len(system.events("typo-node", "UnknownAnnotation")) == 2, "one for each"


def test_a_pod_that_fits_nowhere_is_bound_once_a_node_comes(system: LeadlineSystem) -> None:
    system.add_pod(pod("giant", cpu="16"))
    event = system.wait_event("giant", "FailedScheduling")
    assert "0 of 3 nodes fit: 3 NodeResourcesFit" in event["note"]
    explained = system.ask("explain", "giant")
    assert explained["node"] is None
    assert explained["rejected"]["edge-1"][0].startswith(
        "NodeResourcesFit: insufficient cpu: needs 16"
    )
    system.add_node(node("big", cpu="32"))
    assert system.wait_bound("giant", 1) == {"giant": "big"}
    unknown = next(each for each in system.ask("nodes")["nodes"] if each["name"] == "big")
    assert unknown["metrics"] == {}
    assert unknown["agent"] != "online"


def test_nodes_that_do_not_take_a_pod_do_not_get_it(system: LeadlineSystem) -> None:
    taint = {"key": "camera", "value": "yes", "effect": "NoSchedule"}
    system.add_node(node("tainted", cpu="64", taints=[taint]))
    system.add_node(node("cordoned", cpu="64", unschedulable=True))
    system.add_node(node("unready", cpu="64", ready=False))
    system.add_node(node("chosen", cpu="64", labels={"disk": "ssd"}))
    eventually(
        lambda: {each["name"] for each in system.ask("nodes")["nodes"]},
        {"tainted", "cordoned", "unready", "chosen"}.issubset,
        "the controller has seen the new nodes",
    )
    toleration = {"key": "camera", "operator": "Exists"}
    only = {"kubernetes.io/hostname": "tainted"}
    system.add_pod(pod("selects", node_selector={"disk": "ssd"}))
    system.add_pod(pod("tolerates", node_selector=only, tolerations=[toleration]))
    system.add_pod(pod("wishes", node_selector={"kubernetes.io/hostname": "cordoned"}))
    for number in range(8):
        system.add_pod(pod(f"many-{number}", cpu="1"))
    assert system.wait_bound("selects", 1) == {"selects": "chosen"}
    assert system.wait_bound("tolerates", 1) == {"tolerates": "tainted"}
    assert set(system.wait_bound("many-", 8).values()) <= {*BOARDS, "chosen"}
    system.wait_event("wishes", "FailedScheduling")
    rejected = system.ask("explain", "wishes")["rejected"]
    assert [reason.split(":")[0] for reason in rejected["cordoned"]] == ["NodeUnschedulable"]
    assert {reason.split(":")[0] for reason in rejected["unready"]} == {"NodeReady", "NodeAffinity"}
    assert "TaintToleration" in {reason.split(":")[0] for reason in rejected["tainted"]}
    # Uncordoned and ready, they are as good as any.
    system.api.patch(f"{NODES}/cordoned", {"spec": {"unschedulable": False}})
    assert system.wait_bound("wishes", 1) == {"wishes": "cordoned"}
    system.add_pod(pod("patient", node_selector={"kubernetes.io/hostname": "unready"}))
    system.wait_event("patient", "FailedScheduling")
    ready = {"status": {"conditions": [condition("Ready", True)]}}
    system.api.patch(f"{NODES}/unready/status", ready)
    assert system.wait_bound("patient", 1) == {"patient": "unready"}


def test_the_boards_states_are_at_the_broker(system: LeadlineSystem) -> None:
    topics = Topics(CLUSTER)
    reader = system.authority.client("home-assistant")
    with observed(MosquittoBroker("127.0.0.1", system.broker.port, reader)) as broker:
        needed = {topics.controller, *map(topics.state, BOARDS)}
        needed |= {topic for name in BOARDS for topic in topics.of_board(name)}
        eventually(lambda: set(broker.retained), lambda found: found >= needed, "all is published")

        def online() -> list[object]:
            states = [json.loads(broker.retained[topics.state(name)]) for name in BOARDS]
            return [state["online"] for state in states]

        eventually(online, all, "all boards are online")
        assert system.controller.stop() == 0
        eventually(lambda: broker.retained[topics.controller], b"offline".__eq__, "it has ended")
        system.controller.start()
        eventually(lambda: broker.retained[topics.controller], b"online".__eq__, "it is back")


def test_killed_in_the_middle_every_pod_is_bound_exactly_once(system: LeadlineSystem) -> None:
    # 60 pods fill 11.4 of 12 cores, so one that is counted twice would leave another without.
    def create() -> None:
        for number in range(60):
            system.add_pod(pod(f"crowd-{number}", cpu="190m"))

    try:
        with beside(create):
            early = eventually(
                lambda: system.bindings("crowd-"),
                lambda found: sum(map(bool, found.values())) >= 10,
                "ten pods are bound",
            )
            system.controller.stop(signal.SIGKILL)
    finally:
        system.controller.start()
    bound = system.wait_bound("crowd-", 60)
    assert {name: on for name, on in early.items() if on}.items() <= bound.items()
    assert max(Counter(bound.values()).values()) <= 21
    for name in bound:
        assert len(system.events(name, "Scheduled")) <= 1
    assert system.controller.said(": 409: ") == 0


def test_a_broker_that_dies_and_comes_back(system: LeadlineSystem) -> None:
    daemons = (system.controller, *system.agents.values())
    connections = [daemon.said(CONNECTED) for daemon in daemons]
    lost = system.controller.said("no broker at")
    system.broker.kill()
    system.controller.wait_said("no broker at", lost + 1)
    system.add_pod(pod("unheard"))
    system.wait_bound("unheard", 1)
    system.broker.start()
    back_s = time.monotonic()
    for daemon, before in zip(daemons, connections, strict=True):
        daemon.wait_said(CONNECTED, before + 1)
    eventually(
        lambda: system.ask("nodes")["nodes"],
        lambda nodes: all(
            each["agent"] == "online" and each["report_age_s"] < time.monotonic() - back_s
            for each in nodes
        ),
        "all agents report again",
    )
    assert system.controller.said("no broker at") == lost + 1


def test_an_api_server_that_restarts(system: LeadlineSystem) -> None:
    lost, back = (system.controller.said(text) for text in ("can't be reached", "answers again"))
    system.plane.stop()
    system.controller.wait_said("can't be reached", lost + 1)
    nodes = system.ask("nodes")["nodes"]
    assert {each["name"] for each in nodes} == set(BOARDS)
    system.plane.start()
    system.controller.wait_said("answers again", back + 1)
    system.add_pod(pod("renewed"))
    system.wait_bound("renewed", 1)
    assert system.controller.said("can't be reached") == lost + 1


def test_what_is_not_there_is_a_no(system: LeadlineSystem) -> None:
    for question in (["node", "nobody"], ["explain", "nothing"]):
        answer = leadline(*question, "--address", system.address)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.count("\n") == 1


def test_a_controller_that_never_found_anything_ends_cleanly(tmp_path: Path) -> None:
    kubeconfig = unreachable_kubeconfig(tmp_path, Authority(tmp_path).ca_file)
    config = tmp_path / "controller.toml"
    config.write_text(
        f"broker.port = {free_port()}\nkubernetes.kubeconfig = '{kubeconfig}'\n"
        "grpc.address = '127.0.0.1:0'\n"
    )
    controller = Daemon("leadline_controller", config, tmp_path / "log")
    controller.start()
    try:
        controller.wait_said("no broker at")
        controller.wait_said("can't be reached")
    finally:
        code = controller.stop()
    assert code == 0
    assert controller.said("Traceback") == 0


def test_sigterm_ends_everything_cleanly(system: LeadlineSystem) -> None:
    try:
        assert system.controller.stop() == 0
        assert [agent.stop() for agent in system.agents.values()] == [0, 0, 0]
    finally:
        system.controller.start()
        for agent in system.agents.values():
            agent.start()
    for daemon in (system.controller, *system.agents.values()):
        assert daemon.said("Traceback") == 0
        assert [line for line in daemon.lines() if line.startswith(("ERROR", "CRITICAL"))] == []

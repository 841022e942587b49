"""The nodes that `filter` passes, their priorities, and when there is no answer."""

import asyncio
from dataclasses import replace

import pytest
from leadline_controller.extender.service import ExtenderBindingArgs, ExtenderError
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import NodeChanged, PodChanged
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.history.log import PENDING
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.strategies.dacs import Dacs

from tests.controller.extender.harness import (
    NAMES,
    ExtenderHarness,
    extender_args,
    listed,
    nodes_with_mbps,
    pending,
    pod_manifest,
    wide,
)
from tests.kube.objects import node


async def test_filter_runs_the_filters_that_kube_scheduler_lacks(harness: ExtenderHarness) -> None:
    passing, failed = harness.filter(pod_manifest("web", 50), ["n3", "n1", "n2"])
    assert passing == ["n3", "n2"]
    assert failed == {
        "n1": "Leadline NodeBandwidthFit: insufficient bandwidth: needs 50 Mbit/s, has 10"
    }
    huge = pod_manifest("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    assert harness.filter(huge, NAMES) == (NAMES, {})


async def test_filter_runs_every_filter_if_configured() -> None:
    harness = listed(nodes_with_mbps(10, 100), every_filter=True)
    huge = pod_manifest("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    passing, failed = harness.filter(huge, ["n1", "n2"])
    assert passing == []
    assert failed["n1"].startswith("Leadline NodeResourcesFit: insufficient cpu")
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    with pytest.raises(ExtenderError, match="resourceClaims"):
        harness.filter(claiming, ["n1"])


async def test_demands_that_kube_scheduler_checks_are_no_obstacle(harness: ExtenderHarness) -> None:
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert harness.filter(claiming, NAMES) == (NAMES, {})
    assert harness.prioritize(claiming, NAMES)["n3"] == 10


async def test_the_strategys_choice_has_priority_10_and_the_worst_0(
    harness: ExtenderHarness,
) -> None:
    ranks = harness.prioritize(pod_manifest("web", data_mb="100"), NAMES)
    assert ranks == {"n1": 0, "n2": 9, "n3": 10}
    ranks = harness.prioritize(pod_manifest("web", data_mb="100"), ["n1", "n2"])
    assert ranks == {"n1": 0, "n2": 10}


@pytest.mark.parametrize("between", ["nothing", "its own pod", "a node", "another pod", "time"])
async def test_what_is_prepared_answers_prioritize_unless_the_cluster_changes(
    harness: ExtenderHarness, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    scored: list[Pod] = []
    score = Dacs.score

    def count(strategy: Dacs, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        scored.append(pod)
        return score(strategy, view, pod, candidates)

    monkeypatch.setattr(Dacs, "score", count)
    service, made = harness.extender_service, pod_manifest("web", 50, data_mb="100")
    arguments = extender_args(made, NAMES)
    left, _ = service.filter(arguments)
    service.prepare()
    assert len(scored) == 1
    match between:
        case "its own pod":
            harness.hear(PodChanged(pending(made)))
        case "a node":
            harness.hear(NodeChanged(read_node(wide("n2", 5))))
        case "another pod":
            harness.put("other", 60)
        case "time":
            await harness.clock.advance(1.1)
    ranks = service.prioritize(replace(arguments, names=tuple(left)))
    assert len(scored) == (1 if between in ("nothing", "its own pod") else 2)
    alone = listed(list(harness.state.nodes().values()))
    assert ranks == alone.prioritize(made, left)
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.node is not None
    assert (ranks[record.node], record.outcome) == (10, PENDING)
    scored.clear()
    service.prioritize(replace(arguments, names=tuple(left)))
    assert len(scored) == 1, "what was prepared is used once"


async def test_what_is_prepared_is_no_answer_about_other_nodes(harness: ExtenderHarness) -> None:
    arguments = extender_args(pod_manifest("web", data_mb="100"), NAMES)
    harness.extender_service.filter(arguments)
    harness.extender_service.prepare()
    ranks = harness.extender_service.prioritize(replace(arguments, names=("n1", "n2")))
    assert ranks == {"n1": 0, "n2": 10}


async def test_an_unknown_node_is_refused_and_not_scored(harness: ExtenderHarness) -> None:
    passing, failed = harness.filter(pod_manifest("web"), ["n1", "new"])
    assert (passing, failed) == (["n1"], {"new": "Leadline does not know this node"})
    assert harness.prioritize(pod_manifest("web"), ["n1", "new"]) == {"n1": 10}


async def test_only_unknown_nodes_are_an_error(harness: ExtenderHarness) -> None:
    arguments = extender_args(pod_manifest("web"), ["x", "y"])
    for ask in (harness.extender_service.filter, harness.extender_service.prioritize):
        with pytest.raises(ExtenderError, match="none of these nodes is known to Leadline, as 'x'"):
            ask(arguments)


async def test_whole_nodes_replace_those_of_the_watch(harness: ExtenderHarness) -> None:
    sent = [wide("n1", 500), wide("new", 700), wide("n3", 5)]
    passing, failed = harness.filter(pod_manifest("web", 50), nodes=sent)
    assert passing == ["n1", "new"]
    assert failed.keys() == {"n3"}
    ranks = harness.prioritize(pod_manifest("web", data_mb="100"), nodes=sent)
    assert ranks.keys() == {"n1", "new", "n3"}
    assert ranks["new"] == 10


async def test_an_unreadable_whole_node_is_refused(harness: ExtenderHarness) -> None:
    odd = node("n2")
    odd["status"]["allocatable"]["cpu"] = "lots"
    passing, failed = harness.filter(pod_manifest("web"), nodes=[odd, wide("n1", 10)])
    assert passing == ["n1"]
    assert "allocatable.cpu" in failed["n2"]


async def test_for_many_nodes_equal_refusals_have_equal_reasons() -> None:
    harness = listed(nodes_with_mbps(*range(1, 31)))
    names = [f"n{i}" for i in range(1, 31)]
    _, failed = harness.filter(pod_manifest("web", 50), names)
    assert set(failed.values()) == {"Leadline NodeBandwidthFit"}
    assert failed.keys() == set(names)


async def test_an_unknown_user_node_counts_as_none_and_gets_an_event(
    harness: ExtenderHarness,
) -> None:
    there = harness.put("web")
    asked = extender_args(pod_manifest("web", user_node="mars"), NAMES)
    passes, _ = harness.extender_service.filter(asked)
    assert passes
    assert harness.extender_service.prioritize(asked)
    await harness.bind(there, passes[0])
    await asyncio.sleep(0.05)
    reasons = {each.event.reason: each.event for each in harness.cluster.events}
    assert reasons["UnknownUserNode"].type == "Warning"
    assert "Advised" in reasons
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert "'mars', so the pod counts as without a user" in record.decision.why


async def test_a_recorded_decision_has_the_nodes_that_kube_scheduler_refused(
    harness: ExtenderHarness,
) -> None:
    harness.filter(pod_manifest("web", 50), ["n1", "n3", "n2"])
    assert harness.decisions.get("default/web") is None  # it asks again, for the scores
    harness.prioritize(pod_manifest("web", 50), ["n3", "n2"])
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.strategy, record.outcome) == ("dacs", PENDING)
    assert record.decision.rejected()["n1"][0] == (
        "kube-scheduler: not among the nodes that it asked about"
    )


@pytest.mark.parametrize("mbps", [500, 5000])
async def test_filter_decides_when_at_most_one_node_is_left(
    harness: ExtenderHarness, mbps: float
) -> None:
    harness.filter(pod_manifest("web", mbps), NAMES)
    assert harness.outcome("web") == ("n3" if mbps == 500 else None, PENDING)


async def test_no_nodes_are_no_error(harness: ExtenderHarness) -> None:
    assert harness.filter(pod_manifest("web"), []) == ([], {})


async def test_before_the_first_list_there_are_no_answers() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10))
    assert "has not listed its nodes" in str(harness.extender_service.not_ready_reason())
    with pytest.raises(ExtenderError, match="has not listed"):
        await harness.extender_service.bind(ExtenderBindingArgs("default", "web", "u", "n1"))
    harness.list()
    assert harness.extender_service.not_ready_reason() is None


async def test_after_a_start_it_waits_for_the_agents_for_a_bounded_time() -> None:
    harness = listed(nodes_with_mbps(10, 20), warm_up_s=15.0)
    assert "the agents of 2 nodes, for 15 s at most" in str(
        harness.extender_service.not_ready_reason()
    )
    await harness.clock.advance(14.0)
    assert harness.extender_service.not_ready_reason()
    await harness.clock.advance(1.0)
    assert harness.extender_service.not_ready_reason() is None
    harness.hear(NodeChanged(read_node(wide("late", 1))))
    assert harness.extender_service.not_ready_reason() is None


async def test_every_filter_runs_on_whole_nodes_that_the_watch_has_not_shown() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 20), every_filter=True)
    resident = replace(pending(pod_manifest("there")), labels={"app": "web"}, node_name="n2")
    harness.cluster.put_pod(resident)
    harness.list()
    made = pod_manifest("web")
    made["metadata"]["labels"] = {"app": "web"}
    hostname, mine = "kubernetes.io/hostname", {"matchLabels": {"app": "web"}}
    required = [{"topologyKey": hostname, "labelSelector": mine}]
    made["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    made["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": hostname,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": mine,
        }
    ]
    sent = [wide("new", 30), wide("n1", 10), wide("n2", 20)]
    passing, failed = harness.filter(made, nodes=sent)
    assert passing == ["new", "n1"]
    assert "InterPodAffinity" in failed["n2"]

"""Who may be moved, and the budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.cluster_objects import Claim, DisruptionBudget, Volume
from leadline_controller.framework.model import ClaimUse, Owner, Pod
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.rescheduling.guards import Guards
from leadline_controller.rescheduling.journal import HOUR_S, HourlyBudgets, MoveNote

from tests.controller.builders import manifest
from tests.support.examples import examples

NOW_S = 1_800_000_000.0
OWNER = Owner("ReplicaSet", "web", "uid-web")


def movable(**changed: Any) -> Pod:
    fields: dict[str, Any] = {
        "uid": "uid-p",
        "node_name": "n1",
        "scheduler_name": "leadline",
        "owner": OWNER,
        "ready": True,
        "created_s": NOW_S - 7200,
        "labels": {"app": "web"},
    }
    return Pod("default", "p", **{**fields, **changed})


def budget(name: str = "b", allowed: int = 1, app: str = "web") -> DisruptionBudget:
    return DisruptionBudget("default", name, (Requirement("app", "In", (app,)),), allowed)


def why(pod: Pod, *others: Pod, **around: Any) -> str:
    near: dict[str, Any] = {"budgets": [], "claims": {}, "volumes": {}, "now_s": NOW_S, **around}
    return Guards(pods=[pod, *others], **near).why_it_stays(pod)


def test_a_ready_pod_of_a_replica_set_may_move() -> None:
    assert why(movable()) == ""
    assert why(movable(owner=replace(OWNER, kind="StatefulSet"))) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"owner": None}, "no owner"),
        ({"owner": replace(OWNER, kind="DaemonSet")}, "DaemonSet"),
        ({"owner": replace(OWNER, kind="Node")}, "Node"),
        ({"owner": replace(OWNER, kind="Job")}, "Job"),
        ({"terminating": True}, "ending"),
        ({"finished": True}, "ending"),
        ({"ready": False}, "not ready"),
        ({"scheduler_name": "default-scheduler"}, "default-scheduler"),
        ({"priority": 2_000_001_000}, "system"),
        ({"stays": "annotation leadline.dev/keep"}, "leadline.dev/keep"),
        ({"created_s": NOW_S - 60}, "60 s old; it rests for 3600 s"),
        ({"created_s": None}, "of unknown age"),
        ({"created_s": NOW_S + 60}, "0 s old"),
    ],
)
def test_why_a_pod_stays(changed: dict[str, Any], said: str) -> None:
    assert said in why(movable(**changed))


def test_a_workload_rests_after_its_newest_pod() -> None:
    young = movable(uid="uid-q", created_s=NOW_S - 10)

    assert "10 s old" in why(movable(), young)
    assert why(movable(), replace(young, owner=replace(OWNER, uid="else"))) == ""
    assert why(movable(), young, cooldown_s=5.0) == ""


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        (None, "may not read"),
        ([budget(allowed=0)], "budget b allows no disruption"),
        ([budget("a"), budget("b")], "2 disruption budgets"),
    ],
)
def test_disruption_budgets(budgets: list[DisruptionBudget] | None, said: str) -> None:
    assert said in why(movable(), budgets=budgets)


def test_budgets_of_other_pods_do_not_count() -> None:
    others = [budget(app="db", allowed=0), replace(budget(allowed=0), namespace="else")]
    assert why(movable(), budgets=[*others, budget()]) == ""


@pytest.mark.parametrize(("kind", "stays"), [("local", True), ("hostPath", True), ("csi", False)])
def test_data_on_the_node_keeps_the_pod(kind: str, stays: bool) -> None:
    pod = movable(claims=(ClaimUse("c"),))
    around = {
        "claims": {"default/c": Claim("default", "c", volume="v")},
        "volumes": {"v": Volume("v", kind=kind)},
    }
    assert bool(why(pod, **around)) is stays


@pytest.mark.parametrize(
    ("volume", "annotations", "said"),
    [
        ({"emptyDir": {}}, {}, "volume 'v' is emptyDir"),
        ({"emptyDir": {"medium": "Memory"}}, {}, ""),
        ({"hostPath": {"path": "/dev"}}, {}, "volume 'v' is hostPath"),
        ({"configMap": {"name": "c"}}, {}, ""),
        ({"emptyDir": {}}, {"keep": "false"}, ""),
        ({"configMap": {"name": "c"}}, {"keep": "true"}, "annotation leadline.dev/keep"),
        ({"configMap": {"name": "c"}}, {"keep": ""}, "annotation leadline.dev/keep"),
    ],
)
def test_what_a_manifest_says(volume: Any, annotations: dict[str, str], said: str) -> None:
    made = manifest(annotations=annotations, volumes=[{"name": "v", **volume}])
    assert read_pod(made).stays.startswith(said)
    assert bool(read_pod(made).stays) is bool(said)


def test_a_static_pod_stays() -> None:
    made = manifest()
    made["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    assert "static" in read_pod(made).stays


moves = st.lists(
    st.tuples(st.floats(0, 4 * HOUR_S), *[st.integers(0, 3)] * 3).filter(lambda m: m[2] != m[3]),
    max_size=60,
)


@given(moves, st.integers(0, 3), st.integers(0, 4), st.integers(0, 6))
@examples(200)
def test_no_hour_has_more_moves_than_the_budgets_allow(
    asked: list[tuple[float, int, int, int]], workload: int, node: int, cluster: int
) -> None:
    budgets = HourlyBudgets(workload, node, cluster)
    begun: list[MoveNote] = []
    for at, owner, source, target in sorted(asked):
        hour = [note for note in begun if at - note.begun_s < HOUR_S]
        nodes = (str(source), str(target))
        if not budgets.refusal(hour, str(owner), nodes):
            begun.append(MoveNote("u", "p", str(owner), *nodes, begun_s=at))
    for last in begun:
        hour = [n for n in begun if 0 <= last.begun_s - n.begun_s < HOUR_S]
        assert len(hour) <= cluster
        assert sum(n.owner == last.owner for n in hour) <= workload
        for name in (last.source, last.target):
            assert sum(name in (n.source, n.target) for n in hour) <= node

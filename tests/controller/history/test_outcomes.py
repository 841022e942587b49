from dataclasses import replace

import pytest
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history.log import BOUND, DELETED, GONE, PENDING, DecisionLog

from tests.controller.history.decision_builder import decision

POD = Pod("default", "p", uid="uid-p")
THERE, ELSEWHERE = replace(POD, node_name="n1"), replace(POD, node_name="n2")
AGAIN = replace(ELSEWHERE, uid="another of that name")
FAILED = "failed: 500: no answer"
ON_N2 = "failed: the pod is on n2"


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (PodChanged(THERE), PENDING, BOUND),
        (PodChanged(THERE), FAILED, BOUND),  # only the answer was lost
        (PodChanged(ELSEWHERE), PENDING, ON_N2),
        (PodChanged(ELSEWHERE), FAILED, FAILED),
        (PodChanged(POD), PENDING, PENDING),
        (PodChanged(AGAIN), PENDING, PENDING),
        (PodDeleted(POD), PENDING, GONE),
        (PodDeleted(THERE), BOUND, DELETED),
        (PodDeleted(POD), FAILED, FAILED),
        (PodDeleted(AGAIN), PENDING, PENDING),
        (Relisted((), (THERE,)), PENDING, BOUND),
        (Relisted((), (ELSEWHERE,)), PENDING, ON_N2),
        (Relisted((), (POD,)), PENDING, PENDING),
        (Relisted((), (AGAIN,)), PENDING, GONE),
        (Relisted((), ()), PENDING, GONE),
        (Relisted((), ()), BOUND, DELETED),
        (PodChanged(replace(THERE, finished=True)), BOUND, BOUND),
        (NodeChanged(Node("n1")), PENDING, PENDING),
    ],
)
def test_the_watch_decides_the_outcome(change: ClusterChange, before: str, after: str) -> None:
    log = DecisionLog()
    log.add(decision("p"), 1.0, before, {})
    log.observe(change)
    record = log.get("default/p")
    assert record is not None
    assert record.outcome == after


def test_pods_without_a_decision_are_ignored() -> None:
    log = DecisionLog()
    for change in (PodChanged(THERE), PodDeleted(POD), Relisted((), (THERE,))):
        log.observe(change)
    assert list(log.all()) == []

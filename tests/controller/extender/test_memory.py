"""What callers send does not fill the controller's memory."""

from dataclasses import replace

import pytest
from leadline_controller.extender import service
from leadline_controller.framework.ports import PodChanged

from tests.controller.extender.harness import (
    NAMES,
    ExtenderHarness,
    extender_args,
    pod_manifest,
    wide,
)


async def test_only_the_newest_decisions_keep_their_view(harness: ExtenderHarness) -> None:
    pods = [harness.put(f"web-{i}") for i in range(40)]
    for pod in pods:
        harness.prioritize(pod_manifest(pod.name, data_mb="100"), NAMES)
    detailed = [uid for uid, each in harness.extender_service._pending.items() if each.has_basis]
    assert detailed == [pod.uid for pod in pods[-32:]]
    harness.hear(PodChanged(replace(pods[0], node_name="n2")))
    record = harness.decisions.get("default/web-0")
    assert record is not None
    assert record.why.startswith("kube-scheduler chose it over n3: ")
    await harness.extender_service.close()


async def test_the_number_of_remembered_calls_is_bounded(
    harness: ExtenderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_CALLED", 100)
    for number in range(200):
        harness.filter(pod_manifest(f"p{number}"), [])
    assert len(harness.extender_service._called_s) == 100
    harness.filter({**pod_manifest("web"), "metadata": {"name": "w", "uid": "x" * 999}}, [])
    assert not any(len(uid) > 253 for uid in harness.extender_service._called_s)
    assert not any(len(uid) > 253 for uid in harness.extender_service._pending)


async def test_data_about_a_pod_that_the_watch_does_not_show_is_not_kept(
    harness: ExtenderHarness,
) -> None:
    made = pod_manifest("web")
    made["metadata"]["labels"] = {f"k{i}": "v" for i in range(9000)}
    harness.prioritize(made, NAMES)
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.decision.pod.labels, record.decision.has_basis) == ({}, False)
    known = harness.put("web")
    harness.prioritize(made, NAMES)
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.decision.pod is known


async def test_only_the_newest_pending_decisions_keep_their_view(harness: ExtenderHarness) -> None:
    for number in range(100):
        harness.prioritize(pod_manifest(f"p{number}"), NAMES)
    assert sum(decision.has_basis for decision in harness.extender_service._pending.values()) == 32
    assert harness.extender_service._pending["uid-p99"].has_basis


async def test_the_number_of_pending_decisions_is_bounded(
    harness: ExtenderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_PENDING", 100)
    for number in range(200):
        harness.filter(pod_manifest(f"p{number}", 5000), ["n1"])
    assert len(harness.extender_service._pending) == 100


@pytest.mark.parametrize(("label_count", "keeps_its_view"), [(10, True), (20_000, False)])
async def test_a_decision_over_given_nodes_keeps_its_view_only_while_they_are_small(
    harness: ExtenderHarness, label_count: int, keeps_its_view: bool
) -> None:
    """Callers could fill the memory with nodes of their own; the answer is the same."""
    given = [wide(name, 100) for name in NAMES]
    given[0]["metadata"]["labels"] |= {f"k{i}": f"v{i}" for i in range(label_count)}
    pod = harness.put("web")
    arguments = extender_args(pod_manifest("web"), nodes=given)
    assert harness.extender_service.prioritize(arguments).keys() == set(NAMES)
    record = harness.decisions.get(pod.key)
    assert record is not None
    assert record.decision is not None
    assert record.decision.has_basis == keeps_its_view
    assert harness.extender_service._pending[pod.uid].has_basis == keeps_its_view

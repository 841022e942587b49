"""What becomes of a decision once the watch shows the pod's node, and its event."""

from dataclasses import replace

from leadline_controller.framework.ports import PodChanged, Relisted, UnavailableError
from leadline_controller.history.log import BOUND

from tests.controller.extender.harness import NAMES, ExtenderHarness, pod_manifest


async def test_the_watch_shows_the_pod_on_our_choice(harness: ExtenderHarness) -> None:
    pod = harness.put("web")
    harness.prioritize(pod_manifest("web", data_mb="100"), NAMES)
    harness.hear(PodChanged(replace(pod, node_name="n3")))
    assert harness.outcome("web") == ("n3", BOUND)
    await harness.extender_service.close()
    (seen,) = harness.cluster.events
    assert (seen.event.type, seen.event.reason) == ("Normal", "Advised")
    assert seen.event.message.startswith("n3 by dacs: ")


async def test_the_watch_shows_that_kube_scheduler_chose_another_node(
    harness: ExtenderHarness,
) -> None:
    pod = harness.put("web")
    harness.prioritize(pod_manifest("web", data_mb="100"), NAMES)
    harness.hear(Relisted(tuple(harness.cluster.nodes), (replace(pod, node_name="n2"),)))
    assert harness.outcome("web") == ("n2", BOUND)
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.why.startswith("kube-scheduler chose it, which has 9 of 10, over n3: ")
    assert record.decision.scores().keys() == set(NAMES)
    await harness.extender_service.close()
    assert harness.cluster.events[0].event.message.startswith("n2 by dacs: kube-scheduler chose it")


async def test_the_watch_shows_a_pod_bound_against_our_decision(harness: ExtenderHarness) -> None:
    pod = harness.put("web", 5000)
    harness.filter(pod_manifest("web", 5000), NAMES)
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    record = harness.decisions.get("default/web")
    assert record is not None
    assert (record.node, record.outcome) == ("n2", BOUND)
    assert record.why.startswith("kube-scheduler chose it without Leadline")


async def test_an_event_that_cannot_be_written_is_ignored(harness: ExtenderHarness) -> None:
    pod = harness.put("web")
    harness.prioritize(pod_manifest("web"), NAMES)
    harness.cluster.fail_next_event(UnavailableError("503"))
    harness.hear(PodChanged(replace(pod, node_name="n3")))
    await harness.extender_service.close()
    assert harness.cluster.events == ()
    assert harness.outcome("web")[1] == BOUND

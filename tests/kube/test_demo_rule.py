"""kube-scheduler puts the demo's pods where the demo says that it would."""

from __future__ import annotations

from collections import Counter

import pytest
from leadline_controller.framework.model import CPU, MEMORY
from leadline_lab.demo import by_kube_schedulers_rule, web_pods

from tests.controller.builders import node, view
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import pod
from tests.kube.scheduler import kube_scheduler
from tests.kube.volume_bench import PODS, Bench
from tests.support.ports import wait_until

pytestmark = pytest.mark.cluster


def test_the_real_kube_scheduler_spreads_the_pods_as_its_rule_does(
    plane: ControlPlane, api: Api, bench: Bench
) -> None:
    boards = [bench.node(f"n{number}", labels={"demo": bench.name}) for number in range(4)]
    pods = web_pods()
    for each in pods:
        manifest = pod(
            each.name,
            f"{each.requests[CPU]}m",
            str(each.requests[MEMORY]),
            scheduler="default-scheduler",
            node_selector={"demo": bench.name},
        )
        bench.add(PODS, manifest)

    def places() -> list[str | None]:
        return [api.get(f"{PODS}/{each.name}")["spec"].get("nodeName") for each in pods]

    with kube_scheduler(plane):
        wait_until(lambda: None not in places(), "kube-scheduler places the pods", 120)
        found = Counter(places())
    ours = by_kube_schedulers_rule(view([node(name, cores=4, gib=4) for name in boards]), pods)
    assert set(found) <= set(boards)
    assert sorted(found.values()) == sorted(Counter(ours.values()).values())

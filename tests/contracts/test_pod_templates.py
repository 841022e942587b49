"""What is read of one pod serves for others that agree in namespace, labels and spec, and changes
nothing.

The pods are those of the comparison with kube-scheduler's plugins, in several versions each.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from leadline_controller.kubeobjects.manifest import PodTemplates, read_pod

from tests.controller.builders import manifest
from tests.kube.generator import PREFERENCES, THEMES, made, made_preferring
from tests.kube.objects import Object

SEEDS = 12


def cases() -> Iterator[Object]:
    for seed in range(SEEDS):
        yield from (made(seed, theme) for theme in THEMES)
        yield from (made_preferring(seed, theme) for theme in PREFERENCES)


def versions(of: Object, random: Random) -> Iterator[Object]:
    """The pod as the watch shows it from its creation to its end, and others of its workload."""
    pod = deepcopy(of)
    pod.setdefault("metadata", {})["resourceVersion"] = "1"
    token = {"name": "kube-api-access-abcde", "projected": {"sources": []}}
    if random.random() < 0.5:
        pod["spec"].setdefault("volumes", []).append(token)
    yield deepcopy(pod)
    container = {"name": pod["spec"]["containers"][0].get("name", "c"), "image": "a"}
    running: dict[str, Any] = {**container, "state": {"running": {}}}
    running["imageID"] = f"docker.io/a@sha256:{'0' * 64}"
    running["resources"] = {"requests": {"cpu": "123m"}}
    waiting = {**container, "state": {"waiting": {"reason": "ContainerCreating"}}}
    pod["spec"]["nodeName"] = "n1"
    scheduled = {"type": "PodScheduled", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    resize = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for status in (
        {"phase": "Pending", "conditions": [scheduled]},
        {"phase": "Pending", "containerStatuses": [waiting], "startTime": "2030-01-01T00:00:00Z"},
        {"phase": "Running", "containerStatuses": [running], "conditions": [ready]},
        {"phase": "Running", "containerStatuses": [running], "conditions": [ready, resize]},
        {"phase": "Running", "conditions": [preempted], "podIP": "10.1.2.3"},
        {"phase": "Succeeded"},
    ):
        pod["metadata"]["resourceVersion"] += "1"
        yield {**deepcopy(pod), "status": status}
    del pod["spec"]["nodeName"]
    pod["metadata"]["name"] += "-2"
    pod["metadata"]["annotations"] = {"leadline.dev/keep": "true", "leadline.dev/data-mb": "x"}
    for volume in pod["spec"].get("volumes", ()):
        volume["name"] = volume["name"].replace("abcde", "fghij")
    yield pod


@pytest.mark.slow
def test_a_template_changes_nothing_of_what_is_read() -> None:
    random, templates, found = Random(1), PodTemplates(), 0
    for case in cases():
        shown = [
            version
            for each in (case["pod"], *(case.get("pods") or ()))
            for version in versions(each, random)
        ]
        random.shuffle(shown)
        for each in shown:
            assert read_pod(each, templates=templates) == read_pod(each)
            found += 1
    assert found > 1000


def test_replicas_share_what_is_read_of_their_spec() -> None:
    def replica(suffix: str) -> Object:
        token = {"name": f"kube-api-access-{suffix}", "projected": {"sources": []}}
        mount = {"name": f"kube-api-access-{suffix}", "mountPath": "/run"}
        made = manifest(f"web-{suffix}", requests={"cpu": "100m"}, labels={"app": "web"})
        made["spec"]["volumes"] = [token]
        made["spec"]["containers"][0]["volumeMounts"] = [mount]
        return made

    templates = PodTemplates()
    one, other = (read_pod(replica(each), templates=templates) for each in ("abcde", "fghij"))
    assert one.requests is other.requests
    changed = replica("klmno")
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
    assert read_pod(changed, templates=templates) == read_pod(changed)


def test_names_like_that_of_the_tokens_volume_keep_pods_apart() -> None:
    def pod(number: int) -> Object:
        name = f"kube-api-access-{number}"
        made = manifest("p", nodeSelector={"disk": name})
        made["metadata"]["namespace"] = name
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        made["spec"]["volumes"] = [{"name": name, "projected": {}}, claim]
        return made

    templates = PodTemplates()
    for number in (1, 2):
        assert read_pod(pod(number), templates=templates) == read_pod(pod(number))


def test_large_specs_are_not_kept() -> None:
    """Whoever may create pods would fill the memory with them."""
    templates = PodTemplates()
    large = manifest("large", hostname="x" * 20_000)
    one, other = (read_pod(large, templates=templates) for _ in range(2))
    assert one == other
    assert one.requests is not other.requests


def test_a_pod_with_too_many_constraints_is_read_anew_with_a_node() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term] * 600}
    pod = manifest("large", affinity={"podAntiAffinity": anti})
    templates = PodTemplates()
    for node_name in ("", "n1", ""):
        pod["spec"]["nodeName"] = node_name
        assert read_pod(pod, templates=templates) == read_pod(pod)

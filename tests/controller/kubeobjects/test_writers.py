"""What is written reads back as it was, as far as decisions go."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.cluster_objects import DisruptionBudget, PodSelector
from leadline_controller.framework.model import Pod
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.object_writer import write_object
from leadline_controller.kubeobjects.pod_writer import write_pod

from tests.kube import generator
from tests.kube.compare import KINDS

AS_IT_IS = Names()
# What no decision reads, or the snapshot states elsewhere; a resize has changed the requests.
UNREAD = (
    *("scheduler_name", "started_s", "bound_s", "runs_s", "ended_s", "preempted", "finished"),
    *("nominated_node", "resize", "ready", "created_s", "stays", "deletion_cost", "ip", "warnings"),
    *("awaited_images", "started_images", "pull_secrets", "problem", "starting_s", "restarted"),
)
ANNOTATIONS = {
    "user-node": "n1",
    "data-mb": "0.1",
    "bandwidth-mbps": "1e-3",
    "deadline-s": "3",
    "response-time-ms": "80",
    "qos-edge-ratio": "0.75",
    "profile-ms": '{"n1": 12.25, "pi4": 3}',
    "peers": "db=5@20rps, mqtt.infra=0.2, node/nas-1=20, 192.0.2.7=1, 2001:db8::7, cache<5ms",
}


def as_read(pod: Pod) -> Pod:
    """The pod, as the reader reads what is written of it from JSON."""
    return read_pod(json.loads(json.dumps(write_pod(pod, AS_IT_IS))))


def read_by_decisions(pod: Pod) -> dict[str, Any]:
    found = {each.name: getattr(pod, each.name) for each in fields(pod) if each.name not in UNREAD}
    return {**found, "annotations": replace(pod.annotations, deletion_order=None)}


def themes() -> list[tuple[str, str]]:
    return [
        *(("made", theme) for theme in generator.THEMES),
        *(("made_preferring", theme) for theme in generator.PREFERENCES),
        *(("made_preempting", theme) for theme in generator.PREEMPTION),
    ]


@given(seed=st.integers(0, 10**6), theme=st.sampled_from(themes()), given_to=st.data())
def test_a_pod_reads_back_as_it_was(
    seed: int, theme: tuple[str, str], given_to: st.DataObject
) -> None:
    case, random = getattr(generator, theme[0])(seed, theme[1]), Random(seed)
    annotations = given_to.draw(st.sets(st.sampled_from(sorted(ANNOTATIONS))))
    for manifest in [case["pod"], *(case.get("pods") or ())]:
        manifest["metadata"]["annotations"] = {
            f"leadline.dev/{name}": ANNOTATIONS[name] for name in annotations
        }
        for container in manifest["spec"]["containers"]:
            container["image"] = random.choice(("web", "reg.example/db:1", ""))
        pod = read_pod(manifest)
        if pod.problem is None:
            assert read_by_decisions(as_read(pod)) == read_by_decisions(pod)


@given(seed=st.integers(0, 10**6), theme=st.sampled_from(themes()))
def test_an_object_reads_back_as_it_was(seed: int, theme: tuple[str, str]) -> None:
    case = getattr(generator, theme[0])(seed, theme[1])
    for name, kind in KINDS.items():
        for manifest in case.get(name) or ():
            made = READERS[kind](manifest, kind)
            if isinstance(made, DisruptionBudget):
                with pytest.raises(KeyError):
                    write_object(made, AS_IT_IS)
                continue
            written = write_object(made, AS_IT_IS)
            assert written[0] == kind
            assert READERS[kind](json.loads(json.dumps(written[1])), kind) == made


def test_a_pod_with_the_rest_reads_back_as_it_was() -> None:
    pod = read_pod(
        {
            "metadata": {"name": "p", "deletionTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {
                "initContainers": [
                    {"name": "i", "image": "init", "resources": {"requests": {"cpu": "3"}}}
                ],
                "containers": [
                    {
                        "name": "a",
                        "image": "a",
                        "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "2"}},
                        "ports": [{"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "UDP"}],
                    },
                    {"name": "b", "image": "b", "resources": {"limits": {"cpu": "1"}}},
                ],
                "hostNetwork": True,
                "hostUsers": False,
                "overhead": {"cpu": "10m"},
                "schedulingGates": [{"name": "example.com/wait"}],
                "preemptionPolicy": "Never",
                "volumes": [
                    {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
                    {
                        "name": "r",
                        "rbd": {"monitors": ["m2", "m1"], "image": "i", "readOnly": True},
                    },
                ],
            },
        }
    )
    assert (pod.requests["cpu"], pod.limits["cpu"]) == (3010, 3010)
    assert pod.features == ("UserNamespacesHostNetworkSupport",)
    assert read_by_decisions(as_read(pod)) == read_by_decisions(pod)


@pytest.mark.parametrize("selector", [None, ()])
def test_an_owner_that_selects_none_or_all(selector: tuple[()] | None) -> None:
    made = PodSelector("ReplicaSet", "default", "web", selector)
    kind, written = write_object(made, AS_IT_IS)
    assert READERS[kind](written, kind) == made

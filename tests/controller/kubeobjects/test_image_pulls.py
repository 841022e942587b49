"""Statuses of containers and kubelets' events."""

from __future__ import annotations

from typing import Any

import pytest
from leadline_controller.framework.ports import ImagePull
from leadline_controller.kubeobjects.image_pulls import read_pull
from leadline_controller.kubeobjects.manifest import read_pod

DIGEST = "reg:5000/web@sha256:" + "0a" * 32


def event(reason: str, message: object, **fields: object) -> dict[str, Any]:
    about = {"kind": "Pod", "uid": "u1"}
    source = {"component": "kubelet", "host": "n1"}
    return {
        "involvedObject": about,
        "source": source,
        "reason": reason,
        "message": message,
        **fields,
    }


@pytest.mark.parametrize(
    ("message", "took_s", "size_mb"),
    [
        (
            'Successfully pulled image "web:1" in 21.257s (25.1s including waiting). '
            "Image size: 21100580 bytes.",
            21.257,
            21.10058,
        ),
        ('Successfully pulled image "web:1" in 1m2.5s (1m2.5s including waiting)', 62.5, None),
        ('Successfully pulled image "web:1" in 350ms', 0.35, None),
        ('Successfully pulled image "web:1" in 1h0m1s. Image size: 5 bytes.', 3601.0, 5e-6),
    ],
)
def test_a_finished_pull_has_its_time_without_waiting(
    message: str, took_s: float, size_mb: float | None
) -> None:
    pull = read_pull(event("Pulled", message))
    assert pull is not None
    assert (pull.node, pull.pod_uid, pull.image) == ("n1", "u1", "docker.io/library/web:1")
    assert pull.took_s == pytest.approx(took_s)
    assert pull.size_mb == pytest.approx(size_mb)


def test_a_pull_takes_a_day_and_has_a_terabyte_at_most() -> None:
    pull = read_pull(
        event(
            "Pulled", f'Successfully pulled image "x" in {"9" * 9}h. Image size: {"9" * 15} bytes.'
        )
    )
    assert pull is not None
    assert (pull.took_s, pull.size_mb) == (86_400, 1e6)


def test_a_pull_begins() -> None:
    found = read_pull(event("Pulling", 'Pulling image "reg:5000/a/b@sha256:1"'))
    assert found == ImagePull("n1", "u1", "reg:5000/a/b@sha256:1")
    instance = event("Pulling", 'Pulling image "x"', source=None, reportingInstance="n2")
    assert (found := read_pull(instance)) is not None
    assert found.node == "n2"


@pytest.mark.parametrize(
    "strange",
    [
        event("Pulled", 'Container image "web:1" already present on machine'),
        event("Pulled", "Successfully pulled image"),
        event("Pulled", None),
        event("Pulled", ["x"]),
        event("Pulling", 'Pulling image ""'),
        event("Pulling", "Pulling image \ud800"),
        event("Failed", 'Failed to pull image "web:1"'),
        event("Pulling", 'Pulling image "web:1"', source={}, reportingInstance=None),
        event("Pulling", 'Pulling image "web:1"', involvedObject=[]),
        {},
    ],
)
def test_other_events_say_nothing(strange: dict[str, Any]) -> None:
    assert read_pull(strange) is None


def pod(*statuses: object, phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "web:1"}, {"name": "b", "image": "db:1"}]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": containers, "nodeName": "n1", **spec},
        "status": {"phase": phase, "containerStatuses": list(statuses)},
    }


def status(name: str, image_id: str = "", **state: object) -> dict[str, Any]:
    return {"name": name, "imageID": image_id, "state": state}


def test_a_pod_without_statuses_awaits_all_its_images() -> None:
    read = read_pod(pod(initContainers=[{"name": "i", "image": "init:1"}]))
    assert read.awaited_images == ("init:1", "web:1", "db:1")
    assert read.init_images == ("init:1",)
    assert read.started_images == ()


def test_a_started_container_has_its_image_and_a_creating_one_awaits_it() -> None:
    waiting = status("b", waiting={"reason": "ContainerCreating"})
    read = read_pod(pod(status("a", DIGEST, running={}), waiting))
    assert read.awaited_images == ("db:1",)
    assert read.started_images == (("web:1", DIGEST),)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff"])
def test_a_container_that_cannot_start_downloads_nothing(reason: str) -> None:
    waiting = {"reason": reason}
    failing = [status(name, waiting=waiting) for name in ("a", "b")]
    assert read_pod(pod(*failing)).awaited_images == ()


@pytest.mark.parametrize("image_id", ["\ud800@sha256:1", "x" * 10_000])
def test_strange_names_of_images_say_nothing(image_id: str) -> None:
    assert read_pod(pod(status("a", image_id, running={}))).started_images == ()


def test_a_finished_pod_awaits_nothing() -> None:
    assert read_pod(pod(phase="Failed")).awaited_images == ()


def test_pull_secrets_are_named() -> None:
    read = read_pod(pod(imagePullSecrets=[{"name": "mine"}, {}]))
    assert read.pull_secrets == ("mine", "")

"""Plays the kubelets of a test's nodes: pods that are bound become ready, those that are deleted
go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

from tests.kube.api import Api, ApiError
from tests.support.threads import beside

POLL_S = 0.05


@contextmanager
def played_kubelets(
    api: Api,
    namespace: str,
    becomes_ready: Callable[[Any], bool] = lambda _: True,
) -> Iterator[None]:
    """Play them in a thread during the block. becomes_ready(pod): whether a bound pod does."""
    pods, done = f"/api/v1/namespaces/{namespace}/pods", Event()

    def play() -> None:
        while not done.wait(POLL_S):
            with suppress(ApiError, OSError):
                for pod in api.get(pods)["items"]:
                    with suppress(ApiError):
                        _attend(pod)

    def _attend(pod: Any) -> None:
        path = f"{pods}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            api.delete(path)
        elif "nodeName" in pod["spec"] and not _is_ready(pod) and becomes_ready(pod):
            api.patch(f"{path}/status", {"status": RUNNING})

    with beside(play, done=done):
        yield


RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
}


def _is_ready(pod: Any) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

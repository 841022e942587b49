"""Nodes that pods of low priority fill, kubelets that the test can hold back, and a record of all
that was deleted: the stage of the preemption tests on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Event
from typing import Any

from tests.kube.api import Api, ApiError
from tests.kube.objects import node, pod
from tests.support.threads import beside

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES = {"prey": 0, "keeper": 50, "hunter": 100, "lord": 200}
POLL_S = 0.02
_numbers = count(1)


class Hunt:
    """Nodes and pods of one test, with names of its own. ends: while it is set, pods that are
    being deleted go. seen: every uid that was seen to be ending, and the pod's name."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"hunt{next(_numbers)}"
        self.ends = Event()
        self.seen: dict[str, str] = {}
        self._nodes: list[str] = []

    def node(self, number: int, cpu: str) -> str:
        """Add a node of this name and size."""
        name = f"{self.name}-n{number}"
        self.api.add_node(node(name, cpu=cpu, labels={"hunt": self.name}))
        self._nodes.append(name)
        return name

    def pod(self, suffix: str, cpu: str, kind: str, on: int | None = None, **fields: Any) -> str:
        """Add a pod of this size and kind of priority; on: the number of the only node for it."""
        name = f"{self.name}-{suffix}"
        only = {} if on is None else {"kubernetes.io/hostname": f"{self.name}-n{on}"}
        made = pod(
            name,
            cpu,
            node_selector={"hunt": self.name, **only},
            labels={"app": fields.pop("app", suffix)},
            priorityClassName=f"leadline-{kind}",
            terminationGracePeriodSeconds=30,
            **fields,
        )
        self.api.create(PODS, made)
        return name

    def where(self) -> dict[str, str]:
        """Suffix -> suffix of the node, of the pods that are there and not ending."""
        return {
            name: each["spec"].get("nodeName", "").removeprefix(f"{self.name}-")
            for name, each in self.pods().items()
            if "deletionTimestamp" not in each["metadata"]
        }

    def pods(self) -> dict[str, Any]:
        """The pods that are there, by suffix."""
        return {
            each["metadata"]["name"].removeprefix(f"{self.name}-"): each
            for each in self.api.get(PODS)["items"]
            if each["metadata"]["name"].startswith(f"{self.name}-")
        }

    def ending(self) -> set[str]:
        """The pods that are being deleted."""
        return {n for n, each in self.pods().items() if "deletionTimestamp" in each["metadata"]}

    def nominated(self, suffix: str) -> str:
        """The suffix of the node for which the pod is nominated."""
        status = self.pods().get(suffix, {}).get("status", {})
        return str(status.get("nominatedNodeName", "")).removeprefix(f"{self.name}-")

    def events(self, suffix: str) -> dict[str, str]:
        """Reason -> message of the events about a pod."""
        found = self.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        name = f"{self.name}-{suffix}"
        return {e["reason"]: e["note"] for e in found if e["regarding"].get("name", "") == name}

    def attend(self) -> None:
        """Do once what kubelets do all the time: let pods go that are being deleted."""
        for name, each in self.pods().items():
            if "deletionTimestamp" in each["metadata"]:
                self.seen[each["metadata"]["uid"]] = name
                if self.ends.is_set():
                    with suppress(ApiError):
                        self.api.delete(f"{PODS}/{self.name}-{name}")

    def clean(self) -> None:
        """Delete all that it made."""
        for name in self.pods():
            with suppress(ApiError):
                self.api.delete(f"{PODS}/{self.name}-{name}")
        for name in self._nodes:
            with suppress(ApiError):
                self.api.delete(f"/api/v1/nodes/{name}")


@contextmanager
def hunt(api: Api) -> Iterator[Hunt]:
    """A stage with its kubelets, cleaned at the end."""
    for name, value in PRIORITIES.items():
        with suppress(ApiError):
            api.create(CLASSES, {"metadata": {"name": f"leadline-{name}"}, "value": value})
    made, done = Hunt(api), Event()

    def play() -> None:
        while not done.wait(POLL_S):
            with suppress(ApiError, OSError):
                made.attend()

    try:
        with beside(play, done=done):
            try:
                yield made
            finally:
                made.ends.set()
    finally:
        made.clean()

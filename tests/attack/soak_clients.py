"""Users of a controller during the soak: pods that come and go, and an inspection client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from leadline_controller.cli.client import Endpoint
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from tests.kube.api import Api, ApiError
from tests.kube.objects import pod

PODS = "/api/v1/namespaces/default/pods"
POLL_S = 1.0
ANSWER_S = 10.0
BOUND_S = 60.0


class Pods:
    """Pods that come at a steady rate and go a while after they were bound."""

    def __init__(self, kubeconfig: Path, every_s: float, life_s: float) -> None:
        self._api = Api(kubeconfig)
        self._every_s, self._life_s = every_s, life_s
        self._alive: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.created: list[str] = []
        self.bound: set[str] = set()

    @contextmanager
    def coming(self) -> Iterator[None]:
        """They come for the time of the block."""
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """No more come."""
        self._over.set()
        self._thread.join()

    def wait_bound(self) -> None:
        """Wait until all are bound, or for BOUND_S."""
        deadline_s = time.monotonic() + BOUND_S
        while len(self.bound) < len(self.created) and time.monotonic() < deadline_s:
            self._try(self._look)
            time.sleep(0.5)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._try(self._create)
            self._try(self._look)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, ApiError):
            return  # the API server is away; the next turn comes

    def _create(self) -> None:
        name = f"soak-{len(self.created):05}"
        try:
            self._api.create(PODS, pod(name, "10m"))
        except ApiError as error:
            if error.code != 409:  # else it was made, and only the answer was lost
                raise
        self.created.append(name)
        self._alive[name] = time.monotonic()

    def _look(self) -> None:
        for each in self._api.get(PODS)["items"]:
            name = each["metadata"]["name"]
            if not each["spec"].get("nodeName"):
                continue
            self.bound.add(name)
            if time.monotonic() - self._alive.get(name, time.monotonic()) > self._life_s:
                self._api.delete(f"{PODS}/{name}")
                del self._alive[name]


class Client:
    """An inspection client: it asks for all nodes each second, and watches beside that."""

    def __init__(self, address: str) -> None:
        self._channel = Endpoint(address).channel()
        self._stub = InspectionStub(self._channel)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._ask, self._watch)
        ]
        self.nodes: Sequence[pb.NodeStatus] = ()
        self.slowest_ms = 0.0
        self.failures: list[str] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """It asks for the time of the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()
        self._channel.close()
        for thread in self._threads:
            thread.join()

    def placements(self) -> dict[str, str]:
        """Pod -> outcome of the last decision about it."""
        answer = self._stub.ListPlacements(pb.ListPlacementsRequest(), timeout=ANSWER_S)
        return {each.pod: each.outcome for each in answer.placements}

    @property
    def lost(self) -> int:
        """Reports that never came."""
        return sum(each.lost_messages for each in self.nodes)

    @property
    def online(self) -> int:
        """How many boards are there."""
        return sum(each.agent == "online" for each in self.nodes)

    def silent(self, for_s: float) -> list[str]:
        """The boards that were not heard for so long."""
        return [
            each.name
            for each in self.nodes
            if not each.HasField("report_age_s") or each.report_age_s > for_s
        ]

    def _ask(self) -> None:
        while not self._over.wait(POLL_S):
            begin_s = time.monotonic()
            try:
                self.nodes = self._stub.ListNodes(pb.ListNodesRequest(), timeout=ANSWER_S).nodes
            except (grpc.RpcError, ValueError) as error:
                if not self._over.is_set():
                    self.failures.append(str(error).partition("\n")[0])
            self.slowest_ms = max(self.slowest_ms, 1000 * (time.monotonic() - begin_s))

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                for _ in self._stub.Watch(pb.WatchRequest()):
                    pass
            except (grpc.RpcError, ValueError):
                continue

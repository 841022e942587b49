"""Users and kubelets of a real cluster, and what a watch of its API server tells the bookkeeper."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

from tests.endurance.bookkeeper import Bookkeeper, PodFacts
from tests.kube.api import Api, ApiError, BulkApi
from tests.kube.objects import pod
from tests.kube.played_kubelets import RUNNING
from tests.support.threads import beside

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_REASONS_EVERY_S = 20.0
_AWAY_S = 0.3
# A backlog of users is not a burst at the end of an outage.
_BEHIND_S = 1.0
_MILLI, _MIB = 1, 2**20
FAILURES = (OSError, ApiError, HTTPException, ValueError)


class Cluster:
    """The cluster's users, kubelets and watch, in threads, and the bookkeeper that they tell.
    now_s: since the begin. lock: of the bookkeeper."""

    def __init__(self, kubeconfig: Path, churn_per_s: float, life_s: float, seed: int) -> None:
        self.book = Bookkeeper()
        self.lock = threading.Lock()
        self.kubeconfig = kubeconfig
        self._churn_per_s, self._life_s = churn_per_s, life_s
        self._random = Random(seed)
        self._begin_s = time.monotonic()
        self._facts: dict[str, PodFacts] = {}  # of the pods that exist, by name
        self._dying: list[tuple[float, str]] = []
        self._bound: SimpleQueue[str] = SimpleQueue()
        self._no_more, self._over = threading.Event(), threading.Event()
        self._asked = 0
        self.listings = 0
        self.faults: list[str] = []

    def now_s(self) -> float:
        return time.monotonic() - self._begin_s

    @contextmanager
    def living(self) -> Iterator[None]:
        """All threads run for the time of the block."""
        works = (self._watch, self._churn, self._kubelets, self._read_reasons)
        with beside(*(partial(self._guarded, each) for each in works), done=self._over):
            try:
                yield
            finally:
                self._no_more.set()

    def stop_churn(self) -> None:
        """No more pods come, and none go."""
        self._no_more.set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # a fault of the test must be seen
            self.faults.append(f"{work.__name__}: {error!r}")

    # Users.

    def _churn(self) -> None:
        api, due_s = BulkApi(self.kubeconfig), self.now_s()
        while not self._no_more.is_set():
            due_s = max(due_s, self.now_s() - _BEHIND_S)
            if self._no_more.wait(max(0.0, due_s - self.now_s())):
                return
            try:
                self._create(api)
                while self._dying and self._dying[0][0] <= self.now_s():
                    self._delete(api, self._dying[0][1])
                    heapq.heappop(self._dying)
            except FAILURES:
                api = BulkApi(self.kubeconfig)
                self._no_more.wait(_AWAY_S)
            due_s += 1.0 / self._churn_per_s

    def _create(self, api: Api) -> None:
        """One pod; after a failure, the same again."""
        random, name = self._random, f"pod-{self._asked:07}"
        if name not in self._facts:
            cpu, mib = random.choice((20, 50, 100, 200)), random.choice((16, 32, 64, 128))
            ports = (8000 + random.randrange(3),) if random.random() < 0.03 else ()
            if random.random() < 0.002:
                cpu = 64_000  # fits nowhere
            requests = {"cpu": cpu * _MILLI, "memory": mib * _MIB, "pods": 1}
            self._facts[name] = PodFacts(name, requests, ports=ports)
        facts = self._facts[name]
        manifest = pod(
            name,
            f"{facts.requests['cpu']}m",
            str(facts.requests["memory"]),
            host_port=facts.ports[0] if facts.ports else None,
        )
        try:
            api.create(PODS, manifest)
        except ApiError as error:
            if error.code != 409:  # else it was made, and only the answer was lost
                raise
        life_s = 5.0 + random.expovariate(1 / self._life_s)
        heapq.heappush(self._dying, (self.now_s() + life_s, name))
        self._asked += 1

    def _delete(self, api: Api, name: str) -> None:
        try:
            api.delete(f"{PODS}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise

    def _kubelets(self) -> None:
        """Pods that are bound become ready."""
        api = BulkApi(self.kubeconfig)
        while not self._over.is_set():
            try:
                name = self._bound.get(timeout=0.5)
            except Empty:
                continue
            try:
                api.patch(f"{PODS}/{name}/status", {"status": RUNNING})
            except ApiError:
                continue  # it is gone
            except FAILURES:
                api = BulkApi(self.kubeconfig)
                self._over.wait(_AWAY_S)

    # What the API server shows.

    def _watch(self) -> None:
        api = Api(self.kubeconfig)
        while not self._over.is_set():
            try:
                listed = api.get(PODS)
                with self.lock:
                    self._list(listed["items"])
                for change in api.watch(PODS, listed["metadata"]["resourceVersion"]):
                    if self._over.is_set():
                        return
                    if change["type"] == "ERROR":
                        break
                    with self.lock:
                        self._change(change["type"], change["object"])
            except FAILURES:
                self._over.wait(_AWAY_S)

    def _list(self, items: list[Any]) -> None:
        """What was deleted comes first, because it made room."""
        self.listings += 1
        there = {each["metadata"]["uid"] for each in items}
        for uid in list(self.book.pods.keys() - there):
            self._gone(uid)
        for each in items:
            self._change("ADDED", each)

    def _change(self, kind: str, item: Any) -> None:
        uid, name = item["metadata"]["uid"], item["metadata"]["name"]
        if kind == "DELETED":
            self._gone(uid)
            return
        node, now_s = item["spec"].get("nodeName"), self.now_s()
        if uid not in self.book.pods:
            self.book.created(uid, self._facts[name], now_s)
        if node and self.book.pods[uid].node != node:
            self.book.bound(uid, node, now_s)
            self._bound.put(name)

    def _gone(self, uid: str) -> None:
        if (account := self.book.pods.get(uid)) is not None:
            self._facts.pop(account.facts.key, None)
        self.book.gone(uid)

    def _read_reasons(self) -> None:
        """What controllers have written on pods."""
        api = Api(self.kubeconfig)
        while not self._over.wait(_REASONS_EVERY_S):
            try:
                events = api.get(f"{EVENTS}?fieldSelector=reason%3DFailedScheduling")["items"]
            except FAILURES:
                continue
            with self.lock:
                for event in events:
                    self.book.explained(event["regarding"].get("uid", ""), event.get("note", ""))

"""The users of a simulated cluster, whose pods come and go, and the kubelets that run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    AffinityTerm,
    HostPort,
    Pod,
    Requirement,
)

from tests.controller.probing.day_boards import Board
from tests.endurance.api_server import APART, SimulatedApiServer

HOSTNAME, ZONE, ZONES = "kubernetes.io/hostname", "zone", 5
_MIB = 2**20
_LEAST_S, _MORE_S, _IN_VAIN_S = 5.0, 90.0, 300.0
# While the API server is away, everybody tries again.
_AGAIN_S = 5.0


class Churn:
    """Makes pods of many kinds, and deletes each after its time. Most are small; some want a zone,
    a port of the host, to be apart from others, or one node that may be away; a few fit nowhere."""

    def __init__(self, server: SimulatedApiServer, boards: Sequence[Board], random: Random) -> None:
        self._server, self._loop, self._random = server, server.loop, random
        self._boards = boards
        self._by_name = {board.name: board for board in boards}
        self._pods = 0

    def arrive(self, unix_s: float) -> None:
        """A user creates a pod."""
        if not self._server.is_up:
            return
        random, number = self._random, self._pods
        self._pods += 1
        pod = Pod(
            "default",
            f"p{number}",
            f"u{number}",
            requests={
                CPU: random.choice((20, 50, 100, 200)),
                MEMORY: random.choice((16, 32, 64, 128)) * _MIB,
                PODS: 1,
            },
            created_s=unix_s,
        )
        life_s = _LEAST_S + random.expovariate(1 / _MORE_S)
        match random.random():
            case kind if kind < 0.05:
                pod = replace(pod, node_selector={ZONE: f"z{random.randrange(ZONES)}"})
            case kind if kind < 0.08:
                port = HostPort("0.0.0.0", "TCP", 8000 + random.randrange(3))
                pod = replace(pod, host_ports=(port,))
            case kind if kind < 0.11:
                app = f"app-{random.randrange(3)}"
                selector = (Requirement(APART, "In", (app,)),)
                term = AffinityTerm(HOSTNAME, selector, frozenset({"default"}))
                pod = replace(pod, labels={APART: app}, anti_affinity=(term,))
            case kind if kind < 0.12:
                pod = replace(pod, node_selector={HOSTNAME: random.choice(self._boards).name})
            case kind if kind < 0.123:
                pod = replace(pod, requests={**pod.requests, CPU: 64_000})
                life_s = _IN_VAIN_S
            case _:
                pass
        self._server.create(pod)
        self._loop.call_later(life_s, self._delete, pod.key)

    def _delete(self, key: str) -> None:
        if self._server.is_up:
            self._server.delete(key)
        else:
            self._loop.call_later(_AGAIN_S, self._delete, key)

    def bound(self, key: str, node: str) -> None:
        """The node's kubelet starts the pod."""
        self._loop.call_later(self._random.uniform(0.5, 3.0), self._start, key, node)

    def _start(self, key: str, node: str) -> None:
        if not self._server.is_up:
            self._loop.call_later(_AGAIN_S, self._start, key, node)
        elif (pod := self._server.found_pod(key)) is not None and self._by_name[node].is_running:
            self._server.put_pod(replace(pod, ready=True))

"""A controller's telemetry in a process of its own, for attacks on it.

It joins the real rooms over a simulated cluster. The first line on its standard input is JSON that
says what to run. Each line after it is answered with one JSON line: the longest time that the event
loop stood still and was busy since the line before (seconds), the resident memory now and at most
(MB), and how many messages were refused, by kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from typing import Any

import psutil
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller, Servers, running

from tests.kube.objects import node
from tests.support.memory import peak_bytes
from tests.support.memory_cluster import MemoryCluster

_TICK_S = 0.02


class Stalls:
    """The longest time by which the event loop woke up late, and for which it was busy."""

    def __init__(self) -> None:
        self._late_s = self._busy_s = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            due_s, before_s = time.monotonic() + _TICK_S, time.thread_time()
            await asyncio.sleep(_TICK_S)
            self._late_s = max(self._late_s, time.monotonic() - due_s)
            self._busy_s = max(self._busy_s, time.thread_time() - before_s)

    def take(self) -> dict[str, float]:
        """Both since the last call."""
        stalls = {"stall_s": self._late_s, "busy_s": self._busy_s}
        self._late_s = self._busy_s = 0.0
        return stalls


async def main() -> None:
    """Run until standard input ends."""
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    asked: dict[str, Any] = json.loads(await reader.readline())
    nodes = [read_node(node(name, address=address)) for name, address in asked["nodes"].items()]
    settings = Settings(
        cluster=asked["cluster"],
        broker_host=asked["host"],
        broker_port=asked["port"],
        limits=replace(ProbeLimits(), **asked.get("limits", {})),
        serve=GrpcSettings(asked["grpc"]),
    )
    controller, stalls = Controller(settings, MemoryCluster(nodes)), Stalls()
    following = asyncio.create_task(controller.follow())
    watching = asyncio.create_task(stalls.watch())
    async with running(controller.measure()), Servers(controller).serving():
        print(json.dumps({"ready": True}), flush=True)
        while await reader.readline():
            status = {
                **stalls.take(),
                "rss_mb": psutil.Process().memory_info().rss / 1e6,
                "most_mb": peak_bytes(os.getpid()) / 1e6,
                "refused": dict(controller.telemetry.refused),
                "accepted": controller.telemetry.accepted,
            }
            print(json.dumps(status), flush=True)
    for task in (following, watching):
        task.cancel()
    await asyncio.gather(following, watching, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())

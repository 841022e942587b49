"""The daemon: a controller on a Kubernetes cluster, with its election, loops and servers."""

import asyncio
import gc
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from leadline_wire.sd_notify import Notifier

from leadline_controller.clock import LeaseClock
from leadline_controller.framework.ports import ClusterError, LeaseStore
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.notify import Heartbeats, feed
from leadline_controller.settings import Settings
from leadline_controller.strategies import DEFAULT_STRATEGY
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.rules import in_force, scheduling_rule
from leadline_controller.wiring.servers import Servers
from leadline_controller.wiring.work import running

if TYPE_CHECKING:
    from leadline_controller.kube.cluster import KubeCluster

log = logging.getLogger(__name__)

_COLLECT_AFTER = 20_000
_SWITCH_INTERVAL_S = 0.0005
_ASK_AGAIN_S = 2.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a controller on a Kubernetes cluster until `stop` is set; of several only the one that
    holds the Lease acts.

    Raises ConfigError, OptionError, ServeError, or the kube room's error for an unusable
    kubeconfig; a broker or API server that is away is waited for.
    """
    started = asyncio.Event()
    async with (
        running(_run(settings, stop, started)) as controller,
        running(stop.wait()) as stopping,
    ):
        await asyncio.wait((controller, stopping), return_when=asyncio.FIRST_COMPLETED)
        if started.is_set():
            await asyncio.wait((controller,))
        # Otherwise a start that still waits is cancelled.


async def _run(settings: Settings, stop: asyncio.Event, started: asyncio.Event) -> None:
    from leadline_controller.kube.cluster import KubeCluster

    # A collection that visits all imported modules would block the event loop for 20 ms.
    gc.collect()
    gc.freeze()
    # The default threshold would start a collection after a few hundred new pods.
    gc.set_threshold(_COLLECT_AFTER)
    # Python lets another thread go on for 5 ms, such as the one that receives measurements, while
    # a pod or kube-scheduler waits.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if settings.strategy:
        scheduling_rule(settings)  # what is wrong with it is told before anything is asked
    async with KubeCluster.connect(settings.kubeconfig) as cluster:
        try:
            ruled, unknown = await in_force(settings, cluster.lease), False
        except ClusterError:
            # It starts, and tells that the API server is away. By this rule it never leads.
            ruled, unknown = replace(settings, strategy=DEFAULT_STRATEGY, options={}), True
        found = await _control(settings, ruled, cluster, stop, started, unknown=unknown)
        if found is not None:
            await _control(settings, found, cluster, stop, started)


async def _control(
    settings: Settings,
    ruled: Settings,
    cluster: "KubeCluster",
    stop: asyncio.Event,
    started: asyncio.Event,
    *,
    unknown: bool = False,
) -> Settings | None:
    """Run a controller until `stop` is set. ruled: the settings with the strategy in force.
    unknown: the API server could not be asked for it; as soon as it tells another one this ends,
    and returns the settings with that."""
    notifier, heartbeats = Notifier(os.environ), Heartbeats(time.monotonic)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    heartbeat = heartbeats.part("the election")
    elector = LeaderElector(cluster.lease, identity, LeaseClock(), heartbeat=heartbeat)

    async def elect() -> Settings | None:
        found = await _once_known(settings, cluster.lease, heartbeat) if unknown else ruled
        if found != ruled:
            return found
        named = "" if settings.strategy else ": strategy.name is not set"
        log.info("the strategy is %s%s", ruled.strategy, named)
        cluster.lease.strategy = ruled.strategy
        await elector.run()
        return None

    controller = Controller(
        settings,
        cluster.fenced(elector),
        scheduling_rule(ruled),
        leadership=elector,
        heartbeats=heartbeats,
        unfenced=cluster,
        pulls=cluster,
        usage=cluster,
        api_server=cluster.reachability,
        login=cluster.cert_file,
    )
    servers = Servers(controller)
    async with (
        controller.storing_decisions(),
        servers.serving(),
        running(stop.wait()) as stopping,
        # The Lease is held until all work has ended.
        running(elect()) as electing,
    ):
        started.set()
        notifier.send("READY=1")
        async with asyncio.TaskGroup() as group:
            work = [*controller.work(), feed(notifier, heartbeats)]
            if settings.issuing is not None:
                work.append(cluster.issue(settings.issuing, elector, controller.nodes))
            tasks = [group.create_task(each) for each in work]
            await asyncio.wait((electing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                notifier.send("STOPPING=1")
            for task in tasks:
                task.cancel()
    return None if electing.cancelled() else electing.result()


async def _once_known(
    settings: Settings, lease: LeaseStore, heartbeat: Callable[[], None]
) -> Settings:
    """The settings with the strategy in force, once the API server answers. Raises ConfigError."""
    while True:
        await asyncio.sleep(_ASK_AGAIN_S)
        heartbeat()
        with suppress(ClusterError):  # the Lease logs it for the operator
            return await in_force(settings, lease)

"""The daemon: a controller on a Kubernetes cluster, with its election, loops and servers."""

import asyncio
import gc
import os
import socket
import sys
import time
import uuid

from leadline_controller.clock import LeaseClock
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.notify import Heartbeats, Notifier, feed
from leadline_controller.settings import Settings
from leadline_controller.wiring.controller import Controller, running
from leadline_controller.wiring.rules import scheduling_rule
from leadline_controller.wiring.servers import Servers

_COLLECT_AFTER = 20_000
_SWITCH_INTERVAL_S = 0.0005


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a controller on a Kubernetes cluster until `stop` is set; of several only the one that
    holds the Lease acts.

    Raises OptionError, ServeError, or the kube room's error for an unusable kubeconfig;
    a broker or API server that is away is waited for.
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
    rule = scheduling_rule(settings)
    notifier, heartbeats = Notifier(os.environ), Heartbeats(time.monotonic)
    async with KubeCluster.connect(settings.kubeconfig) as cluster:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        heartbeat = heartbeats.part("the election")
        elector = LeaderElector(cluster.lease, identity, LeaseClock(), heartbeat=heartbeat)
        controller = Controller(
            settings,
            cluster.fenced(elector),
            rule,
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
            running(elector.run()) as electing,
        ):
            started.set()
            notifier.send("READY=1")
            async with asyncio.TaskGroup() as group:
                work = [*controller.work(), feed(notifier, heartbeats)]
                if settings.issuing is not None:
                    work.append(cluster.issue(settings.issuing, elector, controller.nodes))
                tasks = [group.create_task(each) for each in work]
                await asyncio.wait((electing, stopping), return_when=asyncio.FIRST_COMPLETED)
                notifier.send("STOPPING=1")
                for task in tasks:
                    task.cancel()

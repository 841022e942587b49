"""The daemon: a controller on a Kubernetes cluster, with its election, loops and servers."""

import asyncio
import gc
import os
import socket
import sys
import time
import uuid

from leadline_controller import loops
from leadline_controller.clock import LeaseClock
from leadline_controller.config import Settings
from leadline_controller.framework.options import values_of
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.notify import Heartbeats, Notifier, feed
from leadline_controller.wiring import servers
from leadline_controller.wiring.controller import Controller, running
from leadline_controller.wiring.profiles import scheduling_profile

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
    how = scheduling_profile(settings)
    notifier, heartbeats = Notifier(os.environ), Heartbeats(time.monotonic)
    async with KubeCluster.connect(settings.kubeconfig) as cluster:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        beat = heartbeats.part("the election")
        elector = LeaderElector(cluster.lease, identity, LeaseClock(), beat=beat)
        controller = Controller(
            settings,
            cluster.fenced(elector),
            elector,
            heartbeats=heartbeats,
            api_server=cluster.reachability,
            login=cluster.cert_file,
        )
        async with (
            controller.storing_decisions(),
            # First, so that its address in use ends the controller before it acts: another one may
            # run here, and nobody could ask this one. The others wait for their addresses.
            servers.grpc(controller, how.strategy.name, values_of(how.strategy)),
            servers.web(controller, how.strategy.name),
            servers.health(controller),
            # Contexts end in reverse order, so the Lease is held until those below have ended.
            running(elector.run()) as electing,
            controller.probing(),
            controller.rescheduling(how),
            controller.looking_up_images(cluster),
            # kube-scheduler has an election of its own, so the extender binds without our Lease.
            servers.extender(controller, how, cluster),
            servers.keda(controller, how),
            servers.metrics(controller, how.strategy.name),
            controller.ordering_replicas(),
            running(
                loops.warn_about_nodes(cluster, controller.state.nodes, elector, controller.clock)
            ),
            running(loops.follow_profiles(how.profiles, settings.profiles, controller.clock)),
            running(
                controller.scheduler(how).run() if settings.standalone else controller.follow()
            ) as scheduling,
            running(feed(notifier, heartbeats)),
            running(stop.wait()) as stopping,
        ):
            started.set()
            notifier.send("READY=1")
            ends = (electing, scheduling, stopping)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            notifier.send("STOPPING=1")

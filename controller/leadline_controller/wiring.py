"""The only file that joins rooms: settings in, a running controller out."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from leadline_controller import __version__
from leadline_controller.clock import SystemClock
from leadline_controller.config import Settings
from leadline_controller.core.cycle import Strategy
from leadline_controller.core.options import OptionError, build
from leadline_controller.core.ports import Clock, Cluster
from leadline_controller.filters import FILTERS
from leadline_controller.history.recorder import Recorder
from leadline_controller.ingest.fold import Folder
from leadline_controller.ingest.leases import LeaseSender, Prober
from leadline_controller.ingest.session import BrokerSession, BrokerSettings
from leadline_controller.scheduling.scheduler import Placing, Scheduler
from leadline_controller.serve.grpc import InspectionServer
from leadline_controller.serve.source import InspectionSource
from leadline_controller.state.cluster import ClusterState
from leadline_controller.state.decisions import DecisionLog
from leadline_controller.state.telemetry import TelemetryState
from leadline_controller.strategies import STRATEGIES

log = logging.getLogger(__name__)

_PROBE_TICK_S = 0.5


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set. Raises OptionError."""
    if name not in STRATEGIES:
        raise OptionError(f"strategy {name!r}: unknown; known: {', '.join(STRATEGIES)}")
    built: Strategy = build(STRATEGIES[name], options)
    return built


def placing(settings: Settings) -> Placing:
    """How the settings want pods placed. Raises OptionError."""
    return Placing(
        strategy=strategy(settings.strategy, settings.options),
        filters=FILTERS,
        random=Random(settings.seed),  # noqa: S311  # breaks ties, no secret
        scheduler_name=settings.scheduler_name,
        warm_up_s=settings.warm_up_s,
    )


@dataclass
class Controller:
    """The parts of one controller that outlive a strategy: what is measured, what the
    cluster holds, and what was decided."""

    settings: Settings
    cluster: Cluster
    clock: Clock = field(default_factory=SystemClock)
    state: ClusterState = field(default_factory=ClusterState)
    telemetry: TelemetryState = field(init=False)
    history: Recorder = field(init=False)
    decisions: DecisionLog = field(init=False)

    def __post_init__(self) -> None:
        self.telemetry = TelemetryState(self.settings.ttl)
        self.history = Recorder(self.settings.decisions)
        self.decisions = DecisionLog(keeper=self.history)

    def scheduler(self, how: Placing) -> Scheduler:
        """A loop that places this cluster's pods."""
        return Scheduler(self.cluster, self.state, self.telemetry, self.decisions, how, self.clock)

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Take reports in and hand leases out for as long as the context lasts."""
        settings = self.settings

        def publish(*message: Any) -> None:
            session.publish(*message)

        sender = LeaseSender(settings.cluster, publish)
        prober = Prober(self.telemetry, sender, settings.limits, settings.anchors)
        folder = Folder(settings.cluster, self.telemetry, prober.on_birth, prober.on_bandwidth)
        session = BrokerSession(
            BrokerSettings(
                host=settings.broker_host,
                port=settings.broker_port,
                cluster=settings.cluster,
                client_id=f"leadline-controller-{socket.gethostname()}-{os.getpid()}",
                tls=settings.broker_tls,
            ),
            folder,
        )
        session.start()
        ticking = asyncio.create_task(self._tick(prober))
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await asyncio.to_thread(session.stop)

    @asynccontextmanager
    async def remembering(self) -> AsyncIterator[None]:
        """Keep decisions for as long as the context lasts, and know those of earlier runs."""
        self.history.start()
        try:
            self.decisions.restore(await self.history.records(self.clock.now_s()))
            yield
        finally:
            await self.history.stop()

    @asynccontextmanager
    async def serving(self, strategy_name: str) -> AsyncIterator[str]:
        """Answer inspections for as long as the context lasts; yields the address."""
        source = InspectionSource(
            telemetry=self.telemetry,
            cluster=self.state,
            decisions=self.decisions,
            history=self.history,
            now_s=self.clock.now_s,
            version=__version__,
            cluster_name=self.settings.cluster,
            strategy=strategy_name,
            scheduler_name=self.settings.scheduler_name,
        )
        server = InspectionServer(self.settings.serve, source)
        address = await server.start()
        log.info("answering inspections at %s", address)
        try:
            yield address
        finally:
            await server.stop()

    async def _tick(self, prober: Prober) -> None:
        while True:
            prober.tick(self.clock.now_s())
            await self.clock.sleep(_PROBE_TICK_S)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a controller on a Kubernetes cluster until `stop` is set.

    Raises OptionError, ServeError, or the kube room's error for an unusable kubeconfig;
    a broker or API server that is away is waited for.
    """
    from leadline_controller.kube.cluster import KubeCluster

    how = placing(settings)
    async with KubeCluster(settings.kubeconfig) as cluster:
        controller = Controller(settings, cluster)
        async with (
            controller.remembering(),
            controller.measuring(),
            controller.serving(how.strategy.name),
        ):
            scheduling = asyncio.create_task(controller.scheduler(how).run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((scheduling, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            scheduling.cancel()
            results = await asyncio.gather(scheduling, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result

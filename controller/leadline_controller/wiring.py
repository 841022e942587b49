"""The only file that joins rooms: settings in, a running controller out."""

import asyncio
import gc
import logging
import os
import secrets
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from leadline_controller import __version__
from leadline_controller.api.grpc import InspectionServer
from leadline_controller.api.nodes import InspectionSource
from leadline_controller.clock import LeaseClock, SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.config import Settings
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.filters import BIND_FILTERS, EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cycle import Strategy, filters_with
from leadline_controller.framework.model import Node
from leadline_controller.framework.options import OptionError, build
from leadline_controller.framework.ports import Clock, Cluster, ClusterChange, Leadership
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.leaderelection.lease import SOLE_LEADER
from leadline_controller.notify import Heartbeats, Notifier, feed
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.scheduler import LeaseSender, ProbeScheduler, ProbeSettings
from leadline_controller.scheduling.extender_service import ExtenderProfile, ExtenderService
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState

log = logging.getLogger(__name__)

_COLLECT_AFTER = 20_000
_PROBE_TICK_S = 0.5


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set. Raises OptionError, PluginError."""
    if name not in STRATEGIES:
        raise OptionError(f"strategy {name!r}: unknown; known: {', '.join(STRATEGIES)}")
    built: Strategy = build(STRATEGIES[name], options)
    return built


def advising(settings: Settings, how: SchedulingProfile) -> ExtenderProfile:
    """How the settings want kube-scheduler advised about the pods that it places."""
    own = filters_with({name: FILTERS[name] for name in EXTENDER_FILTERS}, how.strategy)
    every = settings.extender is not None and settings.extender.every_filter
    at_binding = FILTERS if every else BIND_FILTERS
    return ExtenderProfile(
        strategy=how.strategy,
        filters=filters_with(FILTERS, how.strategy) if every else own,
        own=own,
        at_binding=filters_with({name: FILTERS[name] for name in at_binding}, how.strategy),
        random=how.random,
        check_unmodelled=every,
        warm_up_s=how.warm_up_s,
    )


def placing(settings: Settings) -> SchedulingProfile:
    """How the settings want pods placed. Raises OptionError."""
    return SchedulingProfile(
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
    leadership: Leadership = SOLE_LEADER
    clock: Clock = field(default_factory=SystemClock)
    state: ClusterState = field(default_factory=ClusterState)
    rounds: Heartbeats = field(default_factory=lambda: Heartbeats(time.monotonic))
    telemetry: TelemetryState = field(init=False)
    history: Recorder = field(init=False)
    decisions: DecisionLog = field(init=False)
    _listeners: list[Callable[[ClusterChange], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.telemetry = TelemetryState(self.settings.ttl)
        self.history = Recorder(self.settings.decisions)
        self.decisions = DecisionLog(sink=self.history.put)

    def scheduler(self, how: SchedulingProfile) -> Scheduler:
        """A loop that places this cluster's pods."""
        return Scheduler(
            self.cluster,
            self.state,
            self.telemetry,
            self.decisions,
            how,
            self.clock,
            self.leadership,
            self._tell,
        )

    async def follow(self) -> None:
        """Only know what the cluster holds, and place nothing, until cancelled."""
        async with aclosing(self.cluster.watch()) as changes:
            async for change in changes:
                self.state.apply(change)
                self._tell(change)
                self.decisions.observe(change)

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Take reports in, and while we lead hand leases out, for as long as the context lasts."""
        settings = self.settings

        def publish(*message: Any) -> None:
            session.publish(*message)

        sender = LeaseSender(settings.cluster, publish)
        probing = ProbeSettings(settings.limits, settings.anchors, AddressPolicy(settings.networks))
        probe_scheduler = ProbeScheduler(self.telemetry, sender, probing, self._nodes)
        ingestor = TelemetryIngestor(settings.cluster, self.telemetry, probe_scheduler)
        session = BrokerSession(
            BrokerSettings(
                host=settings.broker_host,
                port=settings.broker_port,
                cluster=settings.cluster,
                # Whoever knew it could take this session over, where the broker lets them.
                client_id=f"leadline-controller-{socket.gethostname()}-{secrets.token_hex(8)}",
                tls=settings.broker_tls,
            ),
            ingestor,
        )
        session.start()
        ticking = asyncio.create_task(
            self._tick(probe_scheduler, session.is_running, session.request_retained)
        )
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
            self.decisions.restore(await self.history.restored())
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
            leadership=self.leadership,
            places=self.settings.standalone,
            advises=self.settings.extender is not None,
            address_policy=AddressPolicy(self.settings.networks),
        )
        server = InspectionServer(self.settings.serve, source)
        address = await server.start()
        log.info("answering inspections at %s", address)
        try:
            yield address
        finally:
            await server.stop()

    @asynccontextmanager
    async def extending(
        self, how: SchedulingProfile, cluster: Cluster
    ) -> AsyncIterator[str | None]:
        """Answer kube-scheduler for as long as the context lasts; yields the address, None where
        it is not asked for."""
        extender = self.settings.extender
        if extender is None:
            yield None
            return
        from leadline_controller.api.extender import ExtenderServer

        extender_service = ExtenderService(
            cluster,
            self.state,
            self.telemetry,
            self.decisions,
            advising(self.settings, how),
            self.clock,
        )
        server = ExtenderServer(extender, extender_service)
        self._listeners.append(extender_service.observe)
        try:
            address = await server.start()
            log.info("answering kube-scheduler at %s", address)
            yield address
        finally:
            await server.stop()
            self._listeners.remove(extender_service.observe)
            await extender_service.close()

    def _tell(self, change: ClusterChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _nodes(self) -> Mapping[str, Node] | None:
        return self.state.nodes() if self.state.listed else None

    async def _tick(
        self,
        probe_scheduler: ProbeScheduler,
        hears: Callable[[], bool] = lambda: True,
        fetch: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """Keep a place for what the nodes of the cluster report, and while we lead, have what is
        due sent. A fault in it must not end the measuring."""
        led, said = self.leadership is SOLE_LEADER, ""
        beat = self.rounds.part("measuring")
        while True:
            if hears():
                beat()
            leads, now_s = self.leadership.leads(), self.clock.now_s()
            try:
                nodes = self._nodes()
                fetch(self.telemetry.set_members(None if nodes is None else nodes.keys(), now_s))
                if leads and not led:
                    probe_scheduler.on_started_leading(now_s)
                led = leads
                if leads:
                    probe_scheduler.tick(now_s)
                else:
                    probe_scheduler.tick_as_standby(now_s)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is said once
                if repr(error) != said:
                    said = repr(error)
                    log.error("probing the network failed, trying again: %s", said)
            await self.clock.sleep(_PROBE_TICK_S)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a controller on a Kubernetes cluster until `stop` is set; of several only the one that
    holds the Lease acts.

    Raises OptionError, ServeError, or the kube room's error for an unusable kubeconfig;
    a broker or API server that is away is waited for.
    """
    started = asyncio.Event()
    async with (
        _working(_run(settings, stop, started)) as running,
        _working(stop.wait()) as stopping,
    ):
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if started.is_set():
            await asyncio.wait((running,))
        # Else whatever the start waits for is given up.


async def _run(settings: Settings, stop: asyncio.Event, started: asyncio.Event) -> None:
    from leadline_controller.kube.cluster import KubeCluster

    # What is imported stays, and going over it would stop everything for 20 ms now and then.
    gc.collect()
    gc.freeze()
    # Else a few hundred new pods, which are there to stay, have it look for garbage again.
    gc.set_threshold(_COLLECT_AFTER)
    how = placing(settings)
    notifier, rounds = Notifier(os.environ), Heartbeats(time.monotonic)
    async with KubeCluster(settings.kubeconfig) as cluster:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        beat = rounds.part("the election")
        elector = LeaderElector(cluster.lease, identity, LeaseClock(), beat=beat)
        controller = Controller(settings, cluster.fenced(elector), elector, rounds=rounds)
        async with (
            controller.remembering(),
            # An address that is taken ends it before anything has begun.
            controller.serving(how.strategy.name),
            # The first to begin is the last to end: the others keep the Lease until they are done.
            _working(elector.run()) as electing,
            controller.measuring(),
            # kube-scheduler is elected itself: what it asks for is bound whoever leads here.
            controller.extending(how, cluster),
            _working(
                controller.scheduler(how).run() if settings.standalone else controller.follow()
            ) as scheduling,
            _working(feed(notifier, rounds)),
            _working(stop.wait()) as stopping,
        ):
            started.set()
            notifier.ready()
            ends = (electing, scheduling, stopping)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            notifier.stopping()


@asynccontextmanager
async def _working(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    """Have it done beside. Leaving ends it, and raises what it died of."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

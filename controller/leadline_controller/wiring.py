"""The only file that joins rooms: settings in, a running controller out."""

import asyncio
import gc
import logging
import os
import secrets
import socket
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from leadline_controller import __version__, loops
from leadline_controller.api.certificates import CertificateFile, TlsSettings, certificate_files
from leadline_controller.api.grpc import InspectionServer
from leadline_controller.api.nodes import InspectionSource
from leadline_controller.clock import LeaseClock, SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.config import Settings
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.record import Change
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.filters import BIND_FILTERS, EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Strategy, filters_with
from leadline_controller.framework.images import ARCH_LABEL
from leadline_controller.framework.model import Node
from leadline_controller.framework.options import OptionError, OptionValue, build, values_of
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterChange,
    ClusterError,
    ImagePull,
    Leadership,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.kube.reachability import Reachability
from leadline_controller.leaderelection.elector import SOLE_LEADER, LeaderElector
from leadline_controller.notify import Heartbeats, Notifier, feed
from leadline_controller.parsing.fields import FieldError
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.scheduler import BudgetReading, ProbeScheduler, ProbeSettings
from leadline_controller.registry.lookup import ImageLookup
from leadline_controller.registry.registries import (
    Credentials,
    Registries,
    load_registries,
    read_pull_secret,
)
from leadline_controller.rescheduling.rescheduler import Rescheduler, ReschedulingProfile
from leadline_controller.rescheduling.resized import ResizedPods
from leadline_controller.rescheduling.suggestions import Suggestions
from leadline_controller.scheduling.batches import NoMoves
from leadline_controller.scheduling.extender_service import ExtenderProfile, ExtenderService
from leadline_controller.scheduling.queue import QueueReading
from leadline_controller.scheduling.replica_order import ReplicaOrder
from leadline_controller.scheduling.scaler_service import ScalerService
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import (
    BrokerReading,
    BrokerSession,
    BrokerSettings,
)
from leadline_controller.telemetry.state import TelemetryState

if TYPE_CHECKING:
    from leadline_controller.api.instruments import Instruments

log = logging.getLogger(__name__)

_COLLECT_AFTER = 20_000


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set. Raises OptionError, PluginError."""
    if name not in STRATEGIES:
        raise OptionError(f"strategy {name!r}: unknown; known: {', '.join(STRATEGIES)}")
    built: Strategy = build(STRATEGIES[name], options)
    return built


def extender_profile(settings: Settings, how: SchedulingProfile) -> ExtenderProfile:
    """The extender's profile, for the pods that kube-scheduler places."""
    own = filters_with({name: FILTERS[name] for name in EXTENDER_FILTERS}, how.strategy)
    every = settings.extender is not None and settings.extender.every_filter
    at_binding = FILTERS if every else BIND_FILTERS
    return ExtenderProfile(
        strategy=how.strategy,
        filters=filters_with(FILTERS, how.strategy) if every else own,
        own=own,
        at_binding=filters_with({name: FILTERS[name] for name in at_binding}, how.strategy),
        random=how.random,
        profiles=how.profiles,
        check_unmodelled=every,
        warm_up_s=how.warm_up_s,
    )


def scheduling_profile(settings: Settings) -> SchedulingProfile:
    """The scheduler's profile. Raises OptionError, PluginError."""
    return SchedulingProfile(
        strategy=strategy(settings.strategy, settings.options),
        filters=FILTERS,
        random=Random(settings.seed),  # noqa: S311  # breaks ties, no secret
        scheduler_name=settings.scheduler_name,
        warm_up_s=settings.warm_up_s,
        batch_window_s=settings.batch_window_s,
        suggest_interval_s=settings.suggest_interval_s,
    )


class PullSource(Protocol):
    """Where image pulls and pull secrets come from."""

    def watch_pulls(self) -> AsyncGenerator[ImagePull, None]:
        """Every pull that a kubelet reports, for ever."""
        ...

    async def read_secret(self, key: str) -> dict[str, Any]:
        """A secret, by namespace/name. Raises ClusterError."""
        ...


@dataclass
class Controller:
    """The parts of one controller that do not depend on the strategy: measurements, the cluster's
    state, and decisions."""

    settings: Settings
    cluster: Cluster
    leadership: Leadership = SOLE_LEADER
    clock: Clock = field(default_factory=SystemClock)
    state: ClusterState = field(default_factory=ClusterState)
    heartbeats: Heartbeats = field(default_factory=lambda: Heartbeats(time.monotonic))
    api_server: Callable[[], Reachability | None] = lambda: None
    login: Path | None = None  # the client certificate of the kubeconfig
    broker: Callable[[], BrokerReading | None] = field(
        init=False, default_factory=lambda: lambda: None
    )
    queue: Callable[[], QueueReading | None] = field(
        init=False, default_factory=lambda: lambda: None
    )
    telemetry: TelemetryState = field(init=False)
    sampler: Sampler = field(init=False)
    history: Recorder = field(init=False)
    probe_scheduler: ProbeScheduler | None = field(init=False, default=None)
    image_lookup: ImageLookup | None = field(init=False, default=None)
    decisions: DecisionLog = field(init=False)
    rescheduler: Rescheduler | None = field(init=False, default=None)
    suggestions: Suggestions | None = field(init=False, default=None)
    _instruments: "Instruments | None" = field(init=False, default=None)
    _listeners: list[Callable[[ClusterChange], None]] = field(default_factory=list)
    _requeue: Callable[[ClusterEvent], None] = field(
        init=False, default_factory=lambda: lambda _: None
    )

    def __post_init__(self) -> None:
        budget = self.settings.budget
        has_tests = budget.link_time_share > 0 and budget.bytes_per_day > 0
        self.telemetry = TelemetryState(self.settings.ttl, is_passive=not has_tests)
        self.sampler = Sampler(self.telemetry, self.settings.anchors)
        self.history = Recorder(self.settings.decisions)
        self.decisions = DecisionLog(sink=self._decided)
        if self.settings.metrics is not None:
            from leadline_controller.api.instruments import Instruments

            self._instruments = Instruments()

    def scheduler(self, how: SchedulingProfile) -> Scheduler:
        """The scheduling loop for this cluster's pods. Call it in the context `rescheduling`, so
        that the room for moves which an earlier leader began is kept first."""
        leadership = self.leadership
        if self.rescheduler is not None:
            leadership = _AfterRecovery(leadership, self.rescheduler)
        scheduler = Scheduler(
            self.cluster,
            self.state,
            self.telemetry,
            self.decisions,
            how,
            self.clock,
            leadership,
            self._notify,
            lambda: self.suggestions or NoMoves(),
            self._instruments.scheduled if self._instruments else lambda _phase, _s: None,
        )
        self._requeue, self.queue = scheduler.requeue, scheduler.queue
        return scheduler

    @asynccontextmanager
    async def rescheduling(self, how: SchedulingProfile) -> AsyncIterator[None]:
        """Plan moves, and carry them out while this controller leads, during the context."""
        rescheduler = Rescheduler(
            self.cluster,
            self.state,
            self.telemetry,
            self.decisions,
            by := ReschedulingProfile(
                how.strategy, how.filters, how.scheduler_name, how.profiles.applied
            ),
            self.settings.rescheduling,
            self.clock,
            self.leadership,
            lambda events: self._requeue(events),
            self.history.about,
        )
        work = [rescheduler.run()]
        if isinstance(how.strategy, BatchStrategy):
            self.suggestions = Suggestions(
                rescheduler,
                self.state,
                lambda: self.state.view(self.telemetry, self.clock.now_s()),
                by,
                how.random,
                self.clock,
                self.leadership,
            )
            if how.suggest_interval_s > 0:
                work.append(self.suggestions.run(how.suggest_interval_s))
        resized = ResizedPods(
            self.cluster,
            rescheduler,
            self.state,
            lambda pod: self.state.view(self.telemetry, self.clock.now_s(), pod),
            by,
            how.random,
            self.clock,
            self.leadership,
        )
        work.append(resized.run())
        listeners = (rescheduler.observe, resized.observe)
        self._listeners.extend(listeners)
        self.rescheduler = rescheduler
        try:
            async with AsyncExitStack() as stack:
                for each in work:
                    await stack.enter_async_context(running(each))
                yield
        finally:
            for listener in listeners:
                self._listeners.remove(listener)

    async def follow(self) -> None:
        """Keep the cluster's state current without placing pods, until cancelled."""
        async with aclosing(self.cluster.watch()) as changes:
            async for change in changes:
                self.state.apply(change)
                self._notify(change)
                self.decisions.observe(change)

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        """Ingest reports, and send leases while this controller leads, during the context."""
        settings = self.settings
        probing = ProbeSettings(
            settings.limits,
            settings.budget,
            settings.uplinks,
            anchors=settings.anchors,
            address_policy=AddressPolicy(settings.networks),
        )
        probe_scheduler = ProbeScheduler(
            self.telemetry,
            lambda lease: session.send(lease),
            probing,
            self._nodes,
            self.state.bandwidth_requested_mbps,
            lambda: session.is_connected(),
            self.state.nodes_of_rows,
        )
        self.probe_scheduler = probe_scheduler
        ingestor = TelemetryIngestor(settings.cluster, self.telemetry, probe_scheduler)
        session = BrokerSession(
            BrokerSettings(
                host=settings.broker_host,
                port=settings.broker_port,
                cluster=settings.cluster,
                # Random, because a client with the same id could take this session over.
                client_id=f"leadline-controller-{socket.gethostname()}-{secrets.token_hex(8)}",
                tls=settings.broker_tls,
            ),
            ingestor,
        )
        self.broker = session.reading
        session.start()
        try:
            measuring = loops.measure(
                probe_scheduler,
                self.telemetry,
                self._nodes,
                self.leadership,
                self.clock,
                self.heartbeats.part("measuring"),
                session.is_running,
                session.request_retained,
                session.check,
            )
            sampling = loops.sample(
                self.sampler, self.history, self.decisions, self.leadership, self.clock
            )
            estimating = loops.estimate(self.telemetry, self.clock)
            async with running(measuring), running(estimating), running(sampling):
                yield
        finally:
            await asyncio.to_thread(session.stop)

    @asynccontextmanager
    async def looking_up_images(self, pulls: PullSource) -> AsyncIterator[None]:
        """Follow the boards' pulls, and ask registries for layers, during the context."""
        from leadline_controller.registry.client import RegistryClient

        settings = self.settings.images
        async with AsyncExitStack() as stack:
            pulled = loops.follow_pulls(
                pulls.watch_pulls(), self.state.images, self.telemetry, self.clock
            )
            await stack.enter_async_context(running(pulled))
            registries = Registries()
            if settings.enabled and settings.registries_file is not None:
                try:
                    registries = load_registries(settings.registries_file)
                except FieldError as error:  # it may name mirrors, so nobody is asked instead
                    log.error("%s; no registry is asked for layers", error)
                    settings = replace(settings, enabled=False)
            if settings.enabled:
                self.image_lookup = ImageLookup(
                    settings,
                    registries,
                    await stack.enter_async_context(RegistryClient(registries)),
                    lambda: self.state.images.wanted(pod for pod, _ in self.state.pods()),
                    self._architectures,
                    self.state.images.learn,
                    partial(_logins, pulls),
                    self.clock.now_s,
                )
                await stack.enter_async_context(running(self.image_lookup.run()))
            yield

    def _architectures(self) -> frozenset[str]:
        labels = (node.labels.get(ARCH_LABEL, "") for node in self.state.nodes().values())
        return frozenset(label for label in labels if label)

    @asynccontextmanager
    async def storing_decisions(self) -> AsyncIterator[None]:
        """Record decisions during the context, after loading those of earlier runs."""
        self.history.start()
        try:
            self.decisions.restore(await self.history.restored())
            yield
        finally:
            await self.history.stop()

    @asynccontextmanager
    async def serving_api(
        self, strategy_name: str, options: Mapping[str, OptionValue] | None = None
    ) -> AsyncIterator[str]:
        """Serve the gRPC API during the context; yields the address. options: of the strategy."""
        server = InspectionServer(self.settings.serve, self._source(strategy_name, options))
        address = await server.start()
        log.info("answering inspections at %s", address)
        try:
            yield address
        finally:
            await server.stop()

    @asynccontextmanager
    async def serving_map(
        self, strategy_name: str, listener: socket.socket | None = None
    ) -> AsyncIterator[str | None]:
        """Serve the map during the context; yields the page's address, None without a section
        [web]. Enter it before the cluster is watched, so that it knows when pods were placed.
        listener: a socket that listens already."""
        settings = self.settings.web
        if settings is None:
            yield None
            return
        from leadline_controller.api.web import WebServer
        from leadline_controller.api.web_journal import PlacementJournal

        journal = PlacementJournal(self.clock.now_s, self.settings.scheduler_name)
        source = self._source(strategy_name)
        server = WebServer(settings, source, journal, self.settings.anchors)
        self._listeners.append(journal.observe)
        try:
            address = await server.start(listener)
            log.info("showing the map at %s", address)
            yield address
        finally:
            await server.stop()
            self._listeners.remove(journal.observe)

    @asynccontextmanager
    async def serving_extender(
        self, how: SchedulingProfile, cluster: Cluster
    ) -> AsyncIterator[str | None]:
        """Serve the extender during the context; yields the address, None without an extender."""
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
            extender_profile(self.settings, how),
            self.clock,
        )
        server = ExtenderServer(
            extender,
            extender_service,
            observe=self._instruments.answered
            if self._instruments
            else lambda _verb, _s, _failed: None,
        )
        self._listeners.append(extender_service.observe)
        try:
            address = await server.start()
            log.info("answering kube-scheduler at %s", address)
            yield address
        finally:
            await server.stop()
            self._listeners.remove(extender_service.observe)
            await extender_service.close()

    def listen(self, listener: Callable[[ClusterChange], None]) -> None:
        """Call it with every change of the cluster, after the state has it."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def serving_keda(self, how: SchedulingProfile) -> AsyncIterator[str | None]:
        """Serve KEDA's external scaler during the context; yields the address, None without a
        section [keda]."""
        keda = self.settings.keda
        if keda is None:
            yield None
            return
        from leadline_controller.api.keda import KedaServer
        from leadline_controller.api.request_rate import RequestRates

        rates = RequestRates(keda.requests_urls, keda.window_s, self.clock)
        service = ScalerService(self.state, self.telemetry, how, self.clock, rates.per_s)
        server = KedaServer(keda, service)
        address = await server.start()
        log.info("answering KEDA at %s", address)
        try:
            async with running(rates.run()):
                yield address
        finally:
            await server.stop()

    @asynccontextmanager
    async def serving_metrics(self, strategy_name: str) -> AsyncIterator[str | None]:
        """Serve Prometheus during the context; yields the address, None without a section
        [metrics]."""
        settings, instruments = self.settings, self._instruments
        if settings.metrics is None or instruments is None:
            yield None
            return
        from leadline_controller.api.metrics import MetricsReader, MetricsSource
        from leadline_controller.api.metrics_server import MetricsServer

        source = MetricsSource(
            self._source(strategy_name),
            instruments,
            settings.metrics,
            anchors=settings.anchors,
            link_time_share=settings.budget.link_time_share,
        )
        server = MetricsServer(settings.metrics, MetricsReader(source))
        address = await server.start()
        log.info("answering Prometheus at %s", address)
        try:
            yield address
        finally:
            await server.stop()

    def _source(
        self, strategy_name: str, options: Mapping[str, OptionValue] | None = None
    ) -> InspectionSource:
        settings = self.settings
        tls: dict[str, TlsSettings | None] = {
            "broker.tls": settings.broker_tls,
            "grpc.tls": settings.serve.tls,
        }
        if settings.extender is not None:
            tls["extender.tls"] = settings.extender.tls
        if settings.keda is not None:
            tls["keda.tls"] = settings.keda.tls
        if settings.metrics is not None:
            tls["metrics.tls"] = settings.metrics.tls
        certificates = [each for name in tls for each in certificate_files(name, tls[name])]
        if settings.web is not None and (web := settings.web.tls) is not None:
            certificates.append(CertificateFile("web.tls.cert_file", web.cert_file))
            if web.client_ca_file is not None:
                certificates.append(CertificateFile("web.tls.client_ca_file", web.client_ca_file))
        if self.login is not None:
            certificates.append(CertificateFile("kubernetes.kubeconfig", self.login))
        return InspectionSource(
            telemetry=self.telemetry,
            cluster=self.state,
            decisions=self.decisions,
            history=self.history,
            now_s=self.clock.now_s,
            version=__version__,
            cluster_name=self.settings.cluster,
            strategy=strategy_name,
            options=options or {},
            started_s=self.clock.now_s(),
            broker=lambda: self.broker(),
            api_server=self.api_server,
            queue=lambda: self.queue(),
            certificates=certificates,
            stuck=self.heartbeats.late,
            scheduler_name=self.settings.scheduler_name,
            leadership=self.leadership,
            places=self.settings.standalone,
            advises=self.settings.extender is not None,
            address_policy=AddressPolicy(self.settings.networks),
            budget=self._budget,
            sampler=self.sampler,
            rescheduler=lambda: self.rescheduler,
            registries=lambda: [] if self.image_lookup is None else self.image_lookup.readings(),
        )

    @asynccontextmanager
    async def ordering_replicas(self) -> AsyncIterator[None]:
        """Annotate the replicas of response-time services during the context, if that is set."""
        if not self.settings.deletion_cost:
            yield
            return
        order = ReplicaOrder(self.cluster, self.state, self.decisions, self.leadership, self.clock)
        self._listeners.append(order.observe)
        try:
            async with running(order.run()):
                yield
        finally:
            self._listeners.remove(order.observe)

    def _decided(self, change: Change) -> None:
        """A change of the log of decisions."""
        self.history.put(change)
        if self._instruments is not None:
            self._instruments.count(change)

    def _notify(self, change: ClusterChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _budget(self) -> BudgetReading:
        if self.probe_scheduler is None:  # it does not measure yet
            return BudgetReading()
        return self.probe_scheduler.budget(self.clock.now_s())

    def _nodes(self) -> Mapping[str, Node] | None:
        return self.state.nodes() if self.state.listed else None


@dataclass(frozen=True)
class _AfterRecovery:
    """The leadership of the scheduler: it begins when the rescheduler has read what an earlier
    leader began."""

    inner: Leadership
    rescheduler: Rescheduler

    def left_s(self) -> float:
        return self.inner.left_s()

    def leads(self) -> bool:
        return self.inner.leads() and self.rescheduler.recovered()

    def holder(self) -> str:
        return self.inner.holder()

    async def wait(self) -> None:
        await self.inner.wait()
        await self.rescheduler.wait_recovered()


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
            # First, so that an address in use ends the controller before it acts.
            controller.serving_api(how.strategy.name, values_of(how.strategy)),
            controller.serving_map(how.strategy.name),
            # Contexts end in reverse order, so the Lease is held until those below have ended.
            running(elector.run()) as electing,
            controller.probing(),
            controller.rescheduling(how),
            controller.looking_up_images(cluster),
            # kube-scheduler has an election of its own, so the extender binds without our Lease.
            controller.serving_extender(how, cluster),
            controller.serving_keda(how),
            controller.serving_metrics(how.strategy.name),
            controller.ordering_replicas(),
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


async def _logins(source: PullSource, key: str) -> Mapping[str, Credentials]:
    """The credentials of a pull secret, by registry; none while it cannot be read."""
    try:
        return read_pull_secret(await source.read_secret(key))
    except ClusterError as error:
        log.warning("pull secret %s: %s", key, error)
        return {}


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    """Run `work` beside the context, which cancels it at its end and raises what `work` raised."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

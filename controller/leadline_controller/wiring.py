"""The only file that joins rooms: settings in, a running controller out."""

import asyncio
import gc
import logging
import os
import secrets
import socket
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from leadline_controller import __version__
from leadline_controller.api.grpc import InspectionServer
from leadline_controller.api.nodes import InspectionSource
from leadline_controller.clock import LeaseClock, SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.config import Settings
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.filters import BIND_FILTERS, EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Strategy, filters_with
from leadline_controller.framework.images import ARCH_LABEL
from leadline_controller.framework.model import Node
from leadline_controller.framework.options import OptionError, build
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterChange,
    ClusterError,
    ImagePull,
    Leadership,
)
from leadline_controller.framework.queueing_hints import ClusterEvent
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
from leadline_controller.scheduling.replica_order import ReplicaOrder
from leadline_controller.scheduling.scaler_service import ScalerService
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.scheduling.service_profiles import ServiceProfiles, read_profiles
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState

log = logging.getLogger(__name__)

_COLLECT_AFTER = 20_000
_PROBE_TICK_S = 0.5
_ESTIMATE_EVERY_S = 10.0
_PROFILES_EVERY_S = 10.0
_SAMPLE_EVERY_S = 10.0  # as often as boards report


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
    telemetry: TelemetryState = field(init=False)
    sampler: Sampler = field(init=False)
    history: Recorder = field(init=False)
    probe_scheduler: ProbeScheduler | None = field(init=False, default=None)
    image_lookup: ImageLookup | None = field(init=False, default=None)
    decisions: DecisionLog = field(init=False)
    rescheduler: Rescheduler | None = field(init=False, default=None)
    suggestions: Suggestions | None = field(init=False, default=None)
    _listeners: list[Callable[[ClusterChange], None]] = field(default_factory=list)
    _requeue: Callable[[ClusterEvent], None] = field(init=False, default=lambda _: None)

    def __post_init__(self) -> None:
        budget = self.settings.budget
        has_tests = budget.link_time_share > 0 and budget.bytes_per_day > 0
        self.telemetry = TelemetryState(self.settings.ttl, is_passive=not has_tests)
        self.sampler = Sampler(self.telemetry, self.settings.anchors)
        self.history = Recorder(self.settings.decisions)
        self.decisions = DecisionLog(sink=self.history.put)

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
        )
        self._requeue = scheduler.requeue
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
        session.start()
        try:
            ticking = self._tick(probe_scheduler, session.is_running, session.request_retained)
            async with running(ticking), running(self._estimate()), running(self._sample()):
                yield
        finally:
            await asyncio.to_thread(session.stop)

    @asynccontextmanager
    async def looking_up_images(self, pulls: PullSource) -> AsyncIterator[None]:
        """Follow the boards' pulls, and ask registries for layers, during the context."""
        from leadline_controller.registry.client import RegistryClient

        settings = self.settings.images
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(self._follow_pulls(pulls)))
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

    async def _follow_pulls(self, pulls: PullSource) -> None:
        """What a board just pulled, its link can do, too. An error must not end the controller."""
        last = ""
        async with aclosing(pulls.watch_pulls()) as reported:
            async for pull in reported:
                try:
                    mbps = self.state.images.observe(pull)
                    if mbps is not None:
                        self.telemetry.pulled(pull.node, mbps, self.clock.now_s())
                except Exception as error:  # noqa: BLE001  # the next pull may be better
                    if repr(error) != last:
                        last = repr(error)
                        log.error("a pull on node %s is not counted: %s", pull.node, last)

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
    async def serving_api(self, strategy_name: str) -> AsyncIterator[str]:
        """Serve the gRPC API during the context; yields the address."""
        server = InspectionServer(self.settings.serve, self._source(strategy_name))
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

    def _source(self, strategy_name: str) -> InspectionSource:
        return InspectionSource(
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
            budget=self._budget,
            sampler=self.sampler,
            rescheduler=lambda: self.rescheduler,
            registries=lambda: [] if self.image_lookup is None else self.image_lookup.readings(),
        )

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

    async def following_profiles(self, profiles: ServiceProfiles) -> None:
        """Use the file of profiles, and use it again when it changes, until cancelled. A file that
        can't be used leaves those before it in force."""
        path, last, problem = self.settings.profiles, None, ""
        while path is not None:
            try:
                stat = await asyncio.to_thread(path.stat)
                if last != (last := (stat.st_mtime_ns, stat.st_size, stat.st_ino)):
                    profiles.use(await asyncio.to_thread(read_profiles, path))
                    log.info("%s: profiles of services read", path)
                problem = ""
            except FileNotFoundError:
                if last is not None:
                    last = None
                    profiles.use(())
            except (FieldError, OSError) as error:
                if problem != (problem := str(error)):
                    log.warning("%s: %s; the profiles before it stay in force", path, problem)
            await self.clock.sleep(_PROFILES_EVERY_S)

    def _notify(self, change: ClusterChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _budget(self) -> BudgetReading:
        if self.probe_scheduler is None:  # it does not measure yet
            return BudgetReading()
        return self.probe_scheduler.budget(self.clock.now_s())

    def _nodes(self) -> Mapping[str, Node] | None:
        return self.state.nodes() if self.state.listed else None

    async def _tick(
        self,
        probe_scheduler: ProbeScheduler,
        hears: Callable[[], bool] = lambda: True,
        fetch: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """Tell the telemetry which nodes exist, and send what is due while this controller leads.
        An error must not end the measuring."""
        led, logged = self.leadership is SOLE_LEADER, ""
        beat = self.heartbeats.part("measuring")
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
            except Exception as error:  # noqa: BLE001  # any error is logged once
                if repr(error) != logged:
                    logged = repr(error)
                    log.error("probing the network failed, trying again: %s", logged)
            await self.clock.sleep(_PROBE_TICK_S)

    async def _estimate(self) -> None:
        """Estimate the round trips that are not measured, on a thread, at intervals that keep it to
        a twentieth of a core. An error must not end it."""
        last = ""
        while True:
            start_s = self.clock.now_s()
            try:
                await asyncio.to_thread(self.telemetry.estimate_rtts, start_s)
            except Exception as error:  # noqa: BLE001  # measured values still count
                if repr(error) != last:
                    last = repr(error)
                    log.error("estimating round trips failed, trying again: %s", last)
            took_s = self.clock.now_s() - start_s
            await self.clock.sleep(max(_ESTIMATE_EVERY_S, 20 * took_s))

    async def _sample(self) -> None:
        """Keep the history of what is measured, and have it written while this controller leads; a
        standby has the last minutes in memory. An error must not end it."""
        last = ""
        try:
            while True:
                now = self.decisions.now()
                unix_s = now.unix_s(now)
                try:
                    if unix_s is not None:  # a clock that was never set dates nothing
                        now_s = self.clock.now_s()
                        blocks = await asyncio.to_thread(self.sampler.sample, now_s, unix_s)
                        if self.leadership.leads():
                            self.history.put_series(blocks)
                except Exception as error:  # noqa: BLE001  # any error is logged once
                    if repr(error) != last:
                        last = repr(error)
                        log.error("keeping the history failed, trying again: %s", last)
                await self.clock.sleep(_SAMPLE_EVERY_S)
        finally:
            if self.leadership.leads():
                self.history.put_series(self.sampler.last())


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
        controller = Controller(settings, cluster.fenced(elector), elector, heartbeats=heartbeats)
        async with (
            controller.storing_decisions(),
            # First, so that an address in use ends the controller before it acts.
            controller.serving_api(how.strategy.name),
            controller.serving_map(how.strategy.name),
            # Contexts end in reverse order, so the Lease is held until those below have ended.
            running(elector.run()) as electing,
            controller.probing(),
            controller.rescheduling(how),
            controller.looking_up_images(cluster),
            # kube-scheduler has an election of its own, so the extender binds without our Lease.
            controller.serving_extender(how, cluster),
            controller.serving_keda(how),
            controller.ordering_replicas(),
            running(controller.following_profiles(how.profiles)),
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

"""The parts of a controller and the loops between them: what it measures, knows and decides."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from leadline_controller import loops
from leadline_controller.api.settings import Unserved
from leadline_controller.api.state_publisher import StatePublisher
from leadline_controller.clock import SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.config import Settings
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.record import Change
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.images import ARCH_LABEL
from leadline_controller.framework.model import Node
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
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.notify import Heartbeats
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
from leadline_controller.scheduling.queue import QueueReading
from leadline_controller.scheduling.replica_order import ReplicaOrder
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import BrokerReading, BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState

if TYPE_CHECKING:
    from leadline_controller.api.instruments import Instruments

log = logging.getLogger(__name__)


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
    state, and decisions. Each of its contexts runs one room on them. instruments: None without a
    section [metrics]. unserved: the servers that wait for their addresses, by section."""

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
    instruments: "Instruments | None" = field(init=False, default=None)
    unserved: dict[str, Unserved] = field(init=False, default_factory=dict)
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

            self.instruments = Instruments()

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
            self.instruments.scheduled if self.instruments else lambda _phase, _s: None,
            self.instruments.preempted if self.instruments else lambda _victims: None,
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
                how.strategy, how.filters, how.scheduler_name, how.profiles.applied, how.prefer
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
        self.rescheduler = rescheduler
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.listening(rescheduler.observe, resized.observe))
            for each in work:
                await stack.enter_async_context(running(each))
            yield

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
            lambda: session.is_prompt(),
            self.state.nodes_of_rows,
        )
        self.probe_scheduler = probe_scheduler
        ingestor = TelemetryIngestor(settings.cluster, self.telemetry, probe_scheduler)
        publisher = None
        if settings.publish is not None:
            publisher = StatePublisher(
                settings.publish,
                settings.cluster,
                self.state,
                self.telemetry,
                lambda *message: session.keep(*message),
                Random(),  # noqa: S311  # spreads load, no secret
            )
        session: BrokerSession = BrokerSession(
            BrokerSettings(
                host=settings.broker_host,
                port=settings.broker_port,
                cluster=settings.cluster,
                # Random, because a client with the same id could take this session over.
                client_id=f"leadline-controller-{socket.gethostname()}-{secrets.token_hex(8)}",
                tls=settings.broker_tls,
            ),
            ingestor,
            companion=publisher,
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
            publishing: AbstractAsyncContextManager[object] = nullcontext()
            if publisher is not None:
                publishing = running(
                    loops.publish(publisher, session.is_connected, self.leadership, self.clock)
                )
            async with running(measuring), running(estimating), running(sampling), publishing:
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
    async def ordering_replicas(self) -> AsyncIterator[None]:
        """Annotate the replicas of response-time services during the context, if that is set."""
        if not self.settings.deletion_cost:
            yield
            return
        order = ReplicaOrder(self.cluster, self.state, self.decisions, self.leadership, self.clock)
        async with self.listening(order.observe), running(order.run()):
            yield

    @asynccontextmanager
    async def listening(self, *listeners: Callable[[ClusterChange], None]) -> AsyncIterator[None]:
        """Call these with every change of the cluster during the context, after the state has
        it."""
        self._listeners.extend(listeners)
        try:
            yield
        finally:
            for each in listeners:
                self._listeners.remove(each)

    def budget(self) -> BudgetReading:
        """What tests and pings may cost and have cost; empty while this controller does not
        measure."""
        if self.probe_scheduler is None:
            return BudgetReading()
        return self.probe_scheduler.budget(self.clock.now_s())

    def _decided(self, change: Change) -> None:
        """A change of the log of decisions."""
        self.history.put(change)
        if self.instruments is not None:
            self.instruments.count(change)

    def _notify(self, change: ClusterChange) -> None:
        for listener in self._listeners:
            listener(change)

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

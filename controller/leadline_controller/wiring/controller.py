"""The parts of a controller: what it measures, knows and decides, and the work that they do."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from leadline_controller import loops, preferences
from leadline_controller.clock import SystemClock
from leadline_controller.cluster.known_layers import Layers
from leadline_controller.cluster.pod_usage import usage_by_workload
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import Node
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterChange,
    Leadership,
    PodUsage,
    UsageSource,
)
from leadline_controller.framework.traffic import Traffic
from leadline_controller.history import times
from leadline_controller.history.log import DecisionLog
from leadline_controller.history.record import Change, DecisionRecord
from leadline_controller.history.recorded import Counted, Decided, Learnt, Pulled, Recorded, Used
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.times import Moment
from leadline_controller.homeassistant.publisher import StatePublisher
from leadline_controller.inspect.status import Diagnosis
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.notifications.loop import Notifications
from leadline_controller.notifications.receivers import Receiver
from leadline_controller.notify import Heartbeats
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.rescheduling.rescheduler import Rescheduler
from leadline_controller.rescheduling.resized import ResizedPods
from leadline_controller.rescheduling.suggestions import Suggestions
from leadline_controller.scheduling.batches import NoMoves
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.queue import SchedulingQueue
from leadline_controller.scheduling.replica_order import ReplicaOrder
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.scheduling.shadow import Shadow
from leadline_controller.serve.certificates import CertificateFile, certificate_files
from leadline_controller.serve.settings import Unserved
from leadline_controller.settings import Settings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState
from leadline_controller.traffic.graph import TrafficGraph
from leadline_controller.wiring.images import PullSource, image_lookup
from leadline_controller.wiring.recording import recording
from leadline_controller.wiring.rules import scheduling_rule, strategy
from leadline_controller.wiring.work import Work, together

if TYPE_CHECKING:
    from leadline_controller.metrics.instruments import Instruments

log = logging.getLogger(__name__)


class Controller:
    """The parts of one controller. All are made here; none does anything before its work runs.

    rule: of the settings, if None. leadership: what fences `cluster`; `unfenced` is the same
    cluster without the fence. pulls: None where no kubelets are. usage: None where no pods run.
    api_server, login: of the cluster, where it is a Kubernetes one. now: dates decisions.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        rule: Rule | None = None,
        *,
        leadership: Leadership = SOLE_LEADER,
        clock: Clock | None = None,
        heartbeats: Heartbeats | None = None,
        unfenced: Cluster | None = None,
        pulls: PullSource | None = None,
        usage: UsageSource | None = None,
        api_server: ReachabilityLog | None = None,
        login: Path | None = None,
        now: Callable[[], Moment] = times.now,
    ) -> None:
        self.settings, self.cluster, self.leadership = settings, cluster, leadership
        self.unfenced = unfenced or cluster
        self.rule = rule or scheduling_rule(settings)
        self.clock = clock or SystemClock()
        self.started_s = self.clock.now_s()
        self.heartbeats, self.api_server = heartbeats or Heartbeats(time.monotonic), api_server
        self.cluster_name, self.scheduler_name = settings.cluster, settings.scheduler_name
        self.advises, self.keeps_strategy = settings.extender is not None, not settings.strategy
        self.address_policy = AddressPolicy(settings.networks)
        self.certificates: Sequence[CertificateFile] = list(_certificates(settings, login))
        self.unserved: dict[str, Unserved] = {}
        self.instruments = None if settings.metrics is None else _instruments()

        budget = settings.budget
        has_tests = budget.link_time_share > 0 and budget.bytes_per_day > 0
        offset_s = partial(_unix_offset_s, now, self.clock)
        self.state = ClusterState(
            assumes_load=settings.assumed_load,
            unix_offset_s=offset_s,
            now_s=self.clock.now_s,
        )
        self.telemetry = TelemetryState(settings.ttl, is_passive=not has_tests)
        self.sampler = Sampler(self.telemetry, settings.anchors)
        self.traffic_graph = TrafficGraph(self.telemetry.traffic, offset_s, self.state.has_maker)
        self.history = Recorder(settings.decisions, now)
        # Drawn without one, and recorded, so that recorded decisions can be made again.
        self.seed = secrets.randbits(32) if settings.seed is None else settings.seed
        self.rule = replace(self.rule, seed=self.seed)
        self.decisions = DecisionLog(sink=self._decided, now=now)
        self.recording = recording(
            *(settings, self.rule, self.state, self.telemetry, self.clock, leadership, now),
            self.seed,
        )
        self.shadow = self._shadow(now)
        self.step = self.step_by(self.rule)

        queue, name = SchedulingQueue(), settings.scheduler_name
        self.rescheduler = Rescheduler(
            cluster,
            self.step,
            settings.rescheduling,
            leadership,
            lambda events: queue.requeue(events, self.clock.now_s()),
            self.history.about,
            name,
        )
        self.resized = ResizedPods(cluster, self.rescheduler, self.step, leadership, name)
        self.suggestions: Suggestions | None = None
        if isinstance(self.rule.strategy, BatchStrategy):
            self.suggestions = Suggestions(self.rescheduler, self.step, leadership)
        # Before it knows which moves have begun, a replacement would be like any new pod.
        recovered = _AfterRecovery(leadership, self.rescheduler)
        self.replica_order = ReplicaOrder(
            cluster, self.step, recovered, thresholds=settings.deletion_cost
        )
        # Called with every change of the cluster, after the state has it.
        self.listeners: list[Callable[[ClusterChange], None]] = [
            each.observe
            for each in (self.rescheduler, self.resized, self.replica_order, self.recording)
            if each is not None
        ]
        self.scheduler: Scheduler | None = None
        if settings.standalone:
            told = self.instruments
            self.scheduler = Scheduler(
                cluster,
                self.step,
                recovered,
                self.notify,
                self.suggestions or NoMoves(),
                queue,
                scheduler_name=name,
                batch_window_s=settings.batch_window_s,
                preemption=settings.preemption,
                observe=told.scheduled if told else lambda _phase, _s: None,
                on_preempted=told.preempted if told else lambda _victims: None,
            )

        self.probe_scheduler = ProbeScheduler(
            self.telemetry,
            lambda lease: self.session.send(lease),
            ProbeSettings(
                settings.limits,
                budget,
                settings.uplinks,
                anchors=settings.anchors,
                address_policy=self.address_policy,
            ),
            self.nodes,
            self.state.bandwidth_requested_mbps,
            lambda: self.session.is_prompt(),
            self.state.nodes_of_rows,
        )
        self.publisher: StatePublisher | None = None
        if settings.publish is not None:
            self.publisher = StatePublisher(
                settings.publish,
                settings.cluster,
                self.state,
                self.telemetry,
                lambda *message: self.session.retain(*message),
                Random(),  # noqa: S311  # spreads load, no secret
            )
        self.session: BrokerSession = BrokerSession(
            BrokerSettings(
                host=settings.broker_host,
                port=settings.broker_port,
                cluster=settings.cluster,
                # Random, because a client with the same id could take this session over.
                client_id=f"leadline-controller-{socket.gethostname()}-{secrets.token_hex(8)}",
                tls=settings.broker_tls,
            ),
            TelemetryIngestor(settings.cluster, self.telemetry, self.probe_scheduler),
            handler=self.publisher,
        )

        self.notifications = self._notifications()
        self.delivery = self.notifications.delivery if self.notifications else None

        asks_usage = settings.metrics_api and settings.assumed_load
        self.usage = usage if asks_usage else None
        self.pulls = pulls
        self.image_lookup, self._registry = image_lookup(
            *(settings.images, pulls, self.state, self._learn, self.clock.now_s)
        )

    def step_by(self, rule: Rule) -> DecisionStep:
        """What decides by a rule from the states of this controller."""
        warm_up_s = self.settings.warm_up_s
        parts = self.state, self.telemetry, self.decisions
        put = self.shadow.put if self.shadow is not None else lambda _: None
        return DecisionStep(*parts, rule, self.clock, warm_up_s, put)

    def notify(self, change: ClusterChange) -> None:
        """The state has this change."""
        for listener in self.listeners:
            listener(change)

    def placing(self) -> list[Work]:
        """Follow the cluster, place its pods and move them while this controller leads."""
        work: list[Work] = [self.follow() if self.scheduler is None else self.scheduler.run()]
        work += [self.rescheduler.run(), self.resized.run(), self.replica_order.run()]
        if self.suggestions is not None and self.settings.suggest_interval_s > 0:
            work.append(self.suggestions.run(self.settings.suggest_interval_s))
        return work

    def work(self) -> list[Work]:
        """All that this controller does but to record and to answer."""
        return [
            *self.placing(),
            self.measure(),
            self.look_up_images(),
            *([] if self.usage is None else [self.follow_usage(self.usage)]),
            *([self.notifications.run(Diagnosis(self).status)] if self.notifications else []),
            loops.warn_about_nodes(self.unfenced, self.state.nodes, self.leadership, self.clock),
            loops.follow_profiles(
                self.state, self.settings.profiles, self.clock, self._profiles_changed
            ),
            loops.learn_use(self.state, self.telemetry, self.clock),
            loops.follow_traffic(
                *(self.traffic_graph, self.state, self.history, self._use_traffic),
                *(self.leadership, self.clock),
            ),
        ]

    async def follow(self) -> None:
        """Keep the cluster's state current without placing pods, until cancelled."""
        async with aclosing(self.cluster.watch()) as changes:
            async for change in changes:
                self.state.apply(change)
                self.notify(change)
                self.decisions.observe(change)

    async def measure(self) -> None:
        """Ingest reports, and send leases while this controller leads, until cancelled."""
        session = self.session
        measuring = loops.measure(
            self.probe_scheduler,
            self.telemetry,
            self.nodes,
            self.leadership,
            self.clock,
            self.heartbeats.part("measuring"),
            session.is_running,
            session.request_retained,
            session.check,
        )
        work = [
            measuring,
            loops.sample(self.sampler, self.history, self.decisions, self.leadership, self.clock),
            loops.estimate(self.telemetry, self.clock),
        ]
        if self.publisher is not None:
            work.append(
                loops.publish(self.publisher, session.is_connected, self.leadership, self.clock)
            )
        session.start()
        try:
            await together(*work)
        finally:
            await asyncio.to_thread(session.stop)

    async def look_up_images(self) -> None:
        """Follow the boards' pulls, and ask registries for layers, until cancelled."""
        if self.pulls is None:
            return
        pulls = self.pulls.watch_pulls()
        work = [
            loops.follow_pulls(
                *(pulls, self.state.images, self.telemetry, self.clock),
                lambda pull: self._record(Pulled(pull)),
            )
        ]
        if self.image_lookup is not None:
            work.append(self.image_lookup.run())
        async with self._registry:
            await together(*work)

    async def follow_usage(self, source: UsageSource) -> None:
        """Expect of pods what those of the same workload use, until cancelled."""

        def use(found: Sequence[PodUsage]) -> None:
            pods = (pod for pod, _ in self.state.pods())
            usage = usage_by_workload(found, pods)
            self._record(Used(usage))
            self.state.recent.use_usage(usage)

        await loops.follow_usage(source, lambda: self.state.listed, use, self.clock)

    @asynccontextmanager
    async def storing_decisions(self) -> AsyncIterator[None]:
        """Record decisions during the context, also those of shadows, after loading those of
        earlier runs."""
        self.history.start()
        if self.recording is not None:
            self.recording.start()
        try:
            self.decisions.restore(await self.history.restored())
            if self.shadow is not None:
                self.shadow.start()
            yield
        finally:
            if self.shadow is not None:
                await asyncio.to_thread(self.shadow.stop)
            if self.recording is not None:
                await self.recording.stop()
            await self.history.stop()

    def _shadow(self, now: Callable[[], Moment]) -> Shadow | None:
        settings = self.settings.shadow
        if not settings.strategies:
            return None
        real = self.rule
        if isinstance(self.settings.preferences, float):  # in the unit of the real one's total
            real = replace(real, prefer=preferences.rule("on"))
        given: Any = settings.options
        strategies = [strategy(name, given.get(name, {})) for name in settings.strategies]
        return Shadow(strategies, real, self.history.put_shadows, now, settings.share)

    def _notifications(self) -> Notifications | None:
        settings = self.settings.notify
        if settings.url is None:
            return None
        return Notifications(
            settings,
            self.cluster_name,
            Receiver(settings, settings.url),
            self.cluster,
            self.leadership,
            self.clock,
            self.rescheduler.now_unix_s,
        )

    def _record(self, what: Recorded, at_s: float | None = None) -> None:
        if self.recording is not None:
            self.recording.put(what, at_s)

    def _learn(self, image: str, digest: str, layers: Mapping[str, Layers]) -> set[str]:
        self._record(Learnt(image, digest, layers))
        return self.state.images.learn(image, digest, layers)

    def _use_traffic(self, traffic: Traffic) -> None:
        self._record(Counted(traffic.peers, traffic.entries, traffic.flowing_mbps))
        self.state.use_traffic(traffic)

    def _profiles_changed(self) -> None:
        if self.recording is not None and self.state.listed:
            self.recording.show_all()

    def _decided(self, change: Change) -> None:
        """A change of the log of decisions."""
        self.history.put(change)
        if isinstance(change, DecisionRecord):
            self._record(Decided(change.uid, change.pod, change.node), change.decided_s)
        if self.instruments is not None:
            self.instruments.count(change)

    def nodes(self) -> Mapping[str, Node] | None:
        """Every node by its name; None while they are not listed."""
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


def _unix_offset_s(now: Callable[[], Moment], clock: Clock) -> float | None:
    """From the clock to the wall clock; None while that is not set."""
    moment = now()
    unix_s = moment.unix_s(moment)
    return None if unix_s is None else unix_s - clock.now_s()


def _certificates(settings: Settings, login: Path | None) -> Iterator[CertificateFile]:
    """The certificates whose end is watched. login: the client's of the kubeconfig."""
    yield from certificate_files("broker.tls", settings.broker_tls)
    sections = {
        "grpc": settings.serve,
        "extender": settings.extender,
        "keda": settings.keda,
        "metrics": settings.metrics,
    }
    for name, section in sections.items():
        if section is not None:
            yield from certificate_files(f"{name}.tls", section.tls)
    if settings.web is not None and (tls := settings.web.tls) is not None:
        yield CertificateFile("web.tls.cert_file", tls.cert_file)
        if tls.client_ca_file is not None:
            yield CertificateFile("web.tls.client_ca_file", tls.client_ca_file)
    if settings.issuing is not None:
        yield CertificateFile("issuing.authority_cert_file", settings.issuing.authority_cert_file)
    if login is not None:
        yield CertificateFile("kubernetes.kubeconfig", login)


def _instruments() -> "Instruments":
    """What counts for Prometheus. It takes memory, so only who is asked for metrics imports it."""
    from leadline_controller.metrics.instruments import Instruments

    return Instruments()

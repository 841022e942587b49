"""The loops of a controller that carry what one room knows to another, again and again.

An error must not end a loop, because the next turn may succeed: it is logged once.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from leadline_controller.cluster.node_images import ImageState
from leadline_controller.cluster.service_profiles import ServiceProfiles, read_profiles
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Node
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterError,
    Event,
    ImagePull,
    InvalidError,
    Leadership,
    PodUsage,
    UsageSource,
)
from leadline_controller.framework.traffic import Traffic
from leadline_controller.history.log import DecisionLog
from leadline_controller.history.recorder import Recorder
from leadline_controller.homeassistant.publisher import StatePublisher
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.fields import FieldError
from leadline_controller.probing.scheduler import ProbeScheduler
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.state import TelemetryState
from leadline_controller.traffic.graph import TrafficGraph

log = logging.getLogger(__name__)

_PROBE_TICK_S = 0.5
_ESTIMATE_EVERY_S = 10.0
_PROFILES_EVERY_S = 10.0
_PUBLISH_TICK_S = 1.0
_LEARN_EVERY_S = 1.0
_SAMPLE_EVERY_S = 10.0  # as often as boards report
_WARN_EVERY_S = 10.0
_TRAFFIC_EVERY_S, _USE_TRAFFIC_EVERY_S, _STORE_TRAFFIC_EVERY_S = 10.0, 60.0, 600.0
_USAGE_EVERY_S, _USAGE_RAREST_S = 60.0, 900.0
_WARN_GAP_S = 0.2  # a label misspelt on every node is not a storm of writes


async def measure(
    probe_scheduler: ProbeScheduler,
    telemetry: TelemetryState,
    nodes: Callable[[], Mapping[str, Node] | None],
    leadership: Leadership,
    clock: Clock,
    heartbeat: Callable[[], None],
    session_runs: Callable[[], bool] = lambda: True,
    fetch: Callable[[Sequence[str]], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Tell the telemetry which nodes exist, and send what is due while this controller leads,
    until cancelled. nodes: None while they are not listed. heartbeat: reports that this loop runs.
    session_runs: whether the broker's session does, without which there is no heartbeat. fetch:
    takes the nodes whose retained messages are needed. check: asks whether the broker answers."""
    led, errors = leadership is SOLE_LEADER, ErrorLog(log)
    while True:
        if session_runs():
            heartbeat()
        leads, now_s = leadership.leads(), clock.now_s()
        with errors.logged("probing the network failed, trying again: %s"):
            check()
            found = nodes()
            fetch(telemetry.set_members(None if found is None else found.keys(), now_s))
            if leads and not led:
                probe_scheduler.on_started_leading(now_s)
            led = leads
            if leads:
                probe_scheduler.tick(now_s)
            else:
                probe_scheduler.tick_as_standby(now_s)
        await clock.sleep(_PROBE_TICK_S)


async def estimate(telemetry: TelemetryState, clock: Clock) -> None:
    """Estimate the round trips that are not measured, on a thread, at intervals that keep it to a
    twentieth of a core, until cancelled."""

    def estimate_once(now_s: float) -> None:
        found = telemetry.estimate_rtts(now_s)
        _ = found and found.nearest_measured  # here, because the event loop has no time for it

    errors = ErrorLog(log)
    while True:
        start_s = clock.now_s()
        with errors.logged("estimating round trips failed, trying again: %s"):
            await asyncio.to_thread(estimate_once, start_s)
        took_s = clock.now_s() - start_s
        await clock.sleep(max(_ESTIMATE_EVERY_S, 20 * took_s))


async def sample(
    sampler: Sampler,
    history: Recorder,
    decisions: DecisionLog,
    leadership: Leadership,
    clock: Clock,
) -> None:
    """Keep the history of what is measured, and have it written while this controller leads, until
    cancelled; a standby has the last minutes in memory."""
    errors = ErrorLog(log)
    try:
        while True:
            now = decisions.now()
            unix_s = now.unix_s(now)
            with errors.logged("keeping the history failed, trying again: %s"):
                if unix_s is not None:  # a clock that was never set dates nothing
                    blocks = await asyncio.to_thread(sampler.sample, clock.now_s(), unix_s)
                    if leadership.leads():
                        history.put_series(blocks)
            await clock.sleep(_SAMPLE_EVERY_S)
    finally:
        if leadership.leads():
            history.put_series(sampler.last())


async def learn_use(state: ClusterState, telemetry: TelemetryState, clock: Clock) -> None:
    """Show the boards' reports to the cluster's state, which learns from them what pods use, until
    cancelled. A decision that comes between does the same."""
    errors = ErrorLog(log)
    while True:
        with errors.logged("learning what pods use failed, trying again: %s"):
            state.look(telemetry, clock.now_s())
        # At whole seconds, so that a replay of what was recorded looks at the same times.
        await clock.sleep(_LEARN_EVERY_S - clock.now_s() % _LEARN_EVERY_S)


async def follow_traffic(
    graph: TrafficGraph,
    state: ClusterState,
    history: Recorder,
    use: Callable[[Traffic], None],
    leadership: Leadership,
    clock: Clock,
) -> None:
    """Join the boards' counts of connections with the cluster, on a thread, at intervals that keep
    it to a twentieth of a core, until cancelled. use: takes what decisions read, each minute. Where
    no board counts, nothing is done. What is known is stored, rarely, as that wears SD cards, and
    read again at the start."""
    errors = ErrorLog(log)
    try:
        if document := await history.traffic():
            graph.load(document, clock.now_s())
    except ValueError as error:
        log.warning("who talks to whom is not known from before: %s", error)
    used_s, stored_s, stored = -math.inf, clock.now_s(), graph.reports
    try:
        while True:
            start_s = clock.now_s()
            with errors.logged("joining the boards' traffic failed, trying again: %s"):
                if state.listed and not graph.is_idle():
                    pods, nodes = [pod for pod, _ in state.pods()], dict(state.nodes())
                    await asyncio.to_thread(graph.update, pods, nodes, start_s)
                    if start_s - used_s >= _USE_TRAFFIC_EVERY_S:
                        used_s = start_s
                        use(graph.traffic(start_s))
                    is_due = start_s - stored_s >= _STORE_TRAFFIC_EVERY_S
                    if is_due and graph.reports > stored and leadership.leads():
                        stored_s, stored = start_s, graph.reports
                        history.put_traffic(await asyncio.to_thread(graph.document, start_s))
            await clock.sleep(max(_TRAFFIC_EVERY_S, 20 * (clock.now_s() - start_s)))
    finally:
        if graph.reports > stored and leadership.leads():
            history.put_traffic(graph.document(clock.now_s()))


async def publish(
    publisher: StatePublisher,
    is_connected: Callable[[], bool],
    leadership: Leadership,
    clock: Clock,
) -> None:
    """Publish the boards' states while this controller leads, until cancelled."""
    errors = ErrorLog(log)
    try:
        while True:
            with errors.logged("publishing states failed, trying again: %s"):
                publisher.tick(clock.now_s(), acts=leadership.leads() and is_connected())
            await clock.sleep(_PUBLISH_TICK_S)
    finally:
        publisher.stop()


async def warn_about_nodes(
    cluster: Cluster,
    nodes: Callable[[], Mapping[str, Node]],
    leadership: Leadership,
    clock: Clock,
) -> None:
    """Write an event on each node for what its manifest says to Leadline in vain, while this
    controller leads, until cancelled."""
    told, errors = set[tuple[str, str]](), ErrorLog(log, logging.WARNING)
    while True:
        said = [(node, each) for node in nodes().values() for each in node.warnings]
        told.intersection_update({(node.name, each) for node, each in said})
        for node, warning in said:
            now = nodes().get(node.name)
            if (node.name, warning) in told or now is None or warning not in now.warnings:
                continue
            if not leadership.leads():
                continue
            try:
                event = Event("Warning", "UnknownAnnotation", warning, once=True)
                await cluster.record_event(node, event)
                errors.succeeded()
            except InvalidError as error:  # of this node alone, and again at the next try
                errors.failed(str(error), "event on node %s: %s", node.name)
            except Exception as error:  # noqa: BLE001  # any error is logged once
                why = str(error) if isinstance(error, ClusterError) else repr(error)
                errors.failed(why, "events on nodes: %s; trying again")
                break
            told.add((node.name, warning))
            await clock.sleep(_WARN_GAP_S)
        await clock.sleep(_WARN_EVERY_S)


async def follow_pulls(
    pulls: AsyncGenerator[ImagePull, None],
    images: ImageState,
    telemetry: TelemetryState,
    clock: Clock,
    tell: Callable[[ImagePull], None] = lambda _: None,
) -> None:
    """What a board just pulled, its link can do, too. tell: is told of each pull."""
    errors = ErrorLog(log)
    async with aclosing(pulls) as reported:
        async for pull in reported:
            with errors.logged("a pull on node %s is not counted: %s", pull.node):
                tell(pull)
                mbps = images.observe(pull)
                if mbps is not None:
                    telemetry.pulled(pull.node, mbps, clock.now_s())


async def follow_usage(
    source: UsageSource,
    is_listed: Callable[[], bool],
    use: Callable[[Sequence[PodUsage]], None],
    clock: Clock,
) -> None:
    """Ask the metrics API each minute what pods use, until cancelled. Nothing needs it: where it
    does not answer, the log says so once, it is asked ever more rarely, and what it said last is
    forgotten at the second time. is_listed: whether the pods are known."""
    while not is_listed():
        await clock.sleep(1.0)
    failures = 0  # in a row
    while True:
        try:
            use(await source.pod_usage())
            failures = 0
        except Exception as error:  # noqa: BLE001  # pods are placed without it too
            failures += 1
            if failures == 1:
                why = str(error) if isinstance(error, ClusterError) else repr(error)
                log.info("no metrics API tells what pods use, so their requests count: %s", why)
            elif failures == 2:
                use(())
        await clock.sleep(min(_USAGE_EVERY_S * 2 ** min(failures, 4), _USAGE_RAREST_S))


async def follow_profiles(
    state: ClusterState,
    path: Path | None,
    clock: Clock,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Use the file of profiles, and use it again when it changes, until cancelled. A file that
    can't be used leaves those before it in force. tell: is called when the pods have others."""
    last, errors = None, ErrorLog(log, logging.WARNING)
    while path is not None:
        try:
            stat = await asyncio.to_thread(path.stat)
            if last != (last := (stat.st_mtime_ns, stat.st_size, stat.st_ino)):
                state.use_profiles(ServiceProfiles(await asyncio.to_thread(read_profiles, path)))
                tell()
                log.info("%s: profiles of services read", path)
            errors.succeeded()
        except FileNotFoundError:
            if last is not None:
                last = None
                state.use_profiles(ServiceProfiles())
                tell()
        except (FieldError, OSError) as error:
            errors.failed(str(error), "%s: %s; the profiles before it stay in force", path)
        await clock.sleep(_PROFILES_EVERY_S)

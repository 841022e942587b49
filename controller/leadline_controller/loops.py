"""The loops of a controller that carry what one room knows to another, again and again.

An error must not end a loop, because the next turn may succeed: it is logged once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from leadline_controller.api.state_publisher import StatePublisher
from leadline_controller.cluster.images import ImageState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.framework.model import Node
from leadline_controller.framework.ports import (
    Clock,
    Cluster,
    ClusterError,
    Event,
    ImagePull,
    InvalidError,
    Leadership,
)
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.fields import FieldError
from leadline_controller.probing.scheduler import ProbeScheduler
from leadline_controller.scheduling.service_profiles import ServiceProfiles, read_profiles
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.state import TelemetryState

log = logging.getLogger(__name__)

_PROBE_TICK_S = 0.5
_ESTIMATE_EVERY_S = 10.0
_PROFILES_EVERY_S = 10.0
_PUBLISH_TICK_S = 1.0
_SAMPLE_EVERY_S = 10.0  # as often as boards report
_WARN_EVERY_S = 10.0
_WARN_GAP_S = 0.2  # a label misspelt on every node is not a storm of writes


async def measure(
    probe_scheduler: ProbeScheduler,
    telemetry: TelemetryState,
    nodes: Callable[[], Mapping[str, Node] | None],
    leadership: Leadership,
    clock: Clock,
    beat: Callable[[], None],
    hears: Callable[[], bool] = lambda: True,
    fetch: Callable[[Sequence[str]], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Tell the telemetry which nodes exist, and send what is due while this controller leads,
    until cancelled. nodes: None while they are not listed. beat: reports a heartbeat of this
    loop. hears: whether the broker's session runs, without which there is none. fetch: takes the
    nodes whose retained messages are needed. check: asks whether the broker answers."""
    led, errors = leadership is SOLE_LEADER, ErrorLog(log)
    while True:
        if hears():
            beat()
        leads, now_s = leadership.leads(), clock.now_s()
        try:
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
            errors.succeeded()
        except Exception as error:  # noqa: BLE001  # any error is logged once
            errors.failed(error, "probing the network failed, trying again: %s")
        await clock.sleep(_PROBE_TICK_S)


async def estimate(telemetry: TelemetryState, clock: Clock) -> None:
    """Estimate the round trips that are not measured, on a thread, at intervals that keep it to a
    twentieth of a core, until cancelled."""
    errors = ErrorLog(log)
    while True:
        start_s = clock.now_s()
        try:
            await asyncio.to_thread(telemetry.estimate_rtts, start_s)
            errors.succeeded()
        except Exception as error:  # noqa: BLE001  # measured values still count
            errors.failed(error, "estimating round trips failed, trying again: %s")
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
            try:
                if unix_s is not None:  # a clock that was never set dates nothing
                    blocks = await asyncio.to_thread(sampler.sample, clock.now_s(), unix_s)
                    if leadership.leads():
                        history.put_series(blocks)
                errors.succeeded()
            except Exception as error:  # noqa: BLE001  # any error is logged once
                errors.failed(error, "keeping the history failed, trying again: %s")
            await clock.sleep(_SAMPLE_EVERY_S)
    finally:
        if leadership.leads():
            history.put_series(sampler.last())


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
            try:
                publisher.tick(clock.now_s(), acts=leadership.leads() and is_connected())
                errors.succeeded()
            except Exception as error:  # noqa: BLE001  # any error is logged once
                errors.failed(error, "publishing states failed, trying again: %s")
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
) -> None:
    """What a board just pulled, its link can do, too."""
    errors = ErrorLog(log)
    async with aclosing(pulls) as reported:
        async for pull in reported:
            try:
                mbps = images.observe(pull)
                if mbps is not None:
                    telemetry.pulled(pull.node, mbps, clock.now_s())
                errors.succeeded()
            except Exception as error:  # noqa: BLE001  # the next pull may be better
                errors.failed(error, "a pull on node %s is not counted: %s", pull.node)


async def follow_profiles(profiles: ServiceProfiles, path: Path | None, clock: Clock) -> None:
    """Use the file of profiles, and use it again when it changes, until cancelled. A file that
    can't be used leaves those before it in force."""
    last, errors = None, ErrorLog(log, logging.WARNING)
    while path is not None:
        try:
            stat = await asyncio.to_thread(path.stat)
            if last != (last := (stat.st_mtime_ns, stat.st_size, stat.st_ino)):
                profiles.use(await asyncio.to_thread(read_profiles, path))
                log.info("%s: profiles of services read", path)
            errors.succeeded()
        except FileNotFoundError:
            if last is not None:
                last = None
                profiles.use(())
        except (FieldError, OSError) as error:
            errors.failed(str(error), "%s: %s; the profiles before it stay in force", path)
        await clock.sleep(_PROFILES_EVERY_S)

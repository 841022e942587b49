"""The servers of a controller, one context each, named as its section of the settings.

What only one of them needs is imported when its section is there, because a controller without it
is to stay small.
"""

import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from leadline_controller import __version__
from leadline_controller.api.certificates import CertificateFile, certificate_files
from leadline_controller.api.grpc import InspectionServer
from leadline_controller.api.nodes import InspectionSource
from leadline_controller.api.settings import ListenError, ServeError, Unserved
from leadline_controller.framework.options import OptionValue
from leadline_controller.framework.ports import Cluster
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.scheduling.extender_service import ExtenderService
from leadline_controller.scheduling.scaler_service import ScalerService
from leadline_controller.scheduling.scheduler import SchedulingProfile
from leadline_controller.wiring.controller import Controller, running
from leadline_controller.wiring.profiles import extender_profile

log = logging.getLogger(__name__)

_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0


@asynccontextmanager
async def grpc(
    controller: Controller, strategy_name: str, options: Mapping[str, OptionValue] | None = None
) -> AsyncIterator[str]:
    """Serve the gRPC API during the context; yields the address. options: of the strategy."""
    source = inspection_source(controller, strategy_name, options)
    server = InspectionServer(controller.settings.serve, source)
    async with _serving(server, "answering inspections") as address:
        yield address


@asynccontextmanager
async def web(
    controller: Controller, strategy_name: str, listener: socket.socket | None = None
) -> AsyncIterator[str | None]:
    """Serve the map during the context; yields the page's address, None without a section [web].
    Enter it before the cluster is watched, so that it knows when pods were placed. listener: a
    socket that listens already."""
    settings = controller.settings
    if settings.web is None:
        yield None
        return
    from leadline_controller.api.web import WebServer
    from leadline_controller.api.web_journal import PlacementJournal

    journal = PlacementJournal(controller.clock.now_s, settings.scheduler_name)
    source = inspection_source(controller, strategy_name)
    server = WebServer(settings.web, source, journal, settings.anchors, listener=listener)
    async with (
        controller.listening(journal.observe),
        _serving_in_time(controller, "web", server, "showing the map") as address,
    ):
        yield address


@asynccontextmanager
async def extender(
    controller: Controller, how: SchedulingProfile, cluster: Cluster
) -> AsyncIterator[str | None]:
    """Serve the extender during the context; yields the address, None without a section
    [extender]. cluster: where it binds."""
    settings, instruments = controller.settings, controller.instruments
    if settings.extender is None:
        yield None
        return
    from leadline_controller.api.extender import ExtenderServer

    service = ExtenderService(
        cluster,
        controller.state,
        controller.telemetry,
        controller.decisions,
        extender_profile(settings, how),
        controller.clock,
    )
    observe = instruments.answered if instruments else lambda _verb, _s, _failed: None
    server = ExtenderServer(settings.extender, service, observe=observe)
    try:
        async with (
            controller.listening(service.observe),
            _serving_in_time(controller, "extender", server, "answering kube-scheduler") as address,
        ):
            yield address
    finally:
        await service.close()


@asynccontextmanager
async def keda(controller: Controller, how: SchedulingProfile) -> AsyncIterator[str | None]:
    """Serve KEDA's external scaler during the context; yields the address, None without a section
    [keda]."""
    settings = controller.settings.keda
    if settings is None:
        yield None
        return
    from leadline_controller.api.keda import KedaServer
    from leadline_controller.api.request_rate import RequestRates

    rates = RequestRates(settings.requests_urls, settings.window_s, controller.clock)
    service = ScalerService(
        controller.state, controller.telemetry, how, controller.clock, rates.per_s
    )
    async with (
        _serving_in_time(
            controller, "keda", KedaServer(settings, service), "answering KEDA"
        ) as address,
        running(rates.run()),
    ):
        yield address


@asynccontextmanager
async def metrics(controller: Controller, strategy_name: str) -> AsyncIterator[str | None]:
    """Serve Prometheus during the context; yields the address, None without a section
    [metrics]."""
    settings, instruments = controller.settings, controller.instruments
    if settings.metrics is None or instruments is None:
        yield None
        return
    from leadline_controller.api.metrics import MetricsReader, MetricsSource
    from leadline_controller.api.metrics_server import MetricsServer

    source = MetricsSource(
        inspection_source(controller, strategy_name),
        instruments,
        settings.metrics,
        anchors=settings.anchors,
        link_time_share=settings.budget.link_time_share,
    )
    server = MetricsServer(settings.metrics, MetricsReader(source))
    async with _serving_in_time(controller, "metrics", server, "answering Prometheus") as address:
        yield address


@asynccontextmanager
async def health(controller: Controller) -> AsyncIterator[str | None]:
    """Answer kubelet's probes during the context; yields the address, None without a section
    [health]."""
    settings = controller.settings.health
    if settings is None:
        yield None
        return
    from leadline_controller.api.health import HealthServer

    stuck = controller.heartbeats.late
    server = HealthServer(settings, stuck, lambda: controller.state.listed)
    async with _serving_in_time(controller, "health", server, "answering probes") as address:
        yield address


def inspection_source(
    controller: Controller, strategy_name: str, options: Mapping[str, OptionValue] | None = None
) -> InspectionSource:
    """What the servers show of this controller. options: of the strategy."""
    settings = controller.settings
    return InspectionSource(
        telemetry=controller.telemetry,
        cluster=controller.state,
        decisions=controller.decisions,
        history=controller.history,
        now_s=controller.clock.now_s,
        version=__version__,
        cluster_name=settings.cluster,
        strategy=strategy_name,
        options=options or {},
        started_s=controller.clock.now_s(),
        broker=lambda: controller.broker(),
        api_server=controller.api_server,
        queue=lambda: controller.queue(),
        certificates=_certificates(controller),
        stuck=controller.heartbeats.late,
        unserved=controller.unserved.values,
        scheduler_name=settings.scheduler_name,
        leadership=controller.leadership,
        places=settings.standalone,
        advises=settings.extender is not None,
        address_policy=AddressPolicy(settings.networks),
        budget=controller.budget,
        sampler=controller.sampler,
        rescheduler=lambda: controller.rescheduler,
        registries=lambda: (
            [] if controller.image_lookup is None else controller.image_lookup.readings()
        ),
    )


def _certificates(controller: Controller) -> list[CertificateFile]:
    """The certificates whose end is watched."""
    settings = controller.settings
    found = [*certificate_files("broker.tls", settings.broker_tls)]
    sections = {
        "grpc": settings.serve,
        "extender": settings.extender,
        "keda": settings.keda,
        "metrics": settings.metrics,
    }
    for name, section in sections.items():
        if section is not None:
            found += certificate_files(f"{name}.tls", section.tls)
    if settings.web is not None and (tls := settings.web.tls) is not None:
        found.append(CertificateFile("web.tls.cert_file", tls.cert_file))
        if tls.client_ca_file is not None:
            found.append(CertificateFile("web.tls.client_ca_file", tls.client_ca_file))
    if controller.login is not None:
        found.append(CertificateFile("kubernetes.kubeconfig", controller.login))
    return found


class _Server(Protocol):
    async def start(self) -> str: ...

    async def stop(self) -> None: ...


@asynccontextmanager
async def _serving(server: _Server, what: str) -> AsyncIterator[str]:
    """Run the server during the context; yields its address. what: it does, for the log."""
    try:
        yield await _started(server, what)
    finally:
        await server.stop()


@asynccontextmanager
async def _serving_in_time(
    controller: Controller, section: str, server: _Server, what: str
) -> AsyncIterator[str | None]:
    """As `_serving`. While its address cannot be had, the controller goes on without it, and tries
    again; None is yielded then."""
    try:
        address = await _started(server, what)
    except ListenError as error:
        log.warning("%s; going on without it, and trying again", error)
        now_s = controller.clock.now_s()
        controller.unserved[section] = Unserved(error.where, error.what, now_s)
        async with running(_start_later(controller, section, server, what)):
            yield None
    else:
        yield address
    finally:
        controller.unserved.pop(section, None)
        await server.stop()


async def _start_later(controller: Controller, section: str, server: _Server, what: str) -> None:
    pause_s = _FIRST_RETRY_S
    while True:
        await controller.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LAST_RETRY_S)
        try:
            await _started(server, what)
        except ServeError as error:  # its certificates may be unreadable by now
            why = error.what if isinstance(error, ListenError) else str(error)
            controller.unserved[section] = replace(controller.unserved[section], what=why)
        else:
            del controller.unserved[section]
            return


async def _started(server: _Server, what: str) -> str:
    address = await server.start()
    log.info("%s at %s", what, address)
    return address

"""The servers of a controller, by the names of their sections in the settings.

What only one of them needs is imported when its section is there, because a controller without it
is to stay small.
"""

import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from leadline_controller.extender.service import ExtenderService, extender_rule
from leadline_controller.inspect.server import InspectionServer
from leadline_controller.keda.scaler import ScalerService
from leadline_controller.serve.settings import ListenError, ServeError, Unserved
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.work import Work, running

log = logging.getLogger(__name__)

GRPC = "grpc"
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0
_WHAT = {
    GRPC: "answering inspections",
    "web": "showing the map",
    "health": "answering probes",
    "extender": "answering kube-scheduler",
    "keda": "answering KEDA",
    "metrics": "answering Prometheus",
}


class Server(Protocol):
    """Answers at an address."""

    async def start(self) -> str:
        """Listen. Returns the address; raises ServeError."""
        ...

    async def stop(self) -> None:
        """Answer no more."""
        ...


class Servers:
    """All that answer for a controller. listener: a socket that listens already, for the map."""

    def __init__(self, controller: Controller, listener: socket.socket | None = None) -> None:
        settings, told = controller.settings, controller.instruments
        self._controller = controller
        self._servers: dict[str, Server] = {GRPC: InspectionServer(settings.serve, controller)}
        self._beside: list[Callable[[], Work]] = []
        self._extender: ExtenderService | None = None
        if settings.web is not None:
            from leadline_controller.map.journal import PlacementJournal
            from leadline_controller.map.server import WebServer

            journal = PlacementJournal(controller.clock.now_s, settings.scheduler_name)
            controller.listeners.append(journal.observe)
            self._servers["web"] = WebServer(
                settings.web, controller, journal, settings.anchors, listener=listener
            )
        if settings.health is not None:
            from leadline_controller.serve.health import HealthServer

            self._servers["health"] = HealthServer(
                settings.health, controller.heartbeats.late, lambda: controller.state.listed
            )
        if settings.extender is not None:
            from leadline_controller.extender.server import ExtenderServer

            every = settings.extender.every_filter
            step = controller.step_by(extender_rule(controller.rule, every_filter=every))
            # kube-scheduler has an election of its own, so this binds without our Lease.
            self._extender = ExtenderService(controller.unfenced, step, every_filter=every)
            controller.listeners.append(self._extender.observe)
            observe = told.answered if told else lambda _verb, _s, _failed: None
            self._servers["extender"] = ExtenderServer(
                settings.extender, self._extender, observe=observe
            )
        if settings.keda is not None:
            from leadline_controller.keda.request_rate import RequestRates
            from leadline_controller.keda.server import KedaServer

            keda = settings.keda
            rates = RequestRates(keda.requests_urls, keda.window_s, controller.clock)
            self._beside.append(rates.run)
            self._servers["keda"] = KedaServer(keda, ScalerService(controller.step, rates.per_s))
        if settings.metrics is not None and told is not None:
            from leadline_controller.metrics.reader import MetricsReader, MetricsSource
            from leadline_controller.metrics.server import MetricsServer

            source = MetricsSource(
                controller,
                told,
                settings.metrics,
                anchors=settings.anchors,
                link_time_share=settings.budget.link_time_share,
            )
            self._servers["metrics"] = MetricsServer(settings.metrics, MetricsReader(source))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Mapping[str, str]]:
        """Answer during the context. Yields the addresses by section.

        Only gRPC's address must be had: another controller may run here, and nobody could ask this
        one. The controller goes on without the others, and tries again. Raises ServeError."""
        addresses: dict[str, str] = {}
        async with AsyncExitStack() as stack:
            if self._extender is not None:
                stack.push_async_callback(self._extender.close)
            for section, server in self._servers.items():
                stack.push_async_callback(server.stop)
                try:
                    addresses[section] = await self._start(section)
                except ListenError as error:
                    if section == GRPC:
                        raise
                    log.warning("%s; going on without it, and trying again", error)
                    since_s = self._controller.clock.now_s()
                    unserved = Unserved(error.where, error.what, since_s)
                    self._controller.unserved[section] = unserved
            stack.callback(self._controller.unserved.clear)
            beside = (run() for run in self._beside)
            await stack.enter_async_context(running(self._start_later(), *beside))
            yield addresses

    async def _start(self, section: str) -> str:
        address = await self._servers[section].start()
        log.info("%s at %s", _WHAT[section], address)
        return address

    async def _start_later(self) -> None:
        """Start those whose addresses could not be had."""
        unserved, pause_s = self._controller.unserved, _FIRST_RETRY_S
        while unserved:
            await self._controller.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_RETRY_S)
            for section in list(unserved):
                try:
                    await self._start(section)
                except ServeError as error:  # its certificates may be unreadable by now
                    why = error.what if isinstance(error, ListenError) else str(error)
                    unserved[section] = replace(unserved[section], what=why)
                else:
                    del unserved[section]

"""Answers kubelet's probes: /healthz, whether the controller must be started again, and /readyz,
whether it could decide now.

kubelet shows no certificate, so this is plain HTTP on an address of its own, and whoever reaches it
learns no more than the names of loops.
"""

from collections.abc import Callable, Sequence

from aiohttp import web

from leadline_controller.serve.http_server import HttpLimits, HttpServer
from leadline_controller.serve.settings import HealthSettings


class HealthServer:
    """Answers probes at the settings' address. stuck: the loops that make no progress. is_ready:
    whether the cluster is known."""

    def __init__(
        self,
        settings: HealthSettings,
        stuck: Callable[[], Sequence[str]],
        is_ready: Callable[[], bool],
    ) -> None:
        self._server = HttpServer("health", settings, HttpLimits())
        self._stuck = stuck
        self._is_ready = is_ready

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        routes = [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        return await self._server.start(routes, None)

    async def stop(self) -> None:
        """Stop listening, and give requests in progress two seconds."""
        await self._server.stop()

    async def _healthz(self, _: web.Request) -> web.Response:
        late = self._stuck()
        return _answer(f"stuck: {', '.join(late)}" if late else "")

    async def _readyz(self, request: web.Request) -> web.Response:
        if not self._is_ready():
            return _answer("waits for the API server")
        return await self._healthz(request)


def _answer(problem: str) -> web.Response:
    return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

"""Serves /metrics in the event loop; a thread makes the answers, one at a time.

Whoever may ask at all may ask again at once, so an answer is used again for a second.
"""

import asyncio
import logging
import zlib
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from leadline_controller.api.extender_connections import Connections
from leadline_controller.api.listeners import listen
from leadline_controller.api.metrics import MetricsReader
from leadline_controller.api.settings import MetricsSettings, ServeError

log = logging.getLogger(__name__)
# aiohttp's traceback for each request that is not HTTP would fill the log.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.CRITICAL)

_CONNECTIONS, _PEER_CONNECTIONS = 16, 8  # an answer is up to 2 MB until it is read
_HEAD_S, _IDLE_S, _SEND_S = 5.0, 120.0, 10.0
_LINGER_S, _SHUTDOWN_S = 1.0, 2.0
_USED_AGAIN_S = 1.0
_GZIP_LEVEL, _GZIP_BITS = 1, 31
_OPENMETRICS = "application/openmetrics-text"


class MetricsServer:
    """Serves the metrics of `reader` at the settings' address."""

    def __init__(self, settings: MetricsSettings, reader: MetricsReader) -> None:
        self._settings = settings
        self._reader = reader
        self._connections = Connections(_CONNECTIONS, _PEER_CONNECTIONS, _HEAD_S)
        self._runner: web.AppRunner | None = None
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._turn = asyncio.Lock()
        self._made: dict[tuple[bool, bool], tuple[float, bytes]] = {}

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        settings = self._settings
        tls = settings.tls.server_context() if settings.tls else None
        application = web.Application(middlewares=[self._connections.track])
        application.router.add_get("/metrics", self._metrics)
        self._runner = runner = web.AppRunner(
            application,
            access_log=None,
            logger=_http_log,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGER_S,
            shutdown_timeout=_SHUTDOWN_S,
            handler_cancellation=True,
        )
        await runner.setup()
        assert runner.server is not None  # noqa: S101  # set up above
        try:
            listeners, address = listen(settings)
        except OSError as error:
            raise ServeError(
                f"metrics address {settings.address}: cannot listen there: {error.strerror}"
            ) from None
        self._connections.start(listeners, tls, runner.server)
        return address

    async def stop(self) -> None:
        """Stop listening, and give requests in progress two seconds."""
        await self._connections.stop_accepting()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._connections.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self._connections.received(request)
        _, content_type = choose_encoder(request.headers.get("Accept", ""))
        is_zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        try:
            body = await self._answer(content_type.startswith(_OPENMETRICS), is_zipped)
        except Exception:
            log.exception("making the metrics")
            return web.Response(status=500, text="internal error, please report it\n")
        response = web.StreamResponse(headers={"Content-Type": content_type})
        if is_zipped:
            response.headers["Content-Encoding"] = "gzip"
        response.content_length = len(body)
        try:
            async with asyncio.timeout(_SEND_S):
                await response.prepare(request)
                if request.method != "HEAD":
                    await response.write(body)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        return response

    async def _answer(self, openmetrics: bool, is_zipped: bool) -> bytes:
        key, now_s = (openmetrics, is_zipped), asyncio.get_running_loop().time
        async with self._turn:
            at_s, body = self._made.get(key, (float("-inf"), b""))
            if now_s() - at_s >= _USED_AGAIN_S:
                render = self._reader.begin()

                def make() -> bytes:
                    text = render(openmetrics)
                    if not is_zipped:
                        return text
                    packed = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_BITS)
                    return packed.compress(text) + packed.flush()

                begun_s = now_s()
                body = await asyncio.get_running_loop().run_in_executor(self._thread, make)
                self._made = {key: (begun_s, body)}
        return body

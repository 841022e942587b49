"""Serves /metrics in the event loop; a thread makes the answers, one at a time.

Whoever may ask at all may ask again at once, so an answer is used again for a second.
"""

import asyncio
import logging
import zlib
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from leadline_controller.metrics.reader import MetricsReader
from leadline_controller.serve.http_server import HttpLimits, HttpServer, send
from leadline_controller.serve.settings import MetricsSettings

log = logging.getLogger(__name__)

_SEND_S = 10.0
_USED_AGAIN_S = 1.0
_GZIP_LEVEL, _GZIP_BITS = 1, 31
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class MetricsServer:
    """Serves the metrics of `reader` at the settings' address."""

    def __init__(self, settings: MetricsSettings, reader: MetricsReader) -> None:
        self._settings = settings
        self._reader = reader
        # An answer is up to 2 MB until it is read.
        self._server = HttpServer("metrics", settings, HttpLimits())
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._turn = asyncio.Lock()
        self._made: dict[tuple[bool, bool], tuple[float, bytes]] = {}
        self._making: dict[tuple[bool, bool], asyncio.Task[bytes]] = {}

    async def start(self) -> str:
        """Listen. Returns the address with the actual port; raises ServeError."""
        tls = self._settings.tls.server_context() if self._settings.tls else None
        return await self._server.start([web.get("/metrics", self._metrics)], tls)

    async def stop(self) -> None:
        """Stop listening, and give requests in progress two seconds."""
        await self._server.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        openmetrics = _takes_openmetrics(request.headers.get("Accept", ""))
        is_zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        try:
            # It is made to its end for the next one, also if this one does not wait for it.
            key = openmetrics, is_zipped
            task = self._making.get(key)
            if task is None:
                task = asyncio.get_running_loop().create_task(self._answer(*key))
                self._making[key] = task
                task.add_done_callback(lambda _: self._making.pop(key, None))
            body = await asyncio.shield(task)
        except Exception:
            log.exception("making the metrics")
            return web.Response(status=500, text="internal error, please report it\n")
        response = web.StreamResponse(
            headers={"Content-Type": _OPENMETRICS if openmetrics else _TEXT}
        )
        if is_zipped:
            response.headers["Content-Encoding"] = "gzip"
        response.content_length = len(body)
        return await send(request, response, [body], _SEND_S)

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
                fresh = {k: x for k, x in self._made.items() if begun_s - x[0] < _USED_AGAIN_S}
                self._made = fresh | {key: (begun_s, body)}
        return body


def _takes_openmetrics(accepted: str) -> bool:
    """Whether an Accept header names the version of OpenMetrics that is made here, or none.

    The library would name any version in the answer that the client asks for."""
    for each in accepted.split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind == _OPENMETRICS.partition(";")[0]:
            versions = [part for part in parameters if part.startswith("version=")]
            if not versions or "version=1.0.0" in versions:
                return True
    return False

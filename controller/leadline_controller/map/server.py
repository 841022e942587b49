"""The map: a read-only page over HTTP, its JSON and its stream, in the event loop of the scheduler.

docs/web-api.md describes the addresses. Every answer is made of the answers of the inspection
service. What takes long is done in threads or in slices, a few at a time; connections, streams and
sizes are bounded, and whoever does not read an answer loses the connection.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.abc import Traversable
from typing import Any

import numpy as np
from aiohttp import web
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.history.record import DecisionRecord
from leadline_controller.inspect import history, placements
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.parts import Observed
from leadline_controller.inspect.traffic import TrafficReader
from leadline_controller.logs import ErrorLog
from leadline_controller.map import documents, past, traffic
from leadline_controller.map.access import Access, LoginLimits
from leadline_controller.map.feed import Feed, Recorded
from leadline_controller.map.files import PageFile, page_files
from leadline_controller.map.journal import PlacementJournal
from leadline_controller.map.layout import order
from leadline_controller.map.links import SOURCES, matrix
from leadline_controller.map.settings import WebSettings
from leadline_controller.serve.http_server import HttpLimits, HttpServer, leaving, peer, send
from leadline_controller.serve.listeners import cancel
from leadline_controller.serve.turns import Turns, of_the_fullest

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Content = Callable[[web.Request], Coroutine[Any, Any, bytes]]
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Server": "leadline",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_JSON = "application/json"
_NO_NODE = "no node {!r}: neither the cluster nor an agent has it"
_MOST_PAIRED = 300
_TRAFFIC_S = 10.0  # for so long one answer serves all pages
_MOST_LISTED, _LISTED = 200, 50
_LONGEST_NAME = 512
_MOST_METRICS = 32
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WebLimits(HttpLimits):
    """What the server bears of browsers."""

    answer_s: float = 30.0  # until an answer is made, and until it is read
    write_s: float = 10.0  # to read one event
    gone_s: float | None = 30.0
    head_s: float = 10.0
    idle_s: float = 75.0
    streams: int = 16  # at once; beyond them, one that has followed for followed_s gives way
    followed_s: float = 10.0
    at_once: int = 2  # answers that take long
    connections: int = 96
    peer_connections: int = 48
    login: LoginLimits = field(default_factory=LoginLimits)


@dataclass(eq=False, slots=True)
class _Follower:
    """A page with a stream."""

    transport: asyncio.Transport | None
    peer: str
    since_s: float  # on the event loop's clock


class _BadRequestError(Exception):
    """The request makes no sense; str() says why."""


class _NotThereError(Exception):
    """There is no such node or decision; str() says why."""


class WebServer:
    """Serves the map at the settings' address. anchors: boards whose links are all drawn. folder:
    of the page's files, the package's own if None. listener: a socket that listens already, in
    place of the settings' address. recorded: as of Feed."""

    def __init__(
        self,
        settings: WebSettings,
        source: Observed,
        journal: PlacementJournal,
        anchors: Collection[str] = (),
        *,
        limits: WebLimits | None = None,
        folder: Traversable | None = None,
        listener: socket.socket | None = None,
        poll_s: float = 0.5,
        recorded: Recorded | None = None,
    ) -> None:
        self._recorded = recorded
        self._settings, self._source, self._journal = settings, source, journal
        self._limits = limits = limits or WebLimits()
        self._folder = folder
        self._files: Mapping[str, PageFile] = {}
        self._access = Access(settings, limits.login)
        self._anchors, self._poll_s = anchors, poll_s
        self._feed: Feed  # from the start on, as it tells what comes after that
        self._long = Turns(limits.at_once)
        self._followers = list[_Follower]()  # oldest first
        self._making = set[asyncio.Task[bytes]]()
        self._pairs: tuple[float, bytes] = (-math.inf, b"")
        self._traffic: tuple[float, bytes] = (-math.inf, b"")
        self._server = HttpServer("web", settings, limits, listener)
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen. Returns the page's address with the actual port; raises ServeError."""
        settings = self._settings
        self._feed = Feed(
            *(self._source, self._journal, self._anchors),
            poll_s=self._poll_s,
            recorded=self._recorded,
        )
        tls = (
            settings.tls.server_context(login=settings.login is not None) if settings.tls else None
        )
        self._files = await asyncio.to_thread(page_files, self._folder)
        routes: dict[str, Handler] = {
            "/": self._index,
            "/static/{path:.+}": self._static,
            "/api/overview": self._json(self._overview),
            "/api/pairs": self._json(self._all_pairs),
            "/api/traffic": self._json(self._all_traffic),
            "/api/nodes/{name}": self._json(self._node),
            "/api/history": self._json(self._history),
            "/api/decisions": self._json(self._decisions),
            "/api/decisions/{id}": self._json(self._decision),
            "/api/stream": self._stream,
        }
        address = await self._server.start(
            [web.get(path, handler) for path, handler in routes.items()], tls, [self._guarded]
        )
        self._feeding = asyncio.create_task(self._feed_for_ever())
        return f"{'http' if tls is None else 'https'}://{address}/"

    async def stop(self) -> None:
        """Stop listening, and end all streams."""
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait((self._feeding,))
        await self._server.stop(at_once=True)
        await cancel(self._making)

    async def _feed_for_ever(self) -> None:
        """An error must not end the controller, nor the page."""
        errors = ErrorLog(log)
        while True:
            try:
                await self._feed.run()
            except Exception as error:  # noqa: BLE001  # any error is logged once
                errors.failed(error, "reading the map's overview failed, trying again: %s")
                await asyncio.sleep(1.0)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer those who may see it, and every error as JSON."""
        refusal = await self._access.refusal(request)
        if refusal is not None:
            return await self._error(request, refusal.status, refusal.why, refusal.headers)
        try:
            return await handler(request)
        except web.HTTPException as error:
            why = {404: "there is nothing at this address", 405: "only GET and HEAD are answered"}
            headers = {"Allow": "GET, HEAD"} if error.status == 405 else {}
            text = why.get(error.status, error.text or error.reason)
            return await self._error(request, error.status, text, headers)
        except _NotThereError as error:
            return await self._error(request, 404, str(error))
        except _BadRequestError as error:
            return await self._error(request, 400, str(error))
        except TimeoutError:
            return await self._error(request, 503, "too slow; try again", {"Retry-After": "5"})
        except Exception as error:
            log.exception("answering %.200r", request.path)
            return await self._error(request, 500, f"internal error, please report it: {error!r}")

    # The page.

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return await self._file(request, "index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return await self._file(request, request.match_info["path"])

    async def _file(self, request: web.Request, path: str) -> web.StreamResponse:
        file = self._files.get(path)
        if file is None:
            raise web.HTTPNotFound
        headers = {"Content-Type": file.type, "ETag": file.tag, "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == file.tag:
            return await self._send(request, b"", 304, headers)
        content = file.content
        if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            content, headers["Content-Encoding"] = file.packed, "gzip"
        return await self._send(request, content, 200, headers)

    # The JSON.

    def _json(self, content: Content) -> Handler:
        """Answers with what `content` makes. A few are made at a time. One that is begun ends, even
        if nobody waits for it any more: its thread would go on beside those of the next ones."""

        async def answered(request: web.Request) -> web.StreamResponse:
            async with asyncio.timeout(self._limits.answer_s):
                await self._long.acquire(peer(request))
                making = asyncio.create_task(content(request))
                self._making.add(making)
                making.add_done_callback(self._made)
                body = await asyncio.shield(making)
            return await self._send(request, body, 200, {"Content-Type": _JSON})

        return answered

    def _made(self, making: asyncio.Task[bytes]) -> None:
        self._making.discard(making)
        self._long.release()
        if not making.cancelled():
            making.exception()  # if it has one, who waits for it gets it

    async def _overview(self, request: web.Request) -> bytes:
        if "unix_s" not in request.query:
            return await self._feed.overview()
        unix_s = _number(request, "unix_s", 0.0)
        oldest_unix_s = self._feed.unix_s() - past.OLDEST_S
        if not oldest_unix_s <= unix_s <= self._feed.unix_s() + 60:
            days = past.OLDEST_S // 86_400
            raise _BadRequestError(f"unix_s: expected a time of the last {days} days")
        await self._feed.refresh()
        return await past.overview(self._source, self._journal, self._feed, unix_s)

    async def _all_pairs(self, _: web.Request) -> bytes:
        loop_s = asyncio.get_running_loop().time
        made_s, body = self._pairs
        if not loop_s() - made_s < 2.0:
            picture = await self._feed.refresh()
            reader = NodeReader(self._source)
            body = await asyncio.to_thread(self._paired, list(picture.nodes), reader)
            self._pairs = (loop_s(), body)
        return body

    def _paired(self, names: list[str], reader: NodeReader) -> bytes:
        every = len(names)
        if every > _MOST_PAIRED:
            at = np.linspace(0, every - 1, _MOST_PAIRED).round().astype(np.int64)
            names = [names[each] for each in at.tolist()]
        pairs = self._source.telemetry.pairs(self._source.clock.now_s())
        rtt_ms, source = matrix(names, pairs)
        index = {name: number for number, name in enumerate(names)}
        tested = reader.links_between({pair for pair in pairs.tested if index.keys() >= set(pair)})
        positions = self._feed.layout.positions
        places = np.array([positions.get(name, (0.5, 1.0)) for name in names]).reshape(-1, 2)
        return documents.encode_long(
            {
                "nodes": names,
                "order": order(places).tolist(),
                "total": every,
                "sampled": every > len(names),
                "at_unix_s": self._feed.unix_s(),
                "sources": list(SOURCES),
            },
            rtt_ms=map(documents.numbers, rtt_ms.tolist()),
            source=source.tolist(),
            tested=(
                [index[each["a"]], index[each["b"]], each["bandwidth_mbps"], each["bandwidth_kind"]]
                for each in map(documents.link, tested)
            ),
        )

    async def _all_traffic(self, _: web.Request) -> bytes:
        loop_s = asyncio.get_running_loop().time
        made_s, body = self._traffic
        if not loop_s() - made_s < _TRAFFIC_S:
            reader = TrafficReader(self._source)
            body = await asyncio.to_thread(traffic.document, reader, self._feed.unix_s())
            self._traffic = (loop_s(), body)
        return body

    async def _node(self, request: web.Request) -> bytes:
        name = _name(request.match_info["name"])
        picture, reader = await self._feed.refresh(), NodeReader(self._source)
        if name not in reader.names:
            raise _NotThereError(_NO_NODE.format(name))
        status = reader.status(name)
        links = await asyncio.to_thread(reader.links_of, name)
        shown = picture.nodes.get(name) or documents.node(status, (0.5, 1.0), (), placed=False)
        details = await asyncio.to_thread(documents.node_details, status, links)
        talks = await asyncio.to_thread(traffic.of_board, TrafficReader(self._source), name)
        return documents.encode({**shown, **details, **talks})

    async def _history(self, request: web.Request) -> bytes:
        source, now = self._source, self._source.decisions.now()
        name = _name(request.query.get("node", ""))
        metrics = request.query.getall("metric", [])
        if not name:
            raise _BadRequestError("node: expected the name of a board")
        if len(metrics) > _MOST_METRICS:
            raise _BadRequestError(f"metric: expected at most {_MOST_METRICS}")
        asked = pb.GetHistoryRequest(
            from_unix_s=_number(request, "since_unix_s", 0.0),
            to_unix_s=_number(request, "until_unix_s", 0.0),
            step_s=_number(request, "step_s", 0.0),
        )
        now_unix_s = now.unix_s(now)
        if now_unix_s is None:
            raise _BadRequestError("nothing is recorded: this machine's clock was never set")
        try:
            shown = history.span(asked, now_unix_s)
        except ValueError as error:
            raise _BadRequestError(str(error)) from None
        blocks = await history.blocks_of(source, name, shown)
        if not blocks and name not in NodeReader(source).names:
            raise _NotThereError(_NO_NODE.format(name))

        def encoded() -> bytes:
            answer = history.response(blocks, shown, metrics)
            return documents.encode(documents.history(name, answer, shown.steps))

        return await asyncio.to_thread(encoded)

    async def _decisions(self, request: web.Request) -> bytes:
        limit = _number(request, "limit", float(_LISTED))
        if not (limit.is_integer() and 1 <= limit <= _MOST_LISTED):
            raise _BadRequestError(f"limit: expected 1 to {_MOST_LISTED}")
        before = _number(request, "before", math.inf)
        now = self._source.decisions.now()
        shown = placements.selection(pb.ListPlacementsRequest(), self._source)

        def older(record: DecisionRecord) -> DecisionRecord | None:
            at_s = record.last.unix_s(now)
            # One without a time is older than any boot with a clock that was set.
            if before != math.inf and (at_s is None or at_s >= before):
                return None
            return shown(record)

        records, more = await self._source.history.since(None, int(limit), older)

        def encoded() -> bytes:
            listed = [placements.placement(each, now) for each in reversed(records)]
            return documents.encode(
                {"decisions": list(map(documents.decision, listed)), "more": more}
            )

        return await asyncio.to_thread(encoded)

    async def _decision(self, request: web.Request) -> bytes:
        key = _name(request.match_info["id"])
        records = await placements.decisions_about(self._source, key)
        if not records and self._recorded:
            raise _NotThereError(f"no decision about pod {key[:200]} is recorded")
        if not records:
            raise _NotThereError(placements.why_unexplained(self._source, key))
        now = self._source.decisions.now()

        def encoded() -> bytes:
            return documents.encode(documents.explained(placements.explanation(records, now)))

        return await asyncio.to_thread(encoded)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if not self._has_place(request):
            why = f"{self._limits.streams} pages follow already; close one"
            return await self._error(request, 503, why, {"Retry-After": "10"})
        response = web.StreamResponse(headers={**_HEADERS, "Cache-Control": "no-store"})
        self._access.mark(request, response)
        response.content_type = "text/event-stream"
        after = request.headers.get("Last-Event-ID") or request.query.get("after")
        follower = _Follower(request.transport, peer(request), asyncio.get_running_loop().time())
        self._followers.append(follower)
        try:
            with leaving(request):
                await response.prepare(request)
                if request.method == "HEAD":
                    return response
                async with aclosing(self._feed.stream(after)) as chunks:
                    async for chunk in chunks:
                        async with asyncio.timeout(self._limits.write_s):
                            await response.write(chunk)
        finally:
            if follower in self._followers:
                self._followers.remove(follower)
        return response

    def _has_place(self, request: web.Request) -> bool:
        """Whether it may follow. Of the peer with the most pages, the oldest page gives way, and
        comes again by itself."""
        if len(self._followers) < self._limits.streams:
            return True
        asking = peer(request)
        own = [each for each in self._followers if each.peer == asking]
        most = of_the_fullest(self._followers, lambda each: each.peer)
        oldest = (own if len(own) == len(most) else most)[0]
        if asyncio.get_running_loop().time() - oldest.since_s < self._limits.followed_s:
            return False
        self._followers.remove(oldest)
        if oldest.transport is not None:
            oldest.transport.abort()
        return True

    # Answers.

    async def _error(
        self, request: web.Request, status: int, why: str, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        body = documents.encode({"error": why[:1000]})
        return await self._send(request, body, status, {"Content-Type": _JSON, **(headers or {})})

    async def _send(
        self, request: web.Request, body: bytes, status: int, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        cached = "no-cache" if "ETag" in headers else "no-store"
        response = web.StreamResponse(
            status=status, headers={**_HEADERS, "Cache-Control": cached, **headers}
        )
        self._access.mark(request, response)
        response.content_length = len(body)
        chunks = (body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES))
        return await send(request, response, chunks, self._limits.answer_s)


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME:
        raise _BadRequestError(f"expected a name of at most {_LONGEST_NAME} characters")
    return text


def _number(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text) if len(text) < 64 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _BadRequestError(f"{name}: expected a number")
    return value

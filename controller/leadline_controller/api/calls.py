"""Limits the gRPC server's calls in number, duration and bytes, for each peer and in total.

A peer that does not read its answers loses its connection, because nothing else ends a call. A
peer is an address, or on this machine a connection, because its users share one address.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # its stub leaves it out

from leadline_controller.api.gate import Connection, Gate
from leadline_controller.api.settings import MAX_ANSWER_BYTES
from leadline_controller.api.turns import Turns

Context = grpc.aio.ServicerContext[Any, Any]
# From a request until its answer is read completely.
CALL_S = 10.0
# To read one event of a stream.
WRITE_S = 10.0
# A shorter call may still be read, so it is never ended to make room.
_MIN_CALL_S = 0.25
# A stream has no end of its own, so it has had its share after this time.
_MIN_STREAM_S = 10.0
MAX_BYTES = 2 * MAX_ANSWER_BYTES
_MAX_ENCODING = 4


@dataclass(frozen=True, slots=True)
class CallKind:
    """Calls that share a limit. name: in the plural. limit: how many at once. max_s: how long one
    may take."""

    name: str
    limit: int
    max_s: float | None

    @property
    def peer_limit(self) -> int:
        """For one peer: half, so that no single peer can exhaust the limit."""
        return self.limit // 2


ANSWERS = CallKind("calls", 24, CALL_S)
WATCHES = CallKind("watch streams", 32, None)
HEALTH_WATCHES = CallKind("health watches", 16, None)
REFLECTIONS = CallKind("reflection streams", 8, 60.0)
_KINDS = {
    "/leadline.v1.Inspection/Watch": WATCHES,
    "/externalscaler.ExternalScaler/StreamIsActive": WATCHES,
    "/grpc.health.v1.Health/Watch": HEALTH_WATCHES,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": REFLECTIONS,
}


@dataclass(eq=False, slots=True)
class Call:
    """A call in progress. answer_bytes: the length of its answer, once it is encoded."""

    kind: CallKind
    connection: Connection
    peer: object
    start_s: float
    ends: asyncio.TimerHandle | None
    answer_bytes: int = 0


class Calls(grpc.aio.ServerInterceptor):
    """Admits calls and enforces their limits."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._calls: set[Call] = set()
        self._handlers: dict[str, Any] = {}
        # Bounds the memory of long answers that are being encoded.
        self._encoding = Turns(_MAX_ENCODING)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Wrap the handler of a method with its limits."""
        method = str(details.method)
        if method not in self._handlers:
            handler = await continuation(details)
            if handler is None:
                return None
            self._handlers[method] = self._limited(_KINDS.get(method, ANSWERS), handler)
        return self._handlers[method]

    def _limited(self, kind: CallKind, handler: Any) -> Any:
        read = _parser(handler.request_deserializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._answering(kind, handler.unary_unary, handler.response_serializer), read
            )
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(kind, handler.stream_stream), read, handler.response_serializer
            )
        if asyncio.iscoroutinefunction(handler.unary_stream):
            limited = self._writing(kind, handler.unary_stream)
        else:
            limited = self._streaming(kind, handler.unary_stream)
        return grpc.unary_stream_rpc_method_handler(limited, read, handler.response_serializer)

    def _answering(self, kind: CallKind, handler: Any, serialize: Any) -> Any:
        async def answer(request: Any, context: Context) -> bytes:
            call = await self._admit(kind, request, context)
            await self._encoding.acquire(call.peer)
            try:
                content: bytes = serialize(await handler(request, context))
            finally:
                self._encoding.release()
            await self._count_bytes(call, len(content), context)
            return content

        return answer

    def _streaming(self, kind: CallKind, handler: Any) -> Any:
        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            call = await self._admit(kind, request, context)
            if isinstance(request, AsyncIterator):
                request = _readable(request, context)
            loop = asyncio.get_running_loop()
            async with contextlib.aclosing(handler(request, context)) as events:
                async for event in events:
                    late = loop.call_later(WRITE_S, call.connection.close)
                    try:
                        yield event
                    finally:
                        late.cancel()

        return stream

    def _writing(self, kind: CallKind, handler: Any) -> Any:
        async def write(request: Any, context: Context) -> None:
            await self._admit(kind, request, context)
            await handler(request, context)

        return write

    async def _admit(self, kind: CallKind, request: Any, context: Context) -> Call:
        """Count the call. Aborts it at the limit, or if the request can't be parsed."""
        if request is _UNREADABLE:
            await _refuse_unreadable(context)
        connection = self._gate.by_name.get(context.peer())
        if connection is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is closed")
        peer = connection.client
        same = [each for each in self._calls if each.kind is kind]
        own = sum(each.peer == peer for each in same)
        if own >= kind.peer_limit:
            await _exhausted(
                context, f"{kind.peer_limit} {kind.name} of yours are in progress; end one"
            )
        if len(same) >= kind.limit and not self._make_room(kind, own):
            await _exhausted(
                context, f"{kind.limit} {kind.name} are in progress already; try again later"
            )
        loop = asyncio.get_running_loop()
        ends = None if kind.max_s is None else loop.call_later(kind.max_s, connection.close)
        call = Call(kind, connection, peer, loop.time(), ends)
        self._calls.add(call)
        connection.begin_call()
        context.add_done_callback(lambda _: self._end(call))  # type: ignore[arg-type]  # a stub's mistake
        return call

    async def _count_bytes(self, call: Call, size: int, context: Context) -> None:
        """Count the bytes of an answer. Aborts the call if too many bytes are unread."""
        others = [each for each in self._calls if each.peer == call.peer and each is not call]
        mine = sum(each.answer_bytes for each in others)
        if mine and mine + size > MAX_BYTES // 2:
            await _exhausted(context, "other answers to you are not read yet; read them first")
        while sum(each.answer_bytes for each in self._calls) + size > MAX_BYTES:
            if not self._make_room(call.kind, len(others)):
                await _exhausted(context, "other answers are not read yet; try again later")
        call.answer_bytes = size

    def _make_room(self, kind: CallKind, own: int) -> bool:
        """Close the connection of the oldest call of the peer with the most calls, for a peer with
        `own` calls. Returns whether there was one."""
        least_s = _MIN_STREAM_S if kind.max_s is None else _MIN_CALL_S
        started_before_s = asyncio.get_running_loop().time() - least_s
        same = [each for each in self._calls if each.kind is kind]
        held = Counter(each.peer for each in same)
        old = [x for x in same if held[x.peer] > own and x.start_s < started_before_s]
        if not old:
            return False
        closed = max(old, key=lambda each: (held[each.peer], -each.start_s)).connection
        for each in [each for each in self._calls if each.connection is closed]:
            self._end(each)
        closed.close()
        return True

    def _end(self, call: Call) -> None:
        if call not in self._calls:
            return
        self._calls.discard(call)
        call.connection.end_call()
        if call.ends is not None:
            call.ends.cancel()


class TextSafeServer(cygrpc.AioServer):  # type: ignore[misc]  # the library leaves it untyped
    """gRPC's server, protected from method names that are not UTF-8, one of which would stop it.

    gRPC handles the calls of registered methods itself, so only calls of unknown methods arrive
    here. They are refused without decoding the name.
    """

    async def _request_call(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        answering: set[asyncio.Task[None]] = set()
        while True:
            state = await super()._request_call()
            context = cygrpc._ServicerContext(state, None, None, loop)
            task = loop.create_task(_refuse_unknown(context))
            answering.add(task)
            task.add_done_callback(answering.discard)


async def _refuse_unknown(context: Context) -> None:
    # The caller may be gone, or gRPC about to stop.
    with contextlib.suppress(Exception):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")


# Stands for a request that can't be parsed.
_UNREADABLE = object()


def _parser(deserialize: Any) -> Callable[[bytes], Any]:
    """A deserializer that returns _UNREADABLE instead of an error, which gRPC would log in full."""

    def read(content: bytes) -> Any:
        try:
            return deserialize(content)
        except Exception:  # noqa: BLE001  # each version of protobuf raises another one
            return _UNREADABLE

    return read


async def _readable(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    async for request in requests:
        if request is _UNREADABLE:
            await _refuse_unreadable(context)
        yield request


async def _refuse_unreadable(context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request can't be read")


async def _exhausted(context: Context, why: str) -> NoReturn:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

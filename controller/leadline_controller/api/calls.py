"""The calls in progress at the gRPC server: how many, of whom, for how long, and with how many
bytes. A peer that keeps its answers waiting loses its connection, which is all that ends a call.

A peer is an address, or on this machine a connection, because all users of it share one address.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # its stub leaves it out

from leadline_controller.api.gate import THIS_MACHINE, Connection, Gate
from leadline_controller.api.settings import MAX_ANSWER_BYTES

Context = grpc.aio.ServicerContext[Any, Any]
# From its request until its answer is read to the end.
CALL_S = 10.0
# For each event of a stream.
WRITE_S = 10.0
# A call that takes less is not one whose answer nobody reads, so it never makes room.
_HONEST_S = 0.25
MAX_BYTES = 2 * MAX_ANSWER_BYTES
_MADE_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls that share places. what: their name in the plural; most_s: how long one may take."""

    what: str
    places: int
    most_s: float | None

    @property
    def places_of_a_peer(self) -> int:
        """So that two peers are needed to take them all."""
        return self.places // 2


ANSWERS = Kind("calls", 24, CALL_S)
WATCHES = Kind("watch streams", 32, None)
HEALTH_WATCHES = Kind("health watches", 16, None)
REFLECTIONS = Kind("reflection streams", 8, 60.0)
_KINDS = {
    "/leadline.v1.Inspection/Watch": WATCHES,
    "/grpc.health.v1.Health/Watch": HEALTH_WATCHES,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": REFLECTIONS,
}
MAX_CALLS = sum(each.places for each in (ANSWERS, WATCHES, HEALTH_WATCHES, REFLECTIONS))


@dataclass(eq=False, slots=True)
class Call:
    """One in progress. answer_bytes: the length of its answer, once it is made."""

    kind: Kind
    connection: Connection
    peer: object
    start_s: float
    ends: asyncio.TimerHandle | None
    answer_bytes: int = 0


class Calls(grpc.aio.ServerInterceptor):
    """Admits calls and watches them until they have ended."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._calls: set[Call] = set()
        self._handlers: dict[str, Any] = {}
        # No number of callers has so many long answers made at once that memory runs short.
        self._making = asyncio.Semaphore(_MADE_AT_ONCE)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The handler of a method with the limits around it."""
        method = str(details.method)
        if method not in self._handlers:
            handler = await continuation(details)
            if handler is None:
                return None
            self._handlers[method] = self._limited(_KINDS.get(method, ANSWERS), handler)
        return self._handlers[method]

    def _limited(self, kind: Kind, handler: Any) -> Any:
        read = _tolerant(handler.request_deserializer)
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

    def _answering(self, kind: Kind, handler: Any, serialize: Any) -> Any:
        async def answer(request: Any, context: Context) -> bytes:
            call = await self._admit(kind, request, context)
            async with self._making:
                content: bytes = serialize(await handler(request, context))
            await self._hold(call, len(content), context)
            return content

        return answer

    def _streaming(self, kind: Kind, handler: Any) -> Any:
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

    def _writing(self, kind: Kind, handler: Any) -> Any:
        async def write(request: Any, context: Context) -> None:
            await self._admit(kind, request, context)
            await handler(request, context)

        return write

    async def _admit(self, kind: Kind, request: Any, context: Context) -> Call:
        """Take a place. Ends the call where there is none, or the request can't be read."""
        if request is _UNREADABLE:
            await _refuse_unreadable(context)
        connection = self._gate.connection(context.peer())
        if connection is None:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "the connection is closed")
        peer: object = connection if connection.peer == THIS_MACHINE else connection.peer
        same = [each for each in self._calls if each.kind is kind]
        own = sum(each.peer == peer for each in same)
        if own >= kind.places_of_a_peer:
            await _exhausted(
                context, f"{kind.places_of_a_peer} {kind.what} of yours are in progress; end one"
            )
        if len(same) >= kind.places and not self._make_room(kind, own):
            await _exhausted(
                context, f"{kind.places} {kind.what} are in progress already; try again later"
            )
        loop = asyncio.get_running_loop()
        ends = None if kind.most_s is None else loop.call_later(kind.most_s, connection.close)
        call = Call(kind, connection, peer, loop.time(), ends)
        self._calls.add(call)
        connection.begin_call()
        context.add_done_callback(lambda _: self._end(call))  # type: ignore[arg-type]  # a stub's mistake
        return call

    async def _hold(self, call: Call, size: int, context: Context) -> None:
        """Count an answer that is about to be sent. Ends the call where too many wait."""
        others = [each for each in self._calls if each.peer == call.peer and each is not call]
        mine = sum(each.answer_bytes for each in others)
        if mine and mine + size > MAX_BYTES // 2:
            await _exhausted(context, "other answers to you are not read yet; read them first")
        while sum(each.answer_bytes for each in self._calls) + size > MAX_BYTES:
            if not self._make_room(call.kind, len(others)):
                await _exhausted(context, "other answers are not read yet; try again later")
        call.answer_bytes = size

    def _make_room(self, kind: Kind, own: int) -> bool:
        """Whether the connection of a call that has waited could be closed, for a peer that has
        `own` calls in progress: the longest call of the peer that has the most."""
        before_s = asyncio.get_running_loop().time() - _HONEST_S
        timed = [each for each in self._calls if each.kind is kind and each.ends is not None]
        held = Counter(each.peer for each in timed)
        waiting = [x for x in timed if held[x.peer] > own and x.start_s < before_s]
        if not waiting:
            return False
        goes = max(waiting, key=lambda each: (held[each.peer], -each.start_s)).connection
        for each in [each for each in self._calls if each.connection is goes]:
            self._end(each)
        goes.close()
        return True

    def _end(self, call: Call) -> None:
        if call not in self._calls:
            return
        self._calls.discard(call)
        call.connection.end_call()
        if call.ends is not None:
            call.ends.cancel()


class TextSafeServer(cygrpc.AioServer):  # type: ignore[misc]  # the library leaves it untyped
    """gRPC's server, which one call of a method whose name is not UTF-8 would end for good.

    All methods that exist are registered, so only calls of others arrive here. They are answered
    without a look at their names.
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


class _Unreadable:
    """In place of a request that is none."""


_UNREADABLE = _Unreadable()


def _tolerant(deserialize: Any) -> Callable[[bytes], Any]:
    """The same for what can be read; for the rest no error, which gRPC would log in full."""

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
    await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the request can't be read")


async def _exhausted(context: Context, why: str) -> NoReturn:
    await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, why)


async def _abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    await context.abort(code, why)
    raise AssertionError("abort returned")

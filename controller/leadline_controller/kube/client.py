"""Sends JSON to the API server, checks its answers, and maps them to the port's errors.

Answers stay JSON, for whoever asked to decode with the type of what it needs of them.
"""

import asyncio
import json
import logging
import math
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Raw, Struct

from leadline_controller import __version__
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    BudgetError,
    ClusterError,
    ConflictError,
    Fence,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    UnavailableError,
)
from leadline_controller.kube.connection import Login, server_of, token_of
from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.kube.library import Configuration
from leadline_controller.kube.transport import Response, Transport
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

Json = dict[str, Any]

_REQUEST_TIMEOUT_S = 30.0
_MAX_RETRY_AFTER_S = 30.0
_MIN_LOGIN_INTERVAL_S = 10.0
# The server is told how long the fence leaves it; from then on a request may wait for its turn
# for half of the margin that a Lease keeps.
_MAX_TURN_S = 0.5
# A watch sends each object as one line, and etcd stores up to 1.5 MiB.
_MAX_LINE_BYTES = 2**21
_MAX_ODD_LINES = 10  # of a watch, one after the other
_MAX_MESSAGE_CHARS = 400
# Group 1: the resource of a path; group 2: the object's name, if the path has one.
_RESOURCE = re.compile(
    r"/(?:api/[^/]+|apis/[^/]+/[^/]+)/(?:namespaces/[^/]+/)?([^/]+)(?:/([^/]+))?"
)
_log = logging.getLogger(__name__)


class WatchEvent(Struct):
    """One event of a watch."""

    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
    object: Raw  # as JSON


class _Cause(Struct, frozen=True):
    reason: str = ""


class _Details(Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(Struct):
    message: str
    details: _Details = _Details()


class _Answer(Struct):
    """What any answer has."""

    kind: str = ""
    metadata: dict[str, Raw] | None = None
    # status, message: what a Status says.
    status: Raw = Raw()
    message: Raw = Raw()


class ExpiredError(ClusterError):
    """The server no longer keeps the changes since that version: list again (410)."""


_ERRORS: Mapping[int, type[ClusterError]] = {
    # An expired token is renewed before the next request, so a retry may help.
    401: UnavailableError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: ExpiredError,
    429: UnavailableError,
}


def error_for(status: int, message: str) -> ClusterError:
    """The port's error for an HTTP status that is no success."""
    kind = _ERRORS.get(status, InvalidError if 400 <= status < 500 else UnavailableError)
    return kind(f"{status}: {' '.join(message.split())[:_MAX_MESSAGE_CHARS]}")


def pod_path(pod: Pod) -> str:
    """The path of a pod's API object."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


def micro_time() -> str:
    """The time as a MicroTime of the API."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class ApiServer:
    """The connection to an API server, which all requests and watches share; see Transport.

    Every call raises subclasses of ClusterError. After an answer with "Retry-After", all further
    requests wait for that time first (30 s at most).
    """

    def __init__(self, configuration: Configuration, login: Login, timeout_s: float) -> None:
        self._configuration = configuration
        self._login = login
        self._timeout_s = timeout_s
        self._not_before_s = 0.0
        self._logged_in_s = float("-inf")
        self._server = server_of(configuration, os.environ)
        self._transport = Transport(self._server)
        # By kind of body: the token, and the header fields with it.
        self._headers: dict[str, tuple[str, list[str]]] = {}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, login: Login, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> AsyncIterator["ApiServer"]:
        """Read the login; no request is made yet. timeout_s: for each request, and for the wait
        that a "Retry-After" asks for. Raises KubeConfigError."""
        server = cls(await login.open(), login, timeout_s)
        try:
            yield server
        finally:
            await server._transport.close()

    @property
    def url(self) -> str:
        """The server's URL, for messages."""
        return self._server.url

    @property
    def cert_file(self) -> Path | None:
        """The client certificate of the login, if it has one."""
        return Path(self._server.cert_file) if self._server.cert_file else None

    async def get(self, path: str, **query: str) -> bytes:
        """Read an object or a list."""
        return await self._call("GET", path, query)

    async def post(self, path: str, body: Json, fence: Fence | None = None) -> bytes:
        """Create an object or a subresource. Raises NotLeadingError when the fence closes first."""
        return await self._call("POST", path, {}, body, fence)

    async def patch(
        self, path: str, body: Json, fence: Fence | None = None, *, by_name: bool = False
    ) -> bytes:
        """Merge `body` into an object (RFC 7386); `fence` as for `post`. by_name: merge lists such
        as containers item by item (Kubernetes' strategic merge) and do not replace them."""
        kind = "strategic-merge-patch+json" if by_name else "merge-patch+json"
        return await self._call("PATCH", path, {}, body, fence, kind)

    async def delete(self, path: str, uid: str, fence: Fence | None = None) -> None:
        """Delete an object if it still has this uid; `fence` as for `post`."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._call("DELETE", path, {}, body, fence)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], limit_s: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Open a watch.

        It ends when the server ends it, when the connection breaks, and after `limit_s`. Opening
        it raises, and what is no event; ERROR events are yielded like all others.
        """
        await self._wait_for_retry_after(None, path)
        async with AsyncExitStack() as opened:
            try:
                stream = await opened.enter_async_context(
                    self._transport.stream(
                        _target(path, query),
                        await self._header_fields("json"),
                        opening_s=min(self._timeout_s, limit_s),
                        limit_s=limit_s,
                    )
                )
                if not _is_success(stream.status):
                    raise await self._error(await stream.response(), "GET", path)
            except OSError as error:
                raise self._unavailable("GET", path, error) from None
            yield _watch_events(stream.chunks(), path)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        fence: Fence | None = None,
        kind: str = "json",
    ) -> bytes:
        await self._wait_for_retry_after(self._limit_s(fence), path)
        limit_s, began_s = self._limit_s(fence), _now_s()
        if fence is not None:
            # Otherwise the server could carry it out long after we gave it up.
            query = {**query, "timeout": f"{limit_s:.3f}s"}

        def check_fence() -> None:
            # A new connection, or a stop of this process, may lie between the first check and
            # this one. Nothing lies between this one and the socket.
            _remaining_s(fence)
            if _now_s() - began_s > _MAX_TURN_S:
                raise UnavailableError(f"{method} {path}: it was not its turn in time")

        try:
            response = await self._transport.request(
                method,
                _target(path, query),
                await self._header_fields(kind),
                b"" if body is None else json.dumps(body).encode(),
                limit_s=limit_s,
                may_send=check_fence if fence is not None else None,
            )
        except OSError as error:
            _remaining_s(fence)
            raise self._unavailable(method, path, error) from None
        if not _is_success(response.status):
            raise await self._error(response, method, path)
        try:
            _check(response.body, method, path, str((body or {}).get("kind", "")))
        except FieldError as error:
            raise UnavailableError(f"{method} {path}: {error}") from None
        return response.body

    def _limit_s(self, fence: Fence | None) -> float:
        """How long a request may take. Raises NotLeadingError when the fence has closed."""
        return min(self._timeout_s, _remaining_s(fence))

    async def _header_fields(self, kind: str) -> list[str]:
        try:
            token = await token_of(self._configuration)
        except KubeConfigError as error:
            raise UnavailableError(str(error)) from None
        before, fields = self._headers.get(kind, (None, []))
        if token != before:
            fields = [
                "Accept: application/json",
                f"Content-Type: application/{kind}",
                f"User-Agent: leadline-controller/{__version__}",
                "Expect:",  # not to wait for a word of the server before a long body
                *([f"Authorization: {token}"] if token else ()),
            ]
            self._headers[kind] = token, fields
        return fields

    def _unavailable(self, method: str, path: str, error: Exception) -> UnavailableError:
        return UnavailableError(f"{method} {self.url}{path}: {_reason(error)}")

    async def _wait_for_retry_after(self, longest_s: float | None, path: str) -> None:
        wait_s = self._not_before_s - _now_s()
        if longest_s is not None and wait_s > longest_s:
            raise UnavailableError(f"{path}: the server asked to retry after {wait_s:.0f} s")
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _error(self, response: Response, method: str, path: str) -> ClusterError:
        status, request = response.status, f"{method} {path}"
        message, is_refused_by_budget = _status_of(response.body)
        if status == 429 and is_refused_by_budget:
            # It asks to try this eviction again later; other requests need not wait.
            return BudgetError(f"{message} ({request})")
        if status in (429, 503):
            wait_s = min(response.retry_after_s, _MAX_RETRY_AFTER_S)
            self._not_before_s = max(self._not_before_s, _now_s() + wait_s)
        if status == 401:
            await self._log_in_again()
        return error_for(status, f"{message} ({request})")

    async def _log_in_again(self) -> None:
        if _now_s() < self._logged_in_s + _MIN_LOGIN_INTERVAL_S:
            return
        self._logged_in_s = _now_s()
        try:
            self._configuration = await self._login.open()
        except KubeConfigError as error:
            _log.warning("can't renew the credentials: %s", error)
            return
        server = server_of(self._configuration, os.environ)
        if server != self._server or server.cert_file is not None:
            # A connection keeps the certificate that it began with.
            left, self._transport, self._server = self._transport, Transport(server), server
            await left.close()


def _remaining_s(fence: Fence | None) -> float:
    """Seconds until the fence closes. Raises NotLeadingError when it has."""
    left_s = math.inf if fence is None else fence.left_s()
    if left_s <= 0:
        raise NotLeadingError("this controller is no longer the leader")
    return left_s


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _check(text: bytes, method: str, path: str, sent: str) -> None:
    """Raise FieldError unless it is the object that was asked for; a proxy may answer anything.
    sent: the kind that was sent."""
    answer = decode(text, _Answer, "the answer")
    found = _RESOURCE.match(path)
    if answer.kind == "Status":
        is_done = method == "DELETE" or sent in ("Binding", "Eviction")
        is_right = is_done and bytes(answer.status) == b'"Success"'
    elif found is None:  # such as /version
        is_right = True
    elif sent in ("Binding", "Eviction") or answer.metadata is None:
        is_right = False
    elif method == "GET" and found[2] is None:
        is_right = answer.kind.endswith("List")
    else:
        is_right = _is_of(answer.kind, found[1])
    if not is_right:
        said = bytes(answer.message).decode() or answer.kind or "an object without a kind"
        summary = " ".join(said.split())[:_MAX_MESSAGE_CHARS]
        raise FieldError(f"the answer is not what was asked for, but {summary}")


def _is_of(kind: str, resource: str) -> bool:
    """Whether a resource, such as storageclasses, has objects of this kind."""
    name = kind.lower()
    return bool(name) and resource in (f"{name}s", f"{name}es", f"{name[:-1]}ies")


async def _watch_events(chunks: AsyncIterator[bytes], path: str) -> AsyncIterator[WatchEvent]:
    """The events. A line that is none costs itself only, between others. Raises UnavailableError
    where nothing else comes: a proxy may have answered, say with a page of thousands of lines, and
    the watch would see no change."""
    begun, odd = b"", list[bytes]()  # odd: lines that are no events, since the last event
    try:
        async for chunk in chunks:
            *lines, begun = (begun + chunk).split(b"\n")
            for line in filter(bytes.strip, lines):
                try:
                    event = decode(line, WatchEvent, "event")
                except FieldError as error:
                    odd.append(line)
                    if len(odd) > _MAX_ODD_LINES:
                        raise _no_watch(odd[0], path) from None
                    problem = error
                    continue
                if odd:
                    _log.warning("watch of %s: %s; the event is left out", path, problem)
                    odd.clear()
                yield event
            if len(begun) > _MAX_LINE_BYTES:
                raise ValueError("an event is too long")
    except (OSError, ValueError) as error:
        _log.debug("the watch of %s ended: %s", path, _reason(error))
        return
    if odd or begun.strip():
        raise _no_watch((*odd, begun)[0], path)


def _no_watch(line: bytes, path: str) -> UnavailableError:
    said = " ".join(_status_of(line)[0].split())[:_MAX_MESSAGE_CHARS]
    return UnavailableError(f"GET {path}: the answer is no watch, but {said}")


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _status_of(text: bytes) -> tuple[str, bool]:
    """The message of a Status object, or whatever a proxy answered instead, and whether the object
    names a disruption budget as the cause."""
    try:
        status = decode(text, _Status, "")
    except FieldError:
        return text.decode(errors="replace"), False
    return status.message, any(each.reason == "DisruptionBudget" for each in status.details.causes)


def _reason(error: Exception) -> str:
    missing = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or missing

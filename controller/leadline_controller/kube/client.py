"""Sends JSON to the API server, reads its answers, and maps them to the port's errors.

Objects stay plain dictionaries: building the client library's generated models takes longer
than all other work on a pod.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

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
from leadline_controller.kube.connection import MAX_LINE_BYTES, Login, http2_context
from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.kube.header_fields import field_block, request_head
from leadline_controller.kube.http2 import (
    MAX_BODY_BYTES,
    NotOfferedError,
    Stream,
    TooManyStreamsError,
)
from leadline_controller.kube.library import ApiClient
from leadline_controller.kube.multiplexer import Multiplexer

Json = dict[str, Any]

_REQUEST_TIMEOUT_S = 30.0
_MAX_RETRY_AFTER_S = 30.0
_MIN_LOGIN_INTERVAL_S = 10.0
_MAX_MESSAGE_CHARS = 400
_log = logging.getLogger(__name__)


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
    """The port's error for an HTTP status of 400 or more."""
    kind = _ERRORS.get(status, UnavailableError if status >= 500 else InvalidError)
    return kind(f"{status}: {' '.join(message.split())[:_MAX_MESSAGE_CHARS]}")


def pod_path(pod: Pod) -> str:
    """The path of a pod's API object."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


def micro_time() -> str:
    """The time as a MicroTime of the API."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class ApiServer:
    """One HTTP/2 connection to an API server, which also carries the watches. Without HTTP/2, with
    a proxy, and for long requests it is a pool of connections.

    Every call raises subclasses of ClusterError. After an answer with "Retry-After", all further
    requests wait for that time first (30 s at most).
    """

    def __init__(self, client: ApiClient, login: Login, timeout_s: float) -> None:
        self._client = client
        self._login = login
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, 10))
        self._not_before_s = 0.0
        self._logged_in_s = float("-inf")
        self._multiplexer = self._new_multiplexer()
        # By method and kind of body: the header fields of all requests over it, and their block.
        self._blocks: dict[tuple[str, str], tuple[dict[str, str], bytes]] = {}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, login: Login, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> AsyncIterator["ApiServer"]:
        """Read the login; no request is made yet. timeout_s: for each request, and for the wait
        that a "Retry-After" asks for. Raises KubeConfigError."""
        client = await login.open()
        server = cls(client, login, timeout_s)
        try:
            yield server
        finally:
            if server._multiplexer is not None:
                server._multiplexer.close()
            await client.close()

    def _new_multiplexer(self) -> Multiplexer | None:
        rest, configuration = self._client.rest_client, self._client.configuration
        if not self.url.startswith("https:") or rest.proxy is not None:
            return None
        return Multiplexer(self.url, partial(http2_context, configuration), rest.server_hostname)

    @property
    def url(self) -> str:
        """The server's URL, for messages."""
        return str(self._client.configuration.host)

    @property
    def cert_file(self) -> Path | None:
        """The client certificate of the login, if it has one."""
        file = self._client.configuration.cert_file
        return Path(file) if isinstance(file, str) and file else None

    async def get(self, path: str, **query: str) -> Json:
        """Read an object or a list."""
        return await self._call("GET", path, query)

    async def post(self, path: str, body: Json, fence: Fence | None = None) -> Json:
        """Create an object or a subresource. Raises NotLeadingError when the fence closes first."""
        return await self._call("POST", path, {}, json.dumps(body).encode(), fence)

    async def patch(
        self, path: str, body: Json, fence: Fence | None = None, *, by_name: bool = False
    ) -> Json:
        """Merge `body` into an object (RFC 7386); `fence` as for `post`. by_name: merge lists such
        as containers item by item (Kubernetes' strategic merge) and do not replace them."""
        kind = "strategic-merge-patch+json" if by_name else "merge-patch+json"
        return await self._call("PATCH", path, {}, json.dumps(body).encode(), fence, kind)

    async def delete(self, path: str, uid: str, fence: Fence | None = None) -> None:
        """Delete an object if it still has this uid; `fence` as for `post`."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._call("DELETE", path, {}, json.dumps(body).encode(), fence)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch, which yields one JSON object a line.

        It ends when the server ends it, when the connection breaks, and after `silence_s` without
        a byte. Only opening it raises; ERROR events are yielded like all others.
        """
        if self._multiplexer is not None:
            await self._wait_for_retry_after(None, path)
            try:
                stream = await self._open(self._multiplexer, path, query, self._until_s(None))
            except NotOfferedError:
                self._do_without_http2()
            except TooManyStreamsError:
                pass
            else:
                try:
                    yield _watch_events(stream.chunks(silence_s), path)
                finally:
                    stream.close()
                return
        limits = aiohttp.ClientTimeout(sock_connect=10, sock_read=silence_s)
        response = await self._request("GET", path, query, limits=limits)
        try:
            # In a burst, many events come at once; asking for line after line takes longer.
            yield _watch_events(response.content.iter_any(), path)
        finally:
            response.close()

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        fence: Fence | None = None,
        kind: str = "json",
    ) -> Json:
        """Send a request, over the HTTP/2 connection if there can be one, and read its answer."""
        if self._multiplexer is not None and len(body or b"") <= MAX_BODY_BYTES:
            try:
                return await self._call_multiplexed(
                    self._multiplexer, method, path, query, body, fence, kind
                )
            except NotOfferedError:
                self._do_without_http2()
            except TooManyStreamsError:
                pass
        return await _read_json(await self._request(method, path, query, body, fence, kind=kind))

    def _do_without_http2(self) -> None:
        _log.info("%s has no HTTP/2: each request takes a connection of its own", self.url)
        self._multiplexer = None

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        fence: Fence | None = None,
        limits: aiohttp.ClientTimeout | None = None,
        kind: str = "json",
    ) -> aiohttp.ClientResponse:
        limits = limits or self._timeout
        await self._wait_for_retry_after(_fenced_timeout(limits, fence).total, path)
        timeout = _fenced_timeout(limits, fence)
        if fence is not None:
            # Otherwise the server could carry it out long after we gave it up.
            query = {**query, "timeout": f"{timeout.total:.3f}s"}
        headers = {"Accept": "application/json", "Content-Type": f"application/{kind}"}
        headers.update(self._client.default_headers)
        rest = self._client.rest_client
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"])
            response: aiohttp.ClientResponse = await rest.pool_manager.request(
                method,
                # encoded: aiohttp would parse and quote every part again.
                URL(self.url + path + (f"?{urlencode(query)}" if query else ""), encoded=True),
                headers=headers,
                data=None if body is None else _FencedBody(body, fence),
                timeout=timeout,
                proxy=rest.proxy,
                proxy_headers=rest.proxy_headers,
                server_hostname=rest.server_hostname,
            )
            if response.status >= 400:
                text = await response.read()
                response.release()
                retry_after = response.headers.get("Retry-After")
                raise await self._error(response.status, text, retry_after, method, path)
        except (aiohttp.ClientError, OSError) as error:
            if fence is not None:
                _remaining_s(fence)
            raise self._unavailable(method, path, error) from None
        return response

    async def _call_multiplexed(
        self,
        multiplexer: Multiplexer,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        fence: Fence | None,
        kind: str,
    ) -> Json:
        await self._wait_for_retry_after(_fenced_timeout(self._timeout, fence).total, path)
        until_s = self._until_s(fence)
        if body is None:
            stream = await self._open(multiplexer, path, query, until_s)
            text = await self._read(stream, path, until_s)
        else:
            try:
                head = await self._head(method, path, query, kind, len(body), fence)
                response = await multiplexer.request(head, body, until_s)
            except OSError as error:
                if fence is not None:
                    _remaining_s(fence)
                raise self._unavailable(method, path, error) from None
            text = response.body
            if response.status >= 400:
                raise await self._error(response.status, text, response.retry_after, method, path)
        try:
            return _json_object(text)
        except ValueError as error:
            raise UnavailableError(f"{method} {path}: {error}") from None

    async def _open(
        self, multiplexer: Multiplexer, path: str, query: Mapping[str, str], until_s: float
    ) -> Stream:
        try:
            head = await self._head("GET", path, query)
            stream = await multiplexer.stream(head, until_s)
        except OSError as error:
            raise self._unavailable("GET", path, error) from None
        status, retry_after, _ = stream.done.result()
        if status >= 400:
            text = await self._read(stream, path, until_s)
            raise await self._error(status, text, retry_after, "GET", path)
        return stream

    async def _read(self, stream: Stream, path: str, until_s: float) -> bytes:
        try:
            async with asyncio.timeout_at(until_s):
                return b"".join([chunk async for chunk in stream.chunks(math.inf)])
        except OSError as error:
            raise self._unavailable("GET", path, error) from None
        finally:
            stream.close()

    async def _head(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        kind: str = "json",
        body_bytes: int | None = None,
        fence: Fence | None = None,
    ) -> Callable[[], bytes]:
        """What makes the header block of a request, right before it is sent."""
        server = urlsplit(self.url)
        fields = {
            ":method": method,
            ":scheme": "https",
            ":authority": server.netloc,
            **self._client.default_headers,
            "accept": "application/json",
            "content-type": f"application/{kind}",
        }
        await self._client.update_params_for_auth(fields, [], ["BearerToken"])
        before, block = self._blocks.get((method, kind), ({}, b""))
        if fields != before:
            block = field_block(fields)
            self._blocks[method, kind] = fields, block

        def head() -> bytes:
            asked = query
            if fence is not None:  # it may have waited for its turn
                asked = {**query, "timeout": f"{_fenced_timeout(self._timeout, fence).total:.3f}s"}
            target = server.path + path + (f"?{urlencode(asked)}" if asked else "")
            return request_head(target, block, body_bytes)

        return head

    def _until_s(self, fence: Fence | None) -> float:
        """The loop's time at which a request that begins now is given up."""
        left_s = _fenced_timeout(self._timeout, fence).total
        assert left_s is not None  # noqa: S101  # every ApiServer has a limit
        return _now_s() + left_s

    def _unavailable(self, method: str, path: str, error: Exception) -> UnavailableError:
        return UnavailableError(f"{method} {self.url}{path}: {_reason(error)}")

    async def _wait_for_retry_after(self, longest_s: float | None, path: str) -> None:
        wait_s = self._not_before_s - _now_s()
        if longest_s is not None and wait_s > longest_s:
            raise UnavailableError(f"{path}: the server asked to retry after {wait_s:.0f} s")
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _error(
        self, status: int, body: bytes, retry_after: str | None, method: str, path: str
    ) -> ClusterError:
        text, request = body.decode(errors="replace"), f"{method} {path}"
        if status == 429 and _is_refused_by_budget(text):
            # It asks to try this eviction again later; other requests need not wait.
            return BudgetError(f"{_status_message(text)} ({request})")
        if status in (429, 503):
            wait_s = _retry_after_s(retry_after)
            self._not_before_s = max(self._not_before_s, _now_s() + wait_s)
        if status == 401:
            await self._log_in_again()
        return error_for(status, f"{_status_message(text)} ({request})")

    async def _log_in_again(self) -> None:
        if _now_s() < self._logged_in_s + _MIN_LOGIN_INTERVAL_S:
            return
        self._logged_in_s = _now_s()
        before = self.url
        try:
            await self._login.refresh(self._client.configuration)
        except KubeConfigError as error:
            _log.warning("can't renew the credentials: %s", error)
        if self._multiplexer is not None and (self.url != before or self.cert_file is not None):
            # A connection keeps the certificate that it began with.
            self._multiplexer.close()
            self._multiplexer = self._new_multiplexer()


class _FencedBody(aiohttp.BytesPayload):
    """The JSON of a request, which is not sent after the fence has closed.

    A new connection, or a stop of this process, may lie between the caller's check of the fence
    and this one. Nothing lies between this check and the socket; the headers are sent with the
    body.
    """

    def __init__(self, value: bytes, fence: Fence | None) -> None:
        super().__init__(value, content_type="application/json")
        self._fence = fence

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        # aiohttp turns a NotLeadingError into one of a broken connection.
        if self._fence is not None:
            _remaining_s(self._fence)
        await super().write_with_length(writer, content_length)


def _remaining_s(fence: Fence | None) -> float:
    """Seconds until the fence closes. Raises NotLeadingError when it has."""
    left_s = math.inf if fence is None else fence.left_s()
    if left_s <= 0:
        raise NotLeadingError("this controller is no longer the leader")
    return left_s


def _fenced_timeout(timeout: aiohttp.ClientTimeout, fence: Fence | None) -> aiohttp.ClientTimeout:
    """The timeout, shortened to the time until the fence closes. Raises NotLeadingError."""
    if fence is None:
        return timeout
    left_s = _remaining_s(fence)
    total_s = min(timeout.total or left_s, left_s)
    return aiohttp.ClientTimeout(total=total_s, sock_connect=timeout.sock_connect)


async def _read_json(response: aiohttp.ClientResponse) -> Json:
    request = f"{response.method} {response.url.raw_path}"
    try:
        return _json_object(await response.read())
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise UnavailableError(f"{request}: {_reason(error)}") from None
    finally:
        response.release()


def _json_object(text: bytes) -> Json:
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer


async def _watch_events(chunks: AsyncIterator[bytes], path: str) -> AsyncIterator[Json]:
    begun = b""
    try:
        async for chunk in chunks:
            *lines, begun = (begun + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event
            if len(begun) > MAX_LINE_BYTES:
                raise ValueError("an event is too long")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: a broken connection may cut a line in two.
        _log.debug("the watch of %s ended: %s", path, _reason(error))


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _retry_after_s(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), _MAX_RETRY_AFTER_S)
    except ValueError:
        return 1.0


def _status_message(text: str) -> str:
    """The message of a Status object, or whatever a proxy answered instead."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text


def _is_refused_by_budget(text: str) -> bool:
    """Whether the Status object names a disruption budget as the cause."""
    try:
        causes = json.loads(text)["details"]["causes"]
        return any(each.get("reason") == "DisruptionBudget" for each in causes)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _reason(error: Exception) -> str:
    missing = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or missing

"""JSON to and from the API server, and what its answers mean in the port's words.

Objects stay plain dictionaries: building the client library's generated models takes longer
than everything else that is done with a pod.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    Fence,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.kube.connection import Login
from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.kube.fence import FencedBody, still_open_s, within
from leadline_controller.kube.library import ApiClient

Json = dict[str, Any]

_REQUEST_S = 30.0
_LONGEST_WAIT_S = 30.0
_LOG_IN_AGAIN_S = 10.0
_MESSAGE_LENGTH = 400
_log = logging.getLogger(__name__)


class ExpiredError(ClusterError):
    """The server no longer keeps the changes since then: list again (410)."""


_KINDS: Mapping[int, type[ClusterError]] = {
    # A token that ran out is renewed before the next request, so asking again may help.
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
    kind = _KINDS.get(status, UnavailableError if status >= 500 else InvalidError)
    return kind(f"{status}: {' '.join(message.split())[:_MESSAGE_LENGTH]}")


def pod_path(pod: Pod) -> str:
    """The path of a pod's API object."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


class ApiServer:
    """One API server. Close it after use.

    Every call raises ClusterError's kinds. When the server said "Retry-After", every further
    request waits that long first (30 s at most), whoever makes it.
    """

    def __init__(self, client: ApiClient, login: Login, timeout_s: float) -> None:
        self._client = client
        self._login = login
        self._limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, 10))
        self._not_before_s = 0.0
        self._logged_in_s = float("-inf")

    @classmethod
    async def connect(cls, login: Login, timeout_s: float = _REQUEST_S) -> "ApiServer":
        """Read the login; no request is made yet. timeout_s: for each request, and for what the
        server asks us to wait before it. Raises KubeConfigError."""
        return cls(await login.open(), login, timeout_s)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    @property
    def url(self) -> str:
        """Where the server is, for messages."""
        return str(self._client.configuration.host)

    async def get(self, path: str, **query: str) -> Json:
        """Read an object or a list."""
        return await self._json("GET", path, query)

    async def post(self, path: str, body: Json, fence: Fence | None = None) -> Json:
        """Create an object or a subresource; with a `fence` only before that closes, else it
        raises NotLeadingError."""
        return await self._json("POST", path, {}, body, fence=fence)

    async def patch(self, path: str, body: Json, fence: Fence | None = None) -> Json:
        """Merge `body` into an object (RFC 7386); `fence` as for `post`."""
        return await self._json("PATCH", path, {}, body, "application/merge-patch+json", fence)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch: yields its events, one JSON object a line.

        The events end when the server ends them, the connection breaks, or nothing came for
        `silence_s`; only opening raises, and what is said in an event is for the caller.
        """
        limits = aiohttp.ClientTimeout(sock_connect=10, sock_read=silence_s)
        response = await self._request("GET", path, query, limits=limits)
        try:
            yield _events(response)
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        content_type: str = "application/json",
        fence: Fence | None = None,
    ) -> Json:
        response = await self._request(method, path, query, body, content_type, fence=fence)
        try:
            answer = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UnavailableError(f"{method} {path}: {_reason(error)}") from None
        finally:
            response.release()
        if not isinstance(answer, dict):
            raise UnavailableError(f"{method} {path}: the answer is no JSON object")
        return answer

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        content_type: str = "application/json",
        limits: aiohttp.ClientTimeout | None = None,
        fence: Fence | None = None,
    ) -> aiohttp.ClientResponse:
        limits = limits or self._limits
        await self._wait_as_told(within(limits, fence).total, path)
        limits = within(limits, fence)
        if fence is not None:
            # Else the server could carry it out long after we gave it up.
            query = {**query, "timeout": f"{limits.total:.3f}s"}
        try:
            response = await self._send(method, path, query, body, content_type, limits, fence)
            if response.status >= 400:
                raise await self._refusal(response, f"{method} {path}")
        except (aiohttp.ClientError, OSError) as error:
            if fence is not None:
                still_open_s(fence)
            raise UnavailableError(f"{method} {self.url}{path}: {_reason(error)}") from None
        return response

    async def _wait_as_told(self, most_s: float | None, path: str) -> None:
        wait_s = self._not_before_s - _now_s()
        if most_s is not None and wait_s > most_s:
            raise UnavailableError(f"{path}: the server asked to be left alone for {wait_s:.0f} s")
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
        fence: Fence | None,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        headers.update(self._client.default_headers)
        await self._client.update_params_for_auth(headers, [], ["BearerToken"])
        rest = self._client.rest_client
        response: aiohttp.ClientResponse = await rest.pool_manager.request(
            method,
            # Else every part is taken for something that may still need its quotes.
            URL(f"{self.url}{path}?{urlencode(query)}" if query else self.url + path, encoded=True),
            headers=headers,
            data=None if body is None else FencedBody(json.dumps(body).encode(), fence),
            timeout=limits,
            proxy=rest.proxy,
            proxy_headers=rest.proxy_headers,
            server_hostname=rest.server_hostname,
        )
        return response

    async def _refusal(self, response: aiohttp.ClientResponse, what: str) -> ClusterError:
        text = await response.text(errors="replace")
        response.release()
        if response.status in (429, 503):
            wait_s = _retry_after_s(response.headers.get("Retry-After"))
            self._not_before_s = max(self._not_before_s, _now_s() + wait_s)
        if response.status == 401:
            await self._log_in_again()
        return error_for(response.status, f"{_message(text)} ({what})")

    async def _log_in_again(self) -> None:
        if _now_s() < self._logged_in_s + _LOG_IN_AGAIN_S:
            return
        self._logged_in_s = _now_s()
        try:
            await self._login.refresh(self._client.configuration)
        except KubeConfigError as error:
            _log.warning("can't renew the credentials: %s", error)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    try:
        async for line in response.content:
            event = json.loads(line)
            if isinstance(event, dict):
                yield event
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # The line that a broken connection cut in two is no JSON either.
        _log.debug("the watch of %s ended: %s", response.url.path, _reason(error))


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _retry_after_s(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), _LONGEST_WAIT_S)
    except ValueError:
        return 1.0


def _message(text: str) -> str:
    """The sentence in a Status object, or whatever a proxy said instead."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__

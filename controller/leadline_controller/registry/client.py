"""Reads manifests from registries by HTTP: the OCI distribution API.

aioregistry, the library for asyncio that is maintained, neither verifies TLS without a context of
its own nor digests, reads answers of any length without a time limit, and sends passwords to any
realm; oras and python-dxf block. So this is a client of our own, for two requests, on aiohttp.

It speaks HTTPS, unless registries.yaml says http. It never connects to loopback or link-local
addresses, unless registries.yaml names the registry: any pod may name one. It sends credentials
only over verified TLS, to the registry that they are for or to the realm that this one names.
"""

import asyncio
import json
import os
import re
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from leadline_controller import __version__
from leadline_controller.parsing.addresses import read_address
from leadline_controller.parsing.proxies import http_proxy_for
from leadline_controller.registry.manifests import (
    INDEXES,
    MANIFESTS,
    MAX_BYTES,
    AbsentError,
    AwayError,
    BrokenError,
    DeniedError,
    Index,
    Manifest,
    is_digest,
    read_answer,
)
from leadline_controller.registry.registries import Credentials, Endpoint, Registries

_TIMEOUT_S = 20.0
_CONNECT_S = 5.0
_MAX_TOKEN_BYTES = 2**16
_MAX_REDIRECTS = 3
_MAX_TOKENS = 256
_MAX_TOKEN_S = 600.0
_MAX_RETRY_AFTER_S = 6 * 3600.0
_CHALLENGE = re.compile(r'([a-z_]{1,32})="([^"]{0,1000})"', re.IGNORECASE)
_NAME = re.compile(r"(?!(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)$)[a-z0-9._-]+")
_SAME_ORIGIN = ("scheme", "netloc")


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class RegistryClient:
    """A Registry by HTTP.

    async with RegistryClient() as registry: ...
    """

    def __init__(self, registries: Registries | None = None) -> None:
        """registries: the rules, of which those for the hosts of realms are used."""
        self._registries = registries or Registries()
        self._tokens: dict[tuple[str, str, Credentials | None], tuple[str, float]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "RegistryClient":
        self._guarded = await self._stack.enter_async_context(_session(guard=True))
        self._named = await self._stack.enter_async_context(_session(guard=False))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def digest(self, endpoint: Endpoint) -> str | None:
        """See Registry. Docker Hub does not count this request."""
        answer = await self._ask("HEAD", endpoint)
        digest = answer.headers.get("Docker-Content-Digest")
        return digest if is_digest(digest) else None

    async def manifest(self, endpoint: Endpoint) -> Manifest | Index:
        """See Registry."""
        answer = await self._ask("GET", endpoint)
        by_digest = endpoint.reference if is_digest(endpoint.reference) else ""
        told = answer.headers.get("Docker-Content-Digest", "")
        return read_answer(answer.body, by_digest or (told if is_digest(told) else ""))

    async def _ask(self, method: str, endpoint: Endpoint) -> _Answer:
        """A request for the endpoint's manifest, with a login where the registry wants one."""
        if endpoint.problem:
            raise DeniedError(f"{endpoint.host}: {endpoint.problem}")
        base = endpoint.url if urlsplit(endpoint.url).path else f"{endpoint.url}/v2"
        url = f"{base}/{endpoint.path}/manifests/{endpoint.reference}"
        if endpoint.mirror_of:  # one that mirrors several registries needs to know which
            url += f"?{urlencode({'ns': endpoint.mirror_of})}"
        login = endpoint.credentials if endpoint.may_login else None
        key = (endpoint.host, endpoint.repository, login)
        headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        token, until_s = self._tokens.get(key, ("", 0.0))
        if token and until_s > _now_s():
            headers["Authorization"] = f"Bearer {token}"
        answer = await self._send(method, url, endpoint, headers)
        if answer.status == 401:
            challenge = answer.headers.get("WWW-Authenticate", "")
            headers["Authorization"] = await self._login(challenge, endpoint, login, key)
            answer = await self._send(method, url, endpoint, headers)
        _raise_for(answer, endpoint)
        return answer

    async def _login(
        self,
        challenge: str,
        endpoint: Endpoint,
        login: Credentials | None,
        key: tuple[str, str, Credentials | None],
    ) -> str:
        """The Authorization that answers a challenge. Raises RegistryError."""
        scheme, _, rest = challenge.partition(" ")
        pair = b64encode(f"{login.user}:{login.password}".encode()) if login and login.user else b""
        basic = f"Basic {pair.decode()}" if pair else ""
        if scheme.lower() == "basic" and basic:
            return basic
        fields = dict(_CHALLENGE.findall(rest[:4096]))
        if scheme.lower() != "bearer" or "realm" not in fields:
            raise DeniedError(f"{endpoint.host}: it wants a login that is not known here")
        realm = urlsplit(fields["realm"])
        plain = realm.scheme == "http" and realm.netloc == endpoint.host
        if not realm.netloc or "@" in realm.netloc or not (realm.scheme == "https" or plain):
            raise DeniedError(f"{endpoint.host}: its realm for tokens is not https")
        query = {"scope": f"repository:{endpoint.path}:pull"}
        if "service" in fields:
            query["service"] = fields["service"]
        at = f"{realm.scheme}://{realm.netloc}{realm.path}?{urlencode(query)}"
        headers = {"Authorization": basic} if basic and not plain else {}
        # The realm is the registry's word, so it is treated as the host that it names.
        same = realm.netloc == endpoint.host
        where = endpoint if same else self._registries.host(realm.netloc, endpoint)
        headers = headers if where.may_login else {}
        answer = await self._send("GET", at, where, headers, _MAX_TOKEN_BYTES)
        _raise_for(answer, where)
        token, lasts_s = _token(answer.body, endpoint)
        if len(self._tokens) >= _MAX_TOKENS:
            self._tokens.clear()
        self._tokens[key] = token, _now_s() + min(lasts_s, _MAX_TOKEN_S) * 0.9
        return f"Bearer {token}"

    async def _send(
        self,
        method: str,
        url: str,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        most: int = MAX_BYTES,
    ) -> _Answer:
        """One request and at most three redirects. Raises AwayError, BrokenError, DeniedError."""
        sent = dict(headers)
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._send_once(method, url, endpoint, sent, most)
            location = answer.headers.get("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return answer
            before, target = urlsplit(url), urlsplit(urljoin(url, location))
            if any(getattr(before, part) != getattr(target, part) for part in _SAME_ORIGIN):
                if target.scheme != "https" or "@" in target.netloc:
                    raise DeniedError(f"{endpoint.host}: it redirects to what is not https")
                sent.pop("Authorization", None)
                endpoint = self._registries.host(target.netloc, endpoint)
            url = target.geturl()
        raise BrokenError(f"{endpoint.host}: too many redirects")

    async def _send_once(
        self, method: str, url: str, endpoint: Endpoint, headers: Mapping[str, str], most: int
    ) -> _Answer:
        host = urlsplit(url).hostname or ""
        if not endpoint.is_named and not _may_reach(host):
            raise DeniedError(f"{endpoint.host}: only registries.yaml may name this address")
        try:
            proxy = http_proxy_for(url, os.environ)
            # A proxy resolves the name itself, and may be on this machine.
            session = self._named if endpoint.is_named or proxy else self._guarded
            async with session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                ssl=True if endpoint.tls is None else endpoint.tls,
                proxy=proxy,
            ) as response:
                body = b""
                if method != "HEAD":
                    body = await _read(response, most, endpoint)
                return _Answer(response.status, response.headers, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise AwayError(f"{endpoint.host}: {_reason(error)}") from None


def _session(*, guard: bool) -> aiohttp.ClientSession:
    resolver = _GuardedResolver() if guard else None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=8, limit_per_host=2, resolver=resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"leadline-controller/{__version__}"},
        timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S, sock_connect=_CONNECT_S),
        auto_decompress=False,  # a few bytes may unpack to gigabytes
        skip_auto_headers=("Accept-Encoding",),
    )


class _GuardedResolver(AbstractResolver):
    """Resolves names to addresses that may be reached."""

    def __init__(self) -> None:
        self._resolver = aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        allowed = [each for each in found if _may_reach(each["host"])]
        if not allowed:
            raise OSError("only registries.yaml may name this address")
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _may_reach(host: str) -> bool:
    """Whether this is a name, or an address at which a registry may be.

    A name that ends in a number is an IPv4 address, as in browsers: resolvers take 127.1, 0x7f.1
    and 2130706433 for one. It has to be written as four decimal numbers."""
    name = host.rstrip(".").lower()
    address = read_address(name)
    if address is None:
        is_local = name == "localhost" or name.endswith(".localhost")
        return _NAME.fullmatch(name) is not None and not is_local
    within = getattr(address, "sixtofour", None) or address
    return not any(
        each.is_loopback
        or each.is_link_local
        or each.is_multicast
        or each.is_unspecified
        or each.is_reserved
        for each in (address, within)
    )


async def _read(response: aiohttp.ClientResponse, most: int, endpoint: Endpoint) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > most:
            response.close()
            raise BrokenError(f"{endpoint.host}: its answer is longer than {most} bytes")
        parts.append(part)
    return b"".join(parts)


def _raise_for(answer: _Answer, endpoint: Endpoint) -> None:
    host, status = endpoint.host, answer.status
    if status == 200:
        return
    if status == 404:
        raise AbsentError(f"{host}: no such image")
    if status in (401, 403):
        raise DeniedError(f"{host}: access denied")
    if status == 429 or status >= 500:
        try:
            after_s = float(answer.headers.get("Retry-After", "0"))
        except ValueError:
            after_s = 0.0
        wait_s = after_s if 0 <= after_s <= _MAX_RETRY_AFTER_S else _MAX_RETRY_AFTER_S
        limit = " (too many requests)" if status == 429 else ""
        raise AwayError(f"{host}: HTTP status {status}{limit}", wait_s)
    raise BrokenError(f"{host}: HTTP status {status}")


def _token(body: bytes, endpoint: Endpoint) -> tuple[str, float]:
    """The token and how long it lasts, s. distribution-spec leaves it to Docker's specification of
    tokens: without expires_in it lasts 60 s."""
    try:
        answer = json.loads(body)
        token = answer.get("token") or answer.get("access_token")
        lasts_s = answer.get("expires_in", 60)
    except (ValueError, AttributeError, RecursionError):
        raise BrokenError(f"{endpoint.host}: its realm's answer is no token") from None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise BrokenError(f"{endpoint.host}: its realm's answer is no token")
    is_number = isinstance(lasts_s, int) and not isinstance(lasts_s, bool)
    return token, float(min(max(lasts_s, 0), _MAX_TOKEN_S)) if is_number else 60.0


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return " ".join(str(error).split())[:200] or type(error).__name__

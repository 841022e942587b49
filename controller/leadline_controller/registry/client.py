"""Reads manifests from registries by HTTP: the OCI distribution API.

aioregistry, the library for asyncio that is maintained, neither verifies TLS without a context of
its own nor digests, reads answers of any length without a time limit, and sends passwords to any
realm; oras and python-dxf block. So this is a client of our own, for two requests, on aiohttp.

It logs in as containerd does (core/remotes/docker). It speaks HTTPS, unless registries.yaml says
http. It never connects to loopback or link-local addresses, unless registries.yaml names the
registry: any pod may name one. It sends credentials only over verified TLS, to the registry that
they are for or to the realm that this one names.
"""

import asyncio
import os
import re
import socket
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import mktime_tz, parsedate_tz
from functools import partial
from ipaddress import IPv4Address, IPv6Network
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDictProxy
from yarl import URL

from leadline_controller import __version__
from leadline_controller.parsing.addresses import read_address
from leadline_controller.parsing.proxies import ProxyError, http_proxy_for
from leadline_controller.registry.challenges import challenges
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
    SilentError,
    is_digest,
    read_answer,
    read_json,
)
from leadline_controller.registry.registries import Credentials, Endpoint, Registries
from leadline_controller.tls import tls_context

_TIMEOUT_S = 20.0
_FIND_S = 10.0  # for the name and a connection
_CONNECT_S = 5.0
_RESOLVING = 16  # of which four are waited for
_MAX_TOKEN_BYTES = 2**16
_MAX_REDIRECTS = 3
_MAX_TOKENS = 256
_MAX_TOKEN_S = 600.0
_MAX_RETRY_AFTER_S = 6 * 3600.0
_NAME = re.compile(r"(?!(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)$)[a-z0-9._-]+")
_NAT64 = IPv6Network("64:ff9b::/96")
_MAX_SCOPES = 8
_RECEIVE_BYTES = 2**14
_MAX_HEADER_BYTES = 2**15  # a signed address is long
# No connection to the registry, so no other of its images has one.
_UNREACHED = (
    ProxyError,
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
_SAME_ORIGIN = ("scheme", "netloc")


class _Answer(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    # Who gave it, after redirects, and to a request of which URL.
    by: Endpoint
    url: str


class _Token(msgspec.Struct):
    """Docker's specification of tokens, and OAuth's."""

    token: str | None = None
    access_token: str | None = None
    expires_in: msgspec.Raw = msgspec.Raw(b"null")  # a number, or text with one


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
        self._tls = await asyncio.to_thread(tls_context)
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
        """See Registry. Docker Hub does not count this request. Some registries refuse it, with
        whatever status, or send a body; what they say to GET counts."""
        try:
            answer = await self._ask("HEAD", endpoint)
        except BrokenError:
            return None
        if answer.status in (404, 429) or (answer.status >= 500 and answer.status != 501):
            _raise_for(answer, endpoint)
        digest = answer.headers.get("Docker-Content-Digest") if answer.status == 200 else None
        return digest if is_digest(digest) else None

    async def manifest(self, endpoint: Endpoint) -> Manifest | Index:
        """See Registry."""
        answer = await self._ask("GET", endpoint)
        _raise_for(answer, endpoint)
        by_digest = endpoint.reference if is_digest(endpoint.reference) else ""
        told = answer.headers.get("Docker-Content-Digest", "")
        expected = by_digest or (told if is_digest(told) else "")
        try:
            return await asyncio.to_thread(read_answer, answer.body, expected)
        except BrokenError as error:
            raise BrokenError(f"{endpoint.host}: {error}") from None

    async def _ask(self, method: str, endpoint: Endpoint) -> _Answer:
        """A request for the endpoint's manifest, with a login where the registry wants one."""
        if endpoint.problem:
            raise DeniedError(f"{endpoint.host}: {endpoint.problem}")
        base = endpoint.url if urlsplit(endpoint.url).path else f"{endpoint.url}/v2"
        url = f"{base}/{endpoint.path}/manifests/{endpoint.reference}"
        if endpoint.mirror_of:  # one that mirrors several registries needs to know which
            url += f"?{urlencode({'ns': endpoint.mirror_of})}"
        # As containerd: whatever else it has tells more than that it has nothing.
        headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS, "*/*"))}
        sent = self._held(endpoint)
        answer = await self._send(method, url, endpoint, headers, authorization=sent)
        asked: set[str] = set()
        # Who redirects to another registry (lscr.io to ghcr.io, say) leaves it to that one to ask
        # for a login, which is for that one only.
        while answer.status == 401 and answer.by.host not in asked and len(asked) <= _MAX_REDIRECTS:
            by = answer.by
            asked.add(by.host)
            held = self._held(by)
            if not held or (by.host == endpoint.host and held == sent):
                held = await self._login(answer.headers.getall("WWW-Authenticate", ()), by)
            answer = await self._send(method, answer.url, by, headers, authorization=held)
        return answer

    def _held(self, endpoint: Endpoint) -> str:
        """The Authorization with a token that still lasts, "" without one."""
        token, until_s = self._tokens.get(_key(endpoint), ("", 0.0))
        return f"Bearer {token}" if token and until_s > _now_s() else ""

    async def _login(self, wanted: Iterable[str], endpoint: Endpoint) -> str:
        """The Authorization that answers the first challenge which can be answered. Raises
        RegistryError."""
        login = _login_of(endpoint)
        why = "it wants a login that is not known here"
        for scheme, fields in challenges(wanted):
            if scheme == "basic" and login is not None and login.user:
                return _basic(login)
            if scheme == "bearer":
                realm = _realm(fields.get("realm", ""), endpoint)
                if realm is not None:
                    return await self._bearer(realm, fields, endpoint, login)
                why = "its realm for tokens is not https"
        raise _denied(endpoint, why)

    async def _bearer(
        self,
        realm: URL,
        fields: Mapping[str, str],
        endpoint: Endpoint,
        login: Credentials | None,
    ) -> str:
        """A token of this realm. As containerd: with credentials first by OAuth's POST, and by GET
        where that is refused; with the scopes that the registry names and that of the repository,
        which differ behind a path of a mirror."""
        asked = f"repository:{endpoint.path}:pull"
        scopes = list(dict.fromkeys((asked, *fields.get("scope", "").split())))[:_MAX_SCOPES]
        service = fields.get("service", "")
        # The realm is the registry's word, so it is treated as the host that it names.
        netloc = urlsplit(str(realm)).netloc
        where = endpoint if _is_same(realm, endpoint) else self._registries.host(netloc, endpoint)
        login = login if where.may_login and realm.scheme == "https" else None
        answer = None
        if login is not None:
            form = {"client_id": "leadline", "service": service, "scope": " ".join(scopes)}
            if login.user:
                form |= {"grant_type": "password", "username": login.user}
                form |= {"password": login.password}
            else:  # an identity token
                form |= {"grant_type": "refresh_token", "refresh_token": login.password}
            # It follows no redirect, because its body is a password.
            answer = await self._send_once(
                "POST", str(realm), where, {}, _MAX_TOKEN_BYTES, aiohttp.FormData(form)
            )
        if answer is None or answer.status == 501 or answer.status in {*range(300, 500)} - {429}:
            query = [("service", service)] if service else []
            at = realm.extend_query([*query, *(("scope", scope) for scope in scopes)])
            basic = "" if login is None else _basic(login)
            answer = await self._send("GET", str(at), where, {}, _MAX_TOKEN_BYTES, basic)
        if answer.status == 404:
            raise DeniedError(f"{where.host}: HTTP status 404 where it should give tokens")
        could_login = replace(
            where, credentials=endpoint.credentials, may_login=login == endpoint.credentials
        )
        _raise_for(answer, could_login)
        token, lasts_s = _token(answer.body, endpoint)
        if len(self._tokens) >= _MAX_TOKENS:
            self._tokens.clear()
        self._tokens[_key(endpoint)] = token, _now_s() + min(lasts_s, _MAX_TOKEN_S) * 0.9
        return f"Bearer {token}"

    async def _send(
        self,
        method: str,
        url: str,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        most: int = MAX_BYTES,
        authorization: str = "",
    ) -> _Answer:
        """One request and at most three redirects. authorization: for the URL's host only. Raises
        AwayError, BrokenError, DeniedError."""
        sent = {**headers, **({"Authorization": authorization} if authorization else {})}
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._send_once(method, url, endpoint, sent, most)
            location = answer.headers.get("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return answer
            try:
                before, target = urlsplit(url), urlsplit(urljoin(url, location))
                if not (location.isascii() and location.isprintable()):
                    raise ValueError  # errors name its host
            except ValueError:
                raise BrokenError(f"{endpoint.host}: it redirects to no address") from None
            if any(getattr(before, part) != getattr(target, part) for part in _SAME_ORIGIN):
                if target.scheme != "https" or "@" in target.netloc:
                    raise DeniedError(f"{endpoint.host}: it redirects to what is not https")
                sent.pop("Authorization", None)
                there = self._registries.host(target.netloc, endpoint)
                # Whom a pod names must not have the controller log in elsewhere.
                login = there.credentials if endpoint.is_named else None
                endpoint = replace(there, repository=endpoint.repository, credentials=login)
            url = target.geturl()
        raise BrokenError(f"{endpoint.host}: too many redirects")

    async def _send_once(
        self,
        method: str,
        url: str,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        most: int,
        form: aiohttp.FormData | None = None,
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
                data=form,
                allow_redirects=False,
                ssl=endpoint.tls or self._tls,
                proxy=proxy,
            ) as response:
                body = b""
                if method != "HEAD":
                    body = await _read(response, most, endpoint)
                return _Answer(response.status, response.headers, body, endpoint, url)
        except _UNREACHED as error:
            raise AwayError(f"{endpoint.host}: {_reason(error)}") from None
        except aiohttp.ClientResponseError as error:
            what = " ".join(error.message.partition("\n")[0].split())[:100].rstrip(":")
            raise BrokenError(f"{endpoint.host}: its answer is not HTTP: {what}") from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise SilentError(f"{endpoint.host}: {_reason(error)}") from None


def _session(*, guard: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # More connections than requests at once, so that none waits for one.
        connector=aiohttp.TCPConnector(
            limit=8,
            limit_per_host=4,
            resolver=_Resolver(guard=guard),
            socket_factory=_small_socket,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"leadline-controller/{__version__}"},
        timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S, connect=_FIND_S, sock_connect=_CONNECT_S),
        max_field_size=_MAX_HEADER_BYTES,
        auto_decompress=False,  # a few bytes may unpack to gigabytes
        skip_auto_headers=("Accept-Encoding",),
    )


def _small_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket from which little comes at once: chunks of one byte take a hundred times as long to
    parse as what they are part of, and block the event loop meanwhile."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    return made


class _Resolver(AbstractResolver):
    """Resolves names, if guarded to addresses that may be reached.

    It has threads of its own: without a name server each question takes some 20 s, and the threads
    of the event loop are for all that the controller writes.
    """

    def __init__(self, *, guard: bool) -> None:
        self._guard = guard
        self._threads = ThreadPoolExecutor(_RESOLVING, "registry-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        answers = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        found = [
            ResolveResult(
                hostname=host,
                # A link-local address has a scope.
                host=str(address[0])
                + (f"%{address[3]}" if len(address) > 3 and address[3] else ""),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, protocol, _, address in answers
        ]
        allowed = [each for each in found if not self._guard or _may_reach(each["host"])]
        if not allowed:
            raise OSError("only registries.yaml may name this address")
        return allowed

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _may_reach(host: str) -> bool:
    """Whether this is a name, or an address at which a registry may be.

    A name that ends in a number is an IPv4 address, as in browsers: resolvers take 127.1, 0x7f.1
    and 2130706433 for one. It has to be written as four decimal numbers."""
    name = host.rstrip(".").lower()
    address = read_address(name)
    if address is None:
        is_local = name == "localhost" or name.endswith(".localhost")
        return _NAME.fullmatch(name) is not None and not is_local
    if address in _NAT64:  # where DNS64 sends whoever has no IPv4
        address = IPv4Address(int(address) % 2**32)
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
    body = bytearray()
    is_long = (response.content_length or 0) > most
    while not is_long and (part := await response.content.readany()):
        body += part
        is_long = len(body) > most
    if is_long:
        response.close()
        raise BrokenError(f"{endpoint.host}: its answer is longer than {most} bytes")
    return bytes(body)


def _raise_for(answer: _Answer, endpoint: Endpoint) -> None:
    host, status = endpoint.host, answer.status
    if 200 <= status < 300:
        return
    if status == 404:
        raise AbsentError(f"{host}: no such image")
    if status in (401, 403):
        raise _denied(endpoint, "access denied")
    is_busy = status in (429, 503) or (status >= 500 and "Retry-After" in answer.headers)
    if is_busy:
        limit = " (too many requests)" if status == 429 else ""
        after_s = retry_after_s(answer.headers, time.time())
        raise AwayError(f"{host}: HTTP status {status}{limit}", after_s)
    # A mirror that can't look up one image says 500, 502 or 504, and has others.
    raise BrokenError(f"{host}: HTTP status {status}")


def _denied(endpoint: Endpoint, why: str) -> DeniedError:
    is_kept = endpoint.credentials is not None and not endpoint.may_login
    more = "; the password for it is sent only over verified TLS" if is_kept else ""
    return DeniedError(f"{endpoint.host}: {why}{more}")


def retry_after_s(headers: Mapping[str, str], unix_s: float) -> float:
    """How long the header Retry-After wants to be waited, s: at most six hours, 0 if it cannot be
    read. RFC 9110, 10.2.3: seconds, or a date, which is compared with the server's own Date,
    because a board's clock may be wrong. unix_s: the time, where the server tells none."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", value):
        wait_s = float(value)
    else:
        at_s, server_s = _unix_s(value), _unix_s(headers.get("Date", ""))
        wait_s = 0.0 if at_s is None else at_s - (unix_s if server_s is None else server_s)
    return min(max(wait_s, 0.0), _MAX_RETRY_AFTER_S)


def _unix_s(date: str) -> float | None:
    try:
        parsed = parsedate_tz(date)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError, IndexError):
        return None


def _login_of(endpoint: Endpoint) -> Credentials | None:
    return endpoint.credentials if endpoint.may_login else None


def _key(endpoint: Endpoint) -> tuple[str, str, Credentials | None]:
    """What a token is for."""
    return endpoint.host, endpoint.repository, _login_of(endpoint)


def _basic(login: Credentials) -> str:
    return f"Basic {b64encode(f'{login.user}:{login.password}'.encode()).decode()}"


def _realm(text: str, endpoint: Endpoint) -> URL | None:
    """The address of a realm; None if it is not https, nor plain HTTP on the registry itself, as
    GitLab's is on another port."""
    try:
        realm = URL(text)
        is_plain = realm.scheme == "http" and _is_same(realm, endpoint)
        safe = realm.host and realm.raw_user is None and realm.raw_password is None
    except ValueError:
        return None
    return realm.with_fragment(None) if safe and (realm.scheme == "https" or is_plain) else None


def _is_same(realm: URL, endpoint: Endpoint) -> bool:
    own = URL(endpoint.url)
    is_plain = realm.scheme == own.scheme == "http"
    return realm.host == own.host if is_plain else realm.origin() == own.origin()


def _token(body: bytes, endpoint: Endpoint) -> tuple[str, float]:
    """The token and how long it lasts, s. distribution-spec leaves it to Docker's specification of
    tokens: without expires_in it lasts 60 s."""
    try:
        answer = read_json(body, _Token, "token")
    except BrokenError:
        answer = _Token()
    token = answer.access_token or answer.token
    if not token or not token.isascii() or not token.isprintable():
        raise BrokenError(f"{endpoint.host}: its realm's answer is no token")
    try:
        lasts_s = float(bytes(answer.expires_in).strip(b'"'))
    except ValueError:
        lasts_s = 60.0
    return token, min(max(lasts_s, 0.0), _MAX_TOKEN_S) if lasts_s == lasts_s else 60.0


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return " ".join(str(error).split())[:200] or type(error).__name__

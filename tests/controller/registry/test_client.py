"""The client with servers that misbehave: sizes, redirects, realms, addresses, credentials."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest
from aiohttp import web
from leadline_controller.registry.client import (
    _RECEIVE_BYTES,
    RegistryClient,
    _may_reach,
    _small_socket,
    _token,
    retry_after_s,
)
from leadline_controller.registry.manifests import (
    MAX_BYTES,
    AbsentError,
    AwayError,
    BrokenError,
    DeniedError,
    Index,
    Manifest,
    RegistryError,
    SilentError,
    read_answer,
)
from leadline_controller.registry.registries import (
    Credentials,
    Endpoint,
    Reference,
    load_registries,
)

from tests.support.certificates import Authority
from tests.support.registries import context, digest, manifest

LOGIN = Credentials("boards", "hunter2")
BODY = manifest(b"layer")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on loopback; yields host:port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        (address,) = runner.addresses
        yield f"127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()


def realm_of(request: web.Request) -> str:
    """A challenge for a token of this server."""
    return f'Bearer realm="{request.scheme}://{request.host}/token",service="s"'


async def bearer(request: web.Request) -> web.Response:
    """Wants and gives the token t."""
    if request.path == "/token":
        return web.json_response({"token": "t"})
    return web.Response(status=401, headers={"WWW-Authenticate": realm_of(request)})


async def asked(handler: Handler, reference: str = "1", **fields: object) -> object:
    async with serving(handler) as host, RegistryClient() as client:
        at = Endpoint(f"http://{host}", "web", reference, is_named=True, may_login=False)
        fields.setdefault("credentials", LOGIN)
        for name, value in fields.items():
            object.__setattr__(at, name, value)
        return await client.manifest(at)


async def test_a_manifest_is_read() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/v2/web/manifests/1"
        assert "application/vnd.oci.image.index.v1+json" in request.headers["Accept"]
        assert "Authorization" not in request.headers
        return web.Response(body=BODY)

    assert isinstance(await asked(handler), Manifest)


async def test_an_answer_without_an_end_is_cut_off() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 50 * MAX_BYTES:
            await response.write(b" " * 2**16)
            sent += 2**16
        return response

    with pytest.raises(BrokenError, match="longer than"):
        await asked(handler)
    assert sent < 10 * MAX_BYTES


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    with pytest.raises(BrokenError, match="not JSON"):
        await asked(handler)


async def test_an_answer_with_another_digest_is_refused() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=BODY, headers={"Docker-Content-Digest": digest(b"else")})

    with pytest.raises(BrokenError, match="digest"):
        await asked(handler)
    with pytest.raises(BrokenError, match="digest"):
        await asked(handler, reference=digest(b"else"))


async def test_redirects_end_and_lead_only_to_https() -> None:
    async def in_circles(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.path)

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://10.0.0.1/v2/")

    async def to_a_file(_: web.Request) -> web.Response:
        raise web.HTTPFound("file:///etc/passwd")

    async def inside(_: web.Request) -> web.Response:
        raise web.HTTPFound("https://169.254.169.254/latest/meta-data")

    with pytest.raises(BrokenError, match="redirects"):
        await asked(in_circles)
    for handler in (elsewhere, to_a_file):
        with pytest.raises(DeniedError, match="not https"):
            await asked(handler)
    with pytest.raises(DeniedError, match=r"registries\.yaml"):
        await asked(inside)


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "Basic",
        "Bearer",
        'Bearer realm=""',
        'Bearer realm="http://10.0.0.1/token"',
        'Bearer realm="file:///etc/passwd"',
        'Bearer realm="https://user:word@x/"',
        'Bearer realm="https://169.254.169.254/token"',
        'Bearer realm="https://localhost/token"',
        "Negotiate " + "x" * 5000,
    ],
)
async def test_a_realm_that_is_not_safe_gets_no_request(challenge: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers, "not in plain text"
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    with pytest.raises((DeniedError, AwayError)):
        await asked(handler)


async def test_a_token_is_used_until_it_expires_and_never_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal tokens
        assert "hunter2" not in str(request.headers)
        if request.path == "/token":
            assert request.query["scope"] == "repository:web:pull"
            tokens += 1
            return web.json_response({"token": f"secret-{tokens}", "expires_in": 60})
        if request.headers.get("Authorization") != "Bearer secret-1":
            realm = f'Bearer realm="http://{request.host}/token",service="x"'
            return web.Response(status=401, headers={"WWW-Authenticate": realm})
        return web.Response(body=BODY)

    async with serving(handler) as host, RegistryClient() as client:
        at = Endpoint(
            f"http://{host}", "web", "1", is_named=True, may_login=False, credentials=LOGIN
        )
        for _ in range(3):
            await client.manifest(at)
    assert tokens == 1
    assert "secret" not in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "answer", [{}, {"token": 5}, {"token": "x\r\ny"}, [], {"token": "\ud800"}, "x" * 10]
)
async def test_a_token_that_is_none_is_refused(answer: object) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/token":
            return web.Response(body=json.dumps(answer).encode())
        realm = f'Bearer realm="http://{request.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": realm})

    with pytest.raises(BrokenError, match="no token"):
        await asked(handler)


@pytest.mark.parametrize(
    ("answer", "lasts_s"),
    [
        ({"token": "t"}, 60.0),
        ({"access_token": "t", "expires_in": 300}, 300.0),
        ({"access_token": "t", "token": "other", "expires_in": 300.5}, 300.5),
        ({"token": "t", "expires_in": "300"}, 300.0),
        ({"token": "t", "expires_in": None, "issued_at": 5}, 60.0),
        ({"token": "t", "expires_in": []}, 60.0),
        ({"token": "t", "expires_in": "soon"}, 60.0),
        ({"token": "t", "expires_in": "nan"}, 60.0),
        ({"token": "t", "expires_in": -1}, 0.0),
        ({"token": "t", "expires_in": 10**9}, 600.0),
    ],
)
def test_a_token_lasts_as_long_as_its_realm_says(answer: object, lasts_s: float) -> None:
    assert _token(json.dumps(answer).encode(), Endpoint("https://x", "", "")) == ("t", lasts_s)


async def test_a_token_asks_for_what_the_registry_names() -> None:
    """The realm's own query is kept. Behind a path of a mirror, the registry has another name for
    the repository."""
    asked_for: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/token":
            asked_for.extend(request.query.items())
            return web.json_response({"token": "t"})
        if request.headers.get("Authorization") != "Bearer t":
            realm = f'Bearer realm="http://{request.host}/token?account=a%2Bb&service=old"'
            realm += ',service="a b&c",scope="repository:hub/web:pull repository:web:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": realm})
        return web.Response(body=BODY)

    assert isinstance(await asked(handler), Manifest)
    assert asked_for == [
        ("account", "a+b"),
        ("service", "old"),
        ("service", "a b&c"),
        ("scope", "repository:web:pull"),
        ("scope", "repository:hub/web:pull"),
    ]


async def test_a_token_that_is_refused_is_replaced_once() -> None:
    tokens: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/token":
            tokens.append(f"t{len(tokens)}")
            return web.json_response({"token": tokens[-1], "expires_in": 600})
        if request.headers.get("Authorization") in valid:
            return web.Response(body=BODY)
        return web.Response(status=401, headers={"WWW-Authenticate": realm_of(request)})

    async with serving(handler) as host, RegistryClient() as client:
        at = Endpoint(f"http://{host}", "web", "1", is_named=True, may_login=False)
        valid = {"Bearer t0"}
        await client.manifest(at)
        valid = {"Bearer t1"}  # revoked
        await client.manifest(at)
        assert tokens == ["t0", "t1"]
        valid = set()
        with pytest.raises(DeniedError):
            await client.manifest(at)
        assert len(tokens) == 3


@pytest.mark.parametrize(
    ("status", "retry", "after_s"),
    [(429, "120", 120.0), (503, "soon", 0.0), (500, "9" * 5000, 21600.0), (429, "-5", 0.0)],
)
async def test_a_busy_registry_says_when_to_come_again(
    status: int, retry: str, after_s: float
) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": retry})

    with pytest.raises(AwayError) as error:
        await asked(handler)
    assert error.value.after_s == after_s


NOW = "Wed, 25 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("", "", 0.0),
        ("0", "", 0.0),
        (" 30 ", "", 30.0),
        ("1.5", "", 1.5),
        ("1e3", "", 0.0),
        ("+30", "", 0.0),
        ("\u0663", "", 0.0),
        ("nan", "", 0.0),
        ("99999999999999999999", "", 21600.0),
        ("Wed, 25 Nov 2026 12:10:00 GMT", NOW, 600.0),
        ("Wednesday, 25-Nov-26 12:10:00 GMT", NOW, 600.0),
        ("Wed Nov 25 12:10:00 2026", NOW, 600.0),
        ("Wed, 25 Nov 2026 12:10:00 GMT", "", 660.0),
        ("Wed, 25 Nov 2026 12:10:00 GMT", "yesterday", 660.0),
        ("Wed, 25 Nov 2026 11:00:00 GMT", NOW, 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", NOW, 21600.0),
        ("Wed, 25 Nov 99999999 12:10:00 GMT", NOW, 0.0),
        ("tomorrow", NOW, 0.0),
    ],
)
def test_every_form_of_retry_after_is_bounded(value: str, date: str, expected: float) -> None:
    """The server's own date counts, because this machine's may be wrong: here by a minute."""
    headers = {"Retry-After": value} | ({"Date": date} if date else {})
    at_s = datetime(2026, 11, 25, 11, 59, tzinfo=UTC).timestamp()
    assert retry_after_s(headers, at_s) == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BrokenError),
        (401, DeniedError),
        (403, DeniedError),
        (404, AbsentError),
        (429, AwayError),
        (500, BrokenError),
        (502, BrokenError),
        (503, AwayError),
    ],
)
async def test_a_status_is_of_the_image_or_of_its_server(
    status: int, kind: type[RegistryError]
) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"WWW-Authenticate": 'Basic realm="r"'})

    with pytest.raises(kind):
        await asked(handler)


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 501])
async def test_a_refused_head_leaves_the_answer_to_get(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer t":
            return await bearer(request)
        return web.Response(body=BODY) if request.method == "GET" else web.Response(status=status)

    async with serving(handler) as host, RegistryClient() as client:
        at = Endpoint(f"http://{host}", "web", "1", is_named=True, may_login=False)
        assert await client.digest(at) is None
        assert isinstance(await client.manifest(at), Manifest)


@asynccontextmanager
async def raw(*answers: bytes) -> AsyncIterator[Endpoint]:
    """A registry that answers one request after the other with these bytes."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield Endpoint(f"http://{host}", "web", "1", is_named=True, may_login=False)
    finally:
        listening.close()


def whole(*headers: bytes) -> bytes:
    length = b"Content-Length: %d" % len(BODY)
    return b"\r\n".join((b"HTTP/1.1 200 OK", length, *headers, b"", BODY))


@pytest.mark.parametrize("answer", [whole(), b"HTTP/1.1 99 X\r\n\r\n"], ids=["body", "status"])
async def test_a_head_that_is_not_http_leaves_the_answer_to_get(answer: bytes) -> None:
    """Go reads a body that follows an answer to HEAD."""
    async with raw(answer, whole(b"X-Policy: " + b"x" * 20_000)) as at, RegistryClient() as client:
        assert await client.digest(at) is None
        assert isinstance(await client.manifest(at), Manifest)


async def test_what_is_not_http_says_so_in_one_line() -> None:
    async with raw(b"SSH-2.0-OpenSSH_9.2\r\n") as at, RegistryClient() as client:
        with pytest.raises(BrokenError) as error:
            await client.manifest(at)
    assert str(error.value) == f"{at.host}: its answer is not HTTP: Bad status line"


@pytest.mark.parametrize(
    "location", [b"https://a\xff/", b"https://a\x1b[31m/", b"https://\xc3\xa9/"]
)
async def test_no_error_has_what_cannot_be_shown(location: bytes) -> None:
    answer = b"HTTP/1.1 302 X\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    async with raw(answer) as at, RegistryClient() as client:
        with pytest.raises(RegistryError) as error:
            await client.manifest(at)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(("status", "kind"), [(404, AbsentError), (429, AwayError)])
async def test_a_head_may_say_it_all(status: int, kind: type[RegistryError]) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serving(handler) as host, RegistryClient() as client:
        with pytest.raises(kind):
            await client.digest(Endpoint(f"http://{host}", "web", "1", is_named=True))


async def test_a_registry_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_controller.registry.client._TIMEOUT_S", 0.2)

    given_up = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        await given_up.wait()
        return web.Response()

    async with serving(handler) as host, RegistryClient() as client:
        with pytest.raises(SilentError, match="no answer in time"):
            await client.manifest(Endpoint(f"http://{host}", "web", "1", is_named=True))
        given_up.set()


async def test_a_connection_that_breaks_off_is_not_a_registry_that_cannot_be_reached() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(SilentError):
        await asked(handler)
    async with RegistryClient() as client:
        with pytest.raises(AwayError) as error:
            await client.manifest(Endpoint("http://127.0.0.1:1", "web", "1", is_named=True))
    assert not isinstance(error.value, SilentError)


async def test_names_without_a_server_hold_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The threads of the event loop are free while names are looked for in vain."""
    found = threading.Event()

    def slow(*_: object) -> list[object]:
        found.wait(60)
        raise socket.gaierror("no such name")

    monkeypatch.setattr("leadline_controller.registry.client._FIND_S", 0.02)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        async with RegistryClient() as client:
            for number in range(40):
                with pytest.raises(AwayError) as error:
                    await client.manifest(Endpoint(f"https://r{number}.example", "web", "1"))
                assert not isinstance(error.value, SilentError)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"
            names = [each.name for each in threading.enumerate()]
            assert 0 < sum(name.startswith("registry-names") for name in names) <= 16
    finally:
        found.set()


async def test_what_a_registry_sends_is_taken_in_small_parts_and_read_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_by: list[threading.Thread] = []

    def read(body: bytes, expected: str) -> Manifest | Index:
        read_by.append(threading.current_thread())
        return read_answer(body, expected)

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=BODY)

    monkeypatch.setattr("leadline_controller.registry.client.read_answer", read)
    await asked(handler)
    assert threading.main_thread() not in read_by
    assert len(read_by) == 1
    family = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    with _small_socket((*family, "", ("127.0.0.1", 0))) as made:
        most = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert most <= 2 * _RECEIVE_BYTES, "the kernel doubles it"


async def test_addresses_of_this_machine_are_for_registries_yaml_to_name() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=BODY)

    for named in (False, True):
        async with serving(handler) as host, RegistryClient() as client:
            for name in (host, host.replace("127.0.0.1", "localhost")):
                at = Endpoint(f"http://{name}", "web", "1", is_named=named)
                if named:
                    assert isinstance(await client.manifest(at), Manifest)
                else:
                    with pytest.raises(RegistryError, match=r"registries\.yaml"):
                        await client.manifest(at)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("reg.example", True),
        ("10.0.0.5", True),
        ("192.168.1.2", True),
        ("fd00::1", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("169.254.169.254", False),
        ("fe80::1%eth0", False),
        ("0.0.0.0", False),  # nothing binds here
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("reg-1.example.", True),
        ("10.example", True),
        ("reg_1.lan", True),
        ("10.0.0.5.", True),
        ("registry", True),
        # A resolver takes these for loopback.
        ("127.1", False),
        ("2130706433", False),
        ("017700000001", False),
        ("0x7f.1", False),
        ("0X7F000001", False),
        ("0x", False),
        ("127.0.0.01", False),
        ("127.0.0.1.", False),
        ("127.0.1.", False),
        ("0", False),
        ("0.", False),
        ("localhost", False),
        ("LocalHost.", False),
        ("a.localhost", False),
        ("::ffff:7f00:1", False),
        ("::127.0.0.1", False),
        ("::1%lo", False),
        ("2002:7f00:1::", False),  # 6to4 of 127.0.0.1
        ("2002:a00:5::", True),
        ("64:ff9b::7f00:1", False),  # NAT64 of 127.0.0.1
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::c000:201", True),
        ("\uff11\uff12\uff17.0.0.1", False),  # yarl makes 127.0.0.1 of it
        ("%31%32%37.0.0.1", False),
        ("", False),
    ],
)
def test_where_a_registry_may_be(host: str, allowed: bool) -> None:
    assert _may_reach(host) is allowed


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "127.0.0.1.", "localhost."])
async def test_odd_forms_of_loopback_are_refused_before_anything_resolves_them(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_resolving(*_: object, **__: object) -> list[object]:
        raise AssertionError("resolved")

    monkeypatch.setattr("leadline_controller.registry.client._Resolver.resolve", no_resolving)
    async with RegistryClient() as client:
        with pytest.raises(DeniedError, match=r"registries\.yaml"):
            await client.manifest(Endpoint(f"https://{host}:5000", "web", "1"))


async def test_requests_go_through_the_environments_proxy_but_for_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append((request.host, request.headers.get("Proxy-Authorization", "")))
        return web.Response(body=BODY)

    async with serving(handler) as host, RegistryClient() as client:
        # The guard of addresses is for registries: a proxy may be on this machine.
        proxy = host.replace("127.0.0.1", "localhost")
        monkeypatch.setenv("HTTP_PROXY", f"http://user:pass@{proxy}")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        for is_named in (True, False):
            at = Endpoint("http://192.0.2.1", "web", "1", is_named=is_named, may_login=False)
            await client.manifest(at)
        assert asked == [("192.0.2.1", "Basic dXNlcjpwYXNz")] * 2
        with pytest.raises(DeniedError, match=r"registries\.yaml"):
            await client.manifest(Endpoint("http://169.254.169.254", "web", "1"))
        at = Endpoint(f"http://{host}", "web", "1", is_named=True, may_login=False)
        await client.manifest(at)
        assert asked[2:] == [(host, "")], "loopback goes directly"


async def test_a_proxy_of_another_kind_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:hunter2@127.0.0.1:1080")
    async with RegistryClient() as client:
        with pytest.raises(AwayError) as error:
            await client.manifest(Endpoint("https://192.0.2.1", "web", "1"))
    assert not isinstance(error.value, SilentError), "no other image has a way, either"
    assert str(error.value) == (
        "192.0.2.1: HTTPS_PROXY: expected http://HOST:PORT or https://HOST:PORT, got socks5://"
    )


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:1"])
async def test_a_port_that_there_is_not_is_an_error_like_others(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    async with RegistryClient() as client:
        with pytest.raises(AwayError, match="99999"):
            await client.manifest(Endpoint("https://192.0.2.1:99999", "web", "1"))


async def test_a_mirror_is_asked_as_containerd_asks_it() -> None:
    paths: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        paths.append(request.path_qs)
        return web.Response(body=BODY)

    await asked(handler, repository="/copies//web")
    await asked(handler, mirror_of="reg.example:5000")
    assert paths == ["/v2/copies/web/manifests/1", "/v2/web/manifests/1?ns=reg.example%3A5000"]


IDENTITY = Credentials("", "identity")
BASIC = "Basic Ym9hcmRzOmh1bnRlcjI="


@dataclass
class Realm:
    """A registry over TLS with its own realm."""

    challenges: list[str]  # what it sends
    oauth: int | None = None  # the status of a POST for a token, or None if that gives one
    told: list[str] = field(default_factory=list)  # what the realm and the registry were told

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "POST" and request.path != "/token":
            self.told.append(f"a password to {request.path}")
        login = request.headers.get("Authorization", "")
        if request.path == "/token":
            form = await request.post()
            self.told.append(f"{request.method} {form.get('grant_type', login)}")
            if request.method == "POST" and self.oauth is not None:
                return web.Response(status=self.oauth, headers={"Location": "/elsewhere"})
            user_or_token = form.get("password") or form.get("refresh_token")
            if user_or_token in ("hunter2", "identity") or login in (BASIC, ""):
                return web.json_response({"access_token": "t"})
            return web.Response(status=401)
        if login in ("Bearer t", BASIC):
            self.told.append(login)
            return web.Response(body=BODY)
        refused = web.Response(status=401)
        for each in self.challenges:
            each = each.replace("REALM", f"https://{request.host}/token")
            refused.headers.add("WWW-Authenticate", each)
        return refused


@pytest.mark.parametrize(
    ("challenges", "oauth", "login", "expected"),
    [
        (["Negotiate", 'Basic realm="r"'], None, LOGIN, [BASIC]),
        (['Negotiate, BASIC realm="r"'], None, LOGIN, [BASIC]),
        (['Basic realm="r"', "Bearer realm=REALM"], None, None, ["GET ", "Bearer t"]),
        (['Basic realm="r",Bearer realm="REALM"'], None, LOGIN, ["POST password", "Bearer t"]),
        (['Bearer realm="REALM"'], None, IDENTITY, ["POST refresh_token", "Bearer t"]),
        *(
            (['Bearer realm="REALM"'], status, LOGIN, ["POST password", f"GET {BASIC}", "Bearer t"])
            for status in (307, 400, 401, 404, 405, 501)
        ),
        # A bearer token that must not be asked for there, and something else that will do.
        (['Bearer realm="http://10.0.0.1/"', 'Basic realm="r"'], None, LOGIN, [BASIC]),
    ],
)
async def test_a_login_is_answered_as_containerd_does(
    tmp_path: Path,
    challenges: list[str],
    oauth: int | None,
    login: Credentials | None,
    expected: list[str],
) -> None:
    issued = Authority(tmp_path).server("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.cert_file, issued.key_file)
    realm = Realm(challenges, oauth)
    async with serving(realm.answer, tls) as host, RegistryClient() as client:
        at = Endpoint(f"https://{host}", "web", "1", is_named=True, tls=context(issued.ca_file))
        object.__setattr__(at, "credentials", login)
        assert isinstance(await client.manifest(at), Manifest)
    assert realm.told == expected


@pytest.mark.parametrize("trusted_by", ["registries.yaml", "the system"])
async def test_a_servers_own_certificate_may_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted_by: str
) -> None:
    """As by Go, though the authority that signed it is not."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=BODY)

    issued = Authority(tmp_path / "pki").server("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.cert_file, issued.key_file)
    file = tmp_path / "registries.yaml"
    async with serving(handler, tls) as host:
        text = f"mirrors: {{'{host}': {{endpoint: ['https://{host}']}}}}\n"
        if trusted_by == "registries.yaml":
            text += f"configs: {{'{host}': {{tls: {{ca_file: {issued.cert_file}}}}}}}"
        else:
            monkeypatch.setenv("SSL_CERT_FILE", str(issued.cert_file))
        file.write_text(text)
        (at,) = load_registries(file).endpoints(Reference(host, "web", "1"))
        async with RegistryClient() as client:
            assert isinstance(await client.manifest(at), Manifest)


@pytest.mark.parametrize("login", [None, IDENTITY])
async def test_basic_without_a_user_has_no_answer(login: Credentials | None) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})

    with pytest.raises(DeniedError, match="login that is not known"):
        await asked(handler, credentials=login, may_login=True)


@pytest.mark.parametrize("front_wants_login", [False, True])
@pytest.mark.parametrize("front_is_named", [False, True])
async def test_a_registry_may_leave_all_to_another_one(
    tmp_path: Path, *, front_wants_login: bool, front_is_named: bool
) -> None:
    """As lscr.io leaves it to ghcr.io. Each gets only what it asked for itself, and the other one's
    own login only if registries.yaml names the first."""
    issued = Authority(tmp_path / "pki").server("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.cert_file, issued.key_file)
    back = Realm(['Bearer realm="REALM"'])
    told: list[str] = []

    async def front(request: web.Request) -> web.Response:
        login = request.headers.get("Authorization", "")
        told.append(login)
        if front_wants_login and login != BASIC:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
        raise web.HTTPTemporaryRedirect(f"https://{there}{request.path}?signed=1")

    async with serving(back.answer, tls) as there, serving(front, tls) as here:
        file = tmp_path / "registries.yaml"
        file.write_text(
            f"configs: {{'{there}': {{auth: {{username: boards, password: hunter2}}, "
            f"tls: {{ca_file: {issued.ca_file}}}}}}}"
        )
        async with RegistryClient(load_registries(file)) as client:
            at = Endpoint(f"https://{here}", "web", "1", tls=context(issued.ca_file))
            at = replace(at, is_named=front_is_named, credentials=LOGIN)
            with patch("leadline_controller.registry.client._may_reach", return_value=True):
                for _ in range(2):
                    assert isinstance(await client.manifest(at), Manifest)
    assert told == (["", BASIC] * 2 if front_wants_login else [""] * 2)
    how = "POST password" if front_is_named else "GET "
    assert back.told == [how, "Bearer t", "Bearer t"], "the token is kept"


async def test_a_plain_registry_may_have_its_realm_on_another_port_of_its_own() -> None:
    """As GitLab has it. A password stays here, and the reason says so."""
    is_public = True

    async def realm(request: web.Request) -> web.Response:
        assert request.path == "/jwt/auth"
        assert "Authorization" not in request.headers
        return web.json_response({"token": "t"}, status=200 if is_public else 403)

    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") == "Bearer t":
            return web.Response(body=BODY)
        challenge = f'Bearer realm="http://{tokens}/jwt/auth"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    async with serving(realm) as tokens:
        assert isinstance(await asked(handler), Manifest)
        is_public = False
        with pytest.raises(DeniedError, match="only over verified TLS"):
            await asked(handler)


async def test_a_password_that_is_not_sent_is_the_reason() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})

    with pytest.raises(DeniedError, match="the password for it is sent only over verified TLS"):
        await asked(handler, may_login=False)

"""The client with servers that misbehave: sizes, redirects, realms, addresses, credentials."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from leadline_controller.registry.client import RegistryClient, _may_reach
from leadline_controller.registry.manifests import (
    MAX_BYTES,
    AwayError,
    BrokenError,
    DeniedError,
    Manifest,
    RegistryError,
)
from leadline_controller.registry.registries import Credentials, Endpoint

from tests.support.registries import digest, manifest

LOGIN = Credentials("boards", "hunter2")
BODY = manifest(b"layer")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve on loopback; yields host:port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        (address,) = runner.addresses
        yield f"127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()


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
    ("status", "retry", "after_s"),
    [(429, "120", 120.0), (503, "soon", 0.0), (500, "1e9", 21600.0), (429, "-5", 21600.0)],
)
async def test_a_busy_registry_says_when_to_come_again(
    status: int, retry: str, after_s: float
) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": retry})

    with pytest.raises(AwayError) as error:
        await asked(handler)
    assert error.value.after_s == after_s


async def test_a_registry_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_controller.registry.client._TIMEOUT_S", 0.2)

    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    with pytest.raises(AwayError, match="no answer in time"):
        await asked(handler)


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
        ("64:ff9b::7f00:1", False),
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

    monkeypatch.setattr("aiohttp.DefaultResolver.resolve", no_resolving)
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

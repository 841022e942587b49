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
    ],
)
def test_where_a_registry_may_be(host: str, allowed: bool) -> None:
    assert _may_reach(host) is allowed

"""Nobody without a certificate or a login gets page, JSON or stream; no other site reads them."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from leadline_controller.map.access import LoginLimits
from leadline_controller.map.server import WebLimits
from leadline_controller.map.settings import Login, WebSettings, WebTls
from leadline_controller.serve.settings import ServeError

from tests.controller.extender.listening import client_context
from tests.controller.inspect.harness import ControllerHarness
from tests.controller.map.harness import answering, get
from tests.support.certificates import Authority

PATHS = (
    *("/", "/static/vendor/charts.js", "/api/overview", "/api/pairs", "/api/nodes/n1"),
    *("/api/history?node=n1", "/api/decisions", "/api/decisions/default%2Fweb-1", "/api/stream"),
    "/nothing",
)
PASSWORD = "correct horse: battery"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page of two files, and one that is none of its kinds."""
    folder = tmp_path / "web"
    (folder / "vendor").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>map</title>")
    (folder / "vendor" / "charts.js").write_text("export const one = 1\n" * 500)
    (folder / "secret.py").write_text("one = 1")
    (tmp_path / "outside.js").write_text("outside")
    return folder


@pytest.fixture
def login(tmp_path: Path) -> Login:
    path = tmp_path / "password"
    path.write_text(f"leadline:{PASSWORD}\n")
    path.chmod(0o600)
    return Login.read(path)


@pytest.fixture
async def address(harness: ControllerHarness, folder: Path) -> AsyncIterator[str]:
    async with answering(harness, folder=folder) as address:
        yield address


def basic(password: str, user: str = "leadline") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def statuses(
    address: str, headers: dict[str, str], shown: ssl.SSLContext | None = None
) -> set[int]:
    found = set()
    async with aiohttp.ClientSession() as session:
        for path in PATHS:
            url = f"{address}{path}"
            async with session.get(url, headers=headers, ssl=shown or True) as answer:
                found.add(answer.status)
    return found


async def test_the_page_and_its_files_are_served(address: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{address}/") as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            assert "<title>map</title>" in await answer.text()
            assert answer.headers["Cache-Control"] == "no-cache"
            tag = answer.headers["ETag"]
        async with session.get(f"{address}/", headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        async with session.get(f"{address}/static/vendor/charts.js") as answer:
            assert (answer.status, answer.content_type) == (200, "text/javascript")
            assert answer.headers["Content-Encoding"] == "gzip"
            assert (await answer.text()).startswith("export")


async def test_nothing_else_is_served(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    for path in (
        *("secret.py", "vendor", "vendor/", "../outside.js", "%2e%2e/outside.js"),
        *("..%2foutside.js", "%00", "/etc/passwd", "index.html/x"),
    ):
        request = f"GET /static/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(request.encode())
            chunks = []
            while chunk := await asyncio.to_thread(client.recv, 65536):
                chunks.append(chunk)
        answer = b"".join(chunks)
        assert answer.split(b" ", 2)[1] in (b"404", b"400"), path
        assert b"outside" not in answer, path
        assert b"root:" not in answer, path


async def test_every_answer_has_the_strict_headers(address: str) -> None:
    for path in PATHS:
        async with aiohttp.ClientSession() as session, session.get(address + path) as answer:
            headers = answer.headers
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in policy, path
        assert "unsafe" not in policy, path
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Referrer-Policy"] == "no-referrer", path
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin", path
        assert "Access-Control-Allow-Origin" not in headers, path
        if path.startswith("/api"):
            assert headers["Cache-Control"] == "no-store", path


async def test_only_get_and_head_are_answered_and_head_with_the_headers_alone(address: str) -> None:
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            for path in ("/", "/api/overview", "/api/stream"):
                async with session.request(method, address + path) as answer:
                    assert answer.status == 405, (method, path)
                    assert answer.headers["Allow"] == "GET, HEAD", (method, path)
        for path in PATHS[:1] + PATHS[2:-1]:
            async with session.head(address + path) as answer:
                assert (answer.status, await answer.read()) == (200, b""), path


async def test_only_this_machines_names_are_answered(address: str) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.0.2.1", "[::2]"):
        for path in ("", "/api/overview", "/api/stream"):
            assert (await get(address + path, Host=host))[0] == 421, (host, path)
    assert (await get(f"{address}/api/overview", Host=""))[0] == 421
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:80"):
        assert (await get(f"{address}/api/overview", Host=host))[0] == 200, host


async def test_what_comes_from_another_site_is_refused(address: str) -> None:
    for site in ("cross-site", "same-site"):
        assert (await get(f"{address}/api/overview", Sec_Fetch_Site=site))[0] == 403
        assert (await get(f"{address}/api/stream", Sec_Fetch_Site=site))[0] == 403
    for site in ("same-origin", "none"):
        assert (await get(f"{address}/api/overview", Sec_Fetch_Site=site))[0] == 200


async def test_without_the_right_login_nothing_is_shown(
    harness: ControllerHarness, login: Login, folder: Path
) -> None:
    limits = WebLimits(login=LoginLimits(failures=1000, all_failures=1000))
    settings = WebSettings("127.0.0.1:0", login=login)
    async with answering(harness, settings, limits, folder) as address:
        wrong = [
            {},
            {"Authorization": basic("wrong")},
            {"Authorization": basic(PASSWORD, "admin")},
            {"Authorization": basic("")},
            {"Authorization": "Basic %%%"},
            {"Authorization": f"Bearer {PASSWORD}"},
            {"Authorization": "Basic " + "A" * 4000},
        ]
        for headers in wrong:
            assert await statuses(address, headers) == {401}
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        right = {"Authorization": basic(PASSWORD)}
        assert await statuses(address, right) == {200, 404}


async def status(session: aiohttp.ClientSession, url: str, password: str) -> int:
    async with session.get(url, headers={"Authorization": basic(password)}) as answer:
        return answer.status


@pytest.mark.parametrize("limits", [{"failures": 3}, {"all_failures": 3}])
async def test_after_wrong_logins_the_next_ones_wait_and_only_a_few_may(
    harness: ControllerHarness, login: Login, limits: dict[str, int]
) -> None:
    for_ever = WebLimits(login=LoginLimits(**limits, slow_s=3600, waiting=2))
    settings = WebSettings("127.0.0.1:0", login=login)
    async with (
        answering(harness, settings, for_ever) as address,
        aiohttp.ClientSession() as session,
    ):
        url = f"{address}/api/overview"
        assert [await status(session, url, f"guess {at}") for at in range(3)] == [401] * 3
        # The right ones do not show that they are right.
        tries = [asyncio.create_task(status(session, url, PASSWORD)) for _ in range(5)]
        for refused in asyncio.as_completed(tries[:]):
            assert await refused == 429
            if sum(each.done() for each in tries) == 3:
                break
        await asyncio.wait(tries, timeout=0.2)
        assert sum(each.done() for each in tries) == 3, "two wait"
        for each in tries:
            each.cancel()
        await asyncio.gather(*tries, return_exceptions=True)


async def test_a_right_login_gets_through_behind_the_same_address(
    harness: ControllerHarness, login: Login
) -> None:
    limits = WebLimits(login=LoginLimits(failures=3, slow_s=0.05))
    settings = WebSettings("127.0.0.1:0", login=login)
    async with answering(harness, settings, limits) as address:
        url = f"{address}/api/overview"
        found = [(await get(url, Authorization=basic(f"guess {at}")))[0] for at in range(6)]
        assert found == [401] * 6
        assert (await get(url, Authorization=basic(PASSWORD)))[0] == 200


async def test_a_browser_that_has_logged_in_does_not_wait_for_others(
    harness: ControllerHarness, login: Login
) -> None:
    limits = WebLimits(login=LoginLimits(failures=3, all_failures=3, slow_s=3600, waiting=16))
    settings = WebSettings("127.0.0.1:0", login=login)
    jar = aiohttp.CookieJar(unsafe=True)  # that is, of an address, too
    async with (
        answering(harness, settings, limits) as address,
        aiohttp.ClientSession(cookie_jar=jar) as known,
        aiohttp.ClientSession() as other,
    ):
        url = f"{address}/api/overview"
        assert await status(known, url, PASSWORD) == 200
        (cookie,) = jar
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
        assert [await status(other, url, f"guess {at}") for at in range(3)] == [401] * 3
        assert await status(known, url, PASSWORD) == 200
        # The cookie lets nobody in, and guesses with it count, too.
        assert [await status(known, url, f"guess {at}") for at in range(3)] == [401] * 3
        forged = cookie.value[:-1] + ("0" if cookie.value[-1] != "0" else "1")
        for value in (cookie.value, forged, "", ".", "a.b", "ä.ö"):
            headers = {"Authorization": basic(PASSWORD), "Cookie": f"{cookie.key}={value}"}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), aiohttp.request("GET", url, headers=headers):
                    pass


async def test_over_tls_only_visitors_with_a_certificate_are_answered(
    harness: ControllerHarness, authority: Authority, tmp_path: Path, folder: Path
) -> None:
    strangers = Authority(tmp_path / "strangers", "Strangers")
    own = authority.server("127.0.0.1")
    tls = WebTls(own.cert_file, own.key_file, own.ca_file)
    settings = WebSettings("127.0.0.1:0", tls)
    async with answering(harness, settings, folder=folder) as address:
        assert address.startswith("https://")
        shown = client_context(authority, authority.client("me"))
        assert await statuses(address, {}, shown) == {200, 404}
        for stranger in (None, strangers.client("me")):
            for path in PATHS:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await get(address + path, client_context(authority, stranger))
        plain = address.replace("https:", "http:")
        with pytest.raises((aiohttp.ClientError, OSError)):
            await get(f"{plain}/api/overview")


async def test_over_tls_a_certificate_or_a_login_will_do(
    harness: ControllerHarness, authority: Authority, login: Login, tmp_path: Path, folder: Path
) -> None:
    strangers = Authority(tmp_path / "strangers", "Strangers")
    own = authority.server("127.0.0.1")
    tls = WebTls(own.cert_file, own.key_file, own.ca_file)
    settings = WebSettings("127.0.0.1:0", tls, login)
    async with answering(harness, settings, folder=folder) as address:
        bare = client_context(authority, None)
        shown = client_context(authority, authority.client("me"))
        assert await statuses(address, {}, shown) == {200, 404}
        assert await statuses(address, {"Authorization": basic(PASSWORD)}, bare) == {200, 404}
        assert await statuses(address, {}, bare) == {401}
        with pytest.raises((aiohttp.ClientError, OSError)):
            await get(f"{address}/", client_context(authority, strangers.client("me")))


def test_an_address_that_others_can_reach_needs_tls_and_visitors_that_are_known(
    authority: Authority, login: Login
) -> None:
    own = authority.server("127.0.0.1")
    bare = WebTls(own.cert_file, own.key_file)
    with pytest.raises(ServeError, match="needs TLS"):
        WebSettings("0.0.0.0:25509")
    with pytest.raises(ServeError, match="needs TLS"):
        WebSettings("192.0.2.1:25509", login=login)
    with pytest.raises(ServeError, match="visitors need a certificate"):
        WebSettings("[::]:25509", bare)
    with pytest.raises(ServeError, match="host:port only"):
        WebSettings("unix:/run/leadline/map.sock")
    assert WebSettings("[::]:25509", bare, login).port == 25509
    assert WebSettings().host == "127.0.0.1"


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"leadline:long enough", 0o644, "others may read it"),
        (b"leadline:long enough", 0o640, "others may read it"),
        (b"leadline", 0o600, "one line user:password"),
        (b":long enough", 0o600, "one line user:password"),
        (b"", 0o600, "one line user:password"),
        (b"leadline:one\ntwo lines", 0o600, "one line user:password"),
        (b"leadline:\xff\xfe\xff\xfe\xff\xfe\xff\xfe", 0o600, "one line user:password"),
        (b"leadline:" + b"x" * 2000, 0o600, "one line user:password"),
        (b"leadline:short", 0o600, "8 characters"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_told(
    tmp_path: Path, content: bytes, mode: int, why: str
) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ValueError, match=why):
        Login.read(path)


def test_the_password_is_in_no_representation(login: Login) -> None:
    assert PASSWORD not in repr(login)
    assert "digest" not in repr(WebSettings(login=login))


def test_a_credential_of_systemd_has_other_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "web-password"
    path.write_text(f"leadline:{PASSWORD}")
    path.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert Login.read(path).admits(f"leadline:{PASSWORD}".encode())
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match="chmod 600"):
        Login.read(path)

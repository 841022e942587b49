"""Messages to a local server that speaks as each receiver does."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.notifications.receivers import NotSentError, Receiver
from leadline_controller.notifications.settings import NotifySettings, Token

from tests.controller.notifications.harness import MESSAGE, TOKEN, LocalReceiver
from tests.support.certificates import Authority
from tests.support.ports import free_port

BEARER = ("Authorization", f"Bearer {TOKEN}")


def receiver(url: str, kind: Any = "webhook", **more: Any) -> Receiver:
    settings = NotifySettings(kind, url, Token(TOKEN), map_url="https://map/", **more)
    return Receiver(settings, url)


@pytest.mark.parametrize(
    ("kind", "path", "login", "asked", "body"),
    [
        (
            "ntfy",
            "/alarms",
            BEARER,
            "/",
            {
                "topic": "alarms",
                "priority": 4,
                "tags": ["rotating_light"],
                "click": "https://map/",
            },
        ),
        (
            "gotify",
            "/below/",
            ("X-Gotify-Key", TOKEN),
            "/below/message",
            {
                "priority": 8,
                "extras": {"client::notification": {"click": {"url": "https://map/"}}},
            },
        ),
        (
            "webhook",
            "/hook?x=1",
            BEARER,
            "/hook",
            {
                "severity": "error",
                "kinds": ["broker-away"],
                "url": "https://map/",
                "text": f"{MESSAGE.title}\n{MESSAGE.text}",
            },
        ),
        (
            "webhook",
            "/hook/{token}",
            None,
            f"/hook/{TOKEN}",
            {
                "severity": "error",
                "kinds": ["broker-away"],
                "url": "https://map/",
                "text": f"{MESSAGE.title}\n{MESSAGE.text}",
            },
        ),
    ],
)
async def test_each_receiver_gets_it_as_its_api_wants_it(
    kind: str, path: str, login: tuple[str, str] | None, asked: str, body: dict[str, Any]
) -> None:
    async with LocalReceiver(login).serving() as server:
        made = receiver(server.url + path, kind)
        await made.send(MESSAGE, 5.0)
    ((where, headers, got),) = server.got
    assert where == asked
    assert got == {"title": MESSAGE.title, "message": MESSAGE.text, **body}
    assert ("Authorization" in headers) == (login == BEARER)
    assert TOKEN not in made.name


@pytest.mark.parametrize(
    ("status", "why"), [(302, "it redirects"), (307, "it redirects"), (401, "401"), (500, "500")]
)
async def test_what_is_refused_has_not_arrived_and_no_redirect_is_followed(
    status: int, why: str
) -> None:
    async with LocalReceiver(status=status).serving() as server:
        with pytest.raises(NotSentError, match=why) as raised:
            await receiver(f"{server.url}/{{token}}").send(MESSAGE, 5.0)
    assert (server.asked, server.got) == (1, [])
    assert TOKEN not in str(raised.value)


async def test_a_receiver_that_is_away_or_hangs_is_an_error_of_one_line() -> None:
    async with LocalReceiver(hangs=True).serving() as server:
        with pytest.raises(NotSentError, match="no answer within"):
            await receiver(server.url).send(MESSAGE, 0.1)
        with pytest.raises(NotSentError, match="no time is left"):
            await receiver(server.url).send(MESSAGE, 0.0)
    assert server.asked == 1
    with pytest.raises(NotSentError, match="Cannot connect"):
        await receiver(f"http://127.0.0.1:{free_port()}/{{token}}").send(MESSAGE, 5.0)


async def test_the_receivers_certificate_is_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.server("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.cert_file, own.key_file)
    async with LocalReceiver().serving(tls) as server:
        with pytest.raises(NotSentError, match="CERTIFICATE_VERIFY_FAILED"):
            await receiver(server.url).send(MESSAGE, 5.0)
        await receiver(server.url, ca_file=authority.ca_file).send(MESSAGE, 5.0)
    assert len(server.got) == 1


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(NotifySettings("ntfy", "https://h/t", Token(TOKEN)))

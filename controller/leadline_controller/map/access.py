"""Who may see the map: those with a certificate, those who log in, and on a loopback address
without a login this machine.

A page of another site can make a browser on this machine ask for anything. It must not read an
answer, so a name other than this machine's in the Host header is refused (DNS rebinding), and so is
what a browser says comes from another site.

Guesses of the password are slowed down, and not refused: many people can be behind one address. A
browser that has logged in is known by a cookie and counts by itself, so that others' wrong logins
do not slow it down. The cookie lets nobody in. (OWASP, "Slow Down Online Guessing Attacks with
Device Cookies".)
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import math
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass

from aiohttp import web

from leadline_controller.map.settings import WebSettings
from leadline_controller.serve.http_server import peer

_LONGEST = 2048
_MOST_PEERS = 1024
_COOKIE = "leadline-device"
_COOKIE_S = 30 * 86_400
_GIVEN = web.RequestKey("given", str)


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """How often a password may be tried."""

    failures: int = 10  # wrong logins within `per_s` seconds, of one address or known browser
    # Of all together. Beyond either a login waits for `slow_s` seconds, right or wrong, so that the
    # wait tells nothing; known browsers wait for their own ones only.
    all_failures: int = 100
    per_s: float = 60.0
    slow_s: float = 10.0
    # How many may wait, of one and of all.
    waiting: int = 4
    all_waiting: int = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer's status, why, and headers."""

    status: int
    why: str
    headers: dict[str, str]


class Access:
    """Decides about each request."""

    def __init__(self, settings: WebSettings, limits: LoginLimits) -> None:
        self._login = settings.login
        self._has_tls = settings.tls is not None
        self._limits = limits
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._key = secrets.token_bytes(32)

    async def refusal(self, request: web.Request) -> Refusal | None:
        """Why this request gets no answer; None if it gets one."""
        if not (self._has_tls or self._login or _is_this_machine(request.headers.get("Host", ""))):
            return Refusal(421, "open this page as localhost or 127.0.0.1", {})
        from_site = request.headers.get("Sec-Fetch-Site", "none")
        if from_site not in ("none", "same-origin") and request.path != "/":
            return Refusal(403, "another site asks for this", {})
        if self._login is None:
            return None
        transport = request.transport
        if transport is not None and transport.get_extra_info("peercert"):
            return None  # the handshake has verified it
        return await self._refused_login(request)

    def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give a browser whose login was right its cookie, with an answer that is not sent yet."""
        if _GIVEN in request:
            response.set_cookie(
                _COOKIE,
                request[_GIVEN],
                max_age=_COOKIE_S,
                secure=self._has_tls,
                httponly=True,
                samesite="Lax",
            )

    async def _refused_login(self, request: web.Request) -> Refusal | None:
        ask = {"WWW-Authenticate": 'Basic realm="Leadline", charset="UTF-8"'}
        given = request.headers.get("Authorization", "")
        if not given:
            return Refusal(401, "log in", ask)
        device = self._device(request.cookies.get(_COOKIE, ""))
        who = device or peer(request)
        if self._is_slowed(who, is_known=bool(device)):
            if (
                self._waiting[who] >= self._limits.waiting
                or self._waiting.total() >= self._limits.all_waiting
            ):
                wait_s = math.ceil(self._limits.slow_s)
                why = f"too many wrong logins; try again in {wait_s} s"
                return Refusal(429, why, {"Retry-After": str(wait_s)})
            self._waiting[who] += 1
            try:
                await asyncio.sleep(self._limits.slow_s)
            finally:
                self._waiting[who] -= 1
                if not self._waiting[who]:
                    del self._waiting[who]
        if self._login is not None and self._login.admits(_credentials(given)):
            if not device:
                name = secrets.token_urlsafe(16)
                request[_GIVEN] = f"{name}.{self._signature(name)}"
            return None
        self._wrong[who] = [*self._recent(who), asyncio.get_running_loop().time()]
        self._wrong.move_to_end(who)
        if len(self._wrong) > _MOST_PEERS:
            self._wrong.popitem(last=False)
        return Refusal(401, "wrong user or password", ask)

    def _is_slowed(self, who: str, *, is_known: bool) -> bool:
        if len(self._recent(who)) >= self._limits.failures:
            return True
        if is_known:
            return False
        every = sum(len(self._recent(each)) for each in self._wrong)
        return every >= self._limits.all_failures

    def _recent(self, who: str) -> list[float]:
        """When its wrong logins were, of those that count still."""
        oldest_s = asyncio.get_running_loop().time() - self._limits.per_s
        return [at_s for at_s in self._wrong.get(who, ()) if at_s > oldest_s]

    def _device(self, cookie: str) -> str:
        """The browser that was given this cookie; empty if it was not given here."""
        name, _, signature = cookie[:_LONGEST].partition(".")
        given = signature.encode(errors="replace")
        is_ours = hmac.compare_digest(self._signature(name).encode(), given)
        return f"browser {name}" if is_ours else ""

    def _signature(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(errors="replace"), "sha256").hex()


def _credentials(header: str) -> bytes:
    """The user:password of HTTP Basic; empty if it is something else."""
    scheme, _, encoded = header[:_LONGEST].partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False

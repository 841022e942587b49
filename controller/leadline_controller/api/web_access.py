"""Who may see the map: those with a certificate, those who log in, and on a loopback address
without a login this machine.

A page of another site can make a browser on this machine ask for anything. It must not read an
answer, so a name other than this machine's in the Host header is refused (DNS rebinding), and so is
what a browser says comes from another site.
"""

import asyncio
import base64
import binascii
import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass

from aiohttp import web

from leadline_controller.api.listeners import peer_of
from leadline_controller.api.web_settings import WebSettings

_LONGEST = 2048
_MOST_PEERS = 1024


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """failures: wrong logins within `per_s` seconds, of one peer. all_failures: of all peers
    together; beyond it only peers that have logged in before may try."""

    failures: int = 10
    all_failures: int = 100
    per_s: float = 60.0


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
        self._known: OrderedDict[str, None] = OrderedDict()

    def refusal(self, request: web.Request) -> Refusal | None:
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
        return self._refused_login(request, peer_of(transport and _address(transport)))

    def _refused_login(self, request: web.Request, peer: str) -> Refusal | None:
        ask = {"WWW-Authenticate": 'Basic realm="Leadline", charset="UTF-8"'}
        given = request.headers.get("Authorization", "")
        if not given:
            return Refusal(401, "log in", ask)
        now_s = asyncio.get_running_loop().time()
        oldest_s = now_s - self._limits.per_s
        wrong = [at_s for at_s in self._wrong.get(peer, ()) if at_s > oldest_s]
        every = sum(each > oldest_s for times in self._wrong.values() for each in times)
        is_flooded = every >= self._limits.all_failures and peer not in self._known
        if len(wrong) >= self._limits.failures or is_flooded:
            wait_s = math.ceil(self._limits.per_s)
            return Refusal(
                429,
                f"too many wrong logins; try again in {wait_s} s",
                {"Retry-After": str(wait_s)},
            )
        if self._login is not None and self._login.admits(_credentials(given)):
            self._known[peer] = None
            if len(self._known) > _MOST_PEERS:
                self._known.popitem(last=False)
            return None
        self._wrong[peer] = [*wrong, now_s]
        self._wrong.move_to_end(peer)
        if len(self._wrong) > _MOST_PEERS:
            self._wrong.popitem(last=False)
        return Refusal(401, "wrong user or password", ask)


def _address(transport: asyncio.BaseTransport) -> object:
    return transport.get_extra_info("peername")


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

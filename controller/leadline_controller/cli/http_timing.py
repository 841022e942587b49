"""How long a service works on one request, over HTTP, with the round trip taken off.

Each request has a connection of its own. Connecting takes one round trip, and the request takes one
round trip and the work, so the shortest of the connects is taken off. What the answer takes to
arrive is part of the work: measure a page of the usual size.
"""

import math
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    RemoteDisconnected,
)
from threading import Timer

_MAX_BYTES = 16 << 20
# The first requests fill caches, and a service that sleeps wakes up.
_WARM_UP = 2
# Later, or nothing: such an answer is not the work.
_NO_PAGE = (202, 204, 205)
_MAX_SHOWN = 200


class TimingError(Exception):
    """A service that can't be measured; str() is one line for a person."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a service takes."""

    ms: float  # median of the work
    deviation_ms: float  # its standard deviation
    rtt_ms: float  # the shortest connect


def timed(host: str, port: int, path: str, requests: int, timeout_s: float) -> Timing:
    """Send requests one after the other, three at least. Raises TimingError."""
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connects_ms, answers_ms = [], []
    for number in range(_WARM_UP + requests):
        client = HTTPConnection(host, port, timeout=timeout_s)
        try:
            start_s = time.perf_counter()
            client.connect()
            connected_s = time.perf_counter()
            with _ended_after(timeout_s, client.sock):
                asked_s = time.perf_counter()
                client.request("GET", path, headers={"Connection": "close"})
                answer = client.getresponse()
                length = len(answer.read(_MAX_BYTES + 1))
                end_s = time.perf_counter()
            why_not = _why_not(answer, length)
        except (HTTPException, OSError) as error:
            why_not = _reason(error)
            end_s = math.inf if isinstance(error, TimeoutError) else time.perf_counter()
        finally:
            client.close()
        if end_s - start_s >= timeout_s:
            raise TimingError(f"{where}: no whole answer within {timeout_s:g} s")
        if why_not:
            raise TimingError(f"{where}: {why_not}")
        if number >= _WARM_UP:
            connects_ms.append((connected_s - start_s) * 1000)
            answers_ms.append((end_s - asked_s) * 1000)
    rtt_ms = min(connects_ms)
    # A service is never faster than the clock can tell.
    works_ms = [max(each - rtt_ms, 0.001) for each in answers_ms]
    return Timing(statistics.median(works_ms), statistics.stdev(works_ms), rtt_ms)


@contextmanager
def _ended_after(limit_s: float, connection: socket.socket) -> Iterator[None]:
    """A stream of events, or a page that comes byte by byte, would never end: the connection's own
    timeout begins again with each byte."""

    def end() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    ending = Timer(limit_s, end)
    ending.daemon = True
    ending.start()
    try:
        yield
    finally:
        ending.cancel()


def _why_not(answer: HTTPResponse, length: int) -> str:
    """Why this answer, of which that many bytes were read, is not the service's work; empty if it
    is. Redirects are not followed: where they lead may be another service."""
    if 300 <= answer.status < 400 and (target := answer.getheader("Location")):
        return (
            f"answered {answer.status}, a redirect to {_shown(target)}; "
            "name the page that does the work with --path"
        )
    if not 200 <= answer.status < 300 or answer.status in _NO_PAGE:
        return f"answered {answer.status}; name a page with --path"
    if length > _MAX_BYTES:
        return f"the page has more than {_MAX_BYTES >> 20} MiB"
    if left := getattr(answer, "length", None):  # of what its header promised
        return f"the answer ended {left} bytes early; look at the service's log"
    return ""


def _reason(error: HTTPException | OSError) -> str:
    said = str(error)
    if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
        if said.startswith("\x15\x03"):  # an alert
            return "it speaks TLS; name its port for plain HTTP with --port"
        return f"it does not speak HTTP ({_shown(said)}); name another port with --port"
    return _shown(said) or type(error).__name__


def _shown(text: str) -> str:
    """A text of the other side, fit for a line on a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:_MAX_SHOWN])

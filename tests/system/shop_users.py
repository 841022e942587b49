"""The users of the lab's shop, at its server: each waits for an answer before it asks again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any

from leadline_lab import network
from leadline_lab.errors import CommandError

from tests.lab.lab_images import HTTP_PORT
from tests.system.shop_model import MIX

USERS = 3
_TIMEOUT_S = 60.0
# Of a user who puts up with failures. A service that is being restarted does not answer at all.
_RESTART_TIMEOUT_S, _RETRY_S = 5.0, 0.2


class Users:
    """namespace: where they are."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def ask(self, address: str, path: str) -> Any:
        """A service's answer, as JSON."""
        with closing(self._connected(address)) as client:
            client.request("GET", path)
            return json.loads(client.getresponse().read())

    def tell(self, addresses: Mapping[str, str]) -> None:
        """Tell each service where all are."""
        for address in addresses.values():
            with closing(self._connected(address)) as client:
                client.request("PUT", "/peers", json.dumps(addresses))
                assert client.getresponse().status == 200

    def took_ms(self, front: str, duration_s: float, seed: int) -> Sequence[float]:
        """Have them use the shop, and return how long each request took, ms."""
        took_ms: list[float] = []
        failed: list[str] = []
        ends_s = time.monotonic() + duration_s

        def user(number: int) -> None:
            random = Random(seed * USERS + number)
            with closing(self._connected(front)) as client:
                while time.monotonic() < ends_s:
                    doing, began_s = _choice(random), time.monotonic()
                    client.request("GET", f"/{doing}")
                    answer = client.getresponse()
                    body = answer.read()
                    took_ms.append(1000 * (time.monotonic() - began_s))
                    if answer.status != 200:
                        failed.append(f"{doing}: {answer.status} {body[:80]!r}")

        users = [threading.Thread(target=user, args=(number,)) for number in range(USERS)]
        for each in users:
            each.start()
        for each in users:
            each.join()
        assert took_ms, "no user had an answer"
        assert not failed, failed[:3]
        return took_ms

    @contextmanager
    def busy(self, front: Callable[[], str]) -> Iterator[None]:
        """They use the shop until the block ends, and put up with services that do not answer.
        front: the address of the first one, now."""
        ends = threading.Event()

        def user(number: int) -> None:
            random = Random(number)
            while not ends.is_set():
                # Anew where a request failed, as it may be another pod now.
                with (
                    suppress(OSError, HTTPException, CommandError),
                    closing(self._connected(front(), _RESTART_TIMEOUT_S)) as client,
                ):
                    while not ends.is_set():
                        client.request("GET", f"/{_choice(random)}")
                        client.getresponse().read()
                ends.wait(_RETRY_S)

        users = [threading.Thread(target=user, args=(number,)) for number in range(USERS)]
        for each in users:
            each.start()
        try:
            yield
        finally:
            ends.set()
            for each in users:
                each.join()

    def _connected(self, address: str, timeout_s: float = _TIMEOUT_S) -> HTTPConnection:
        client = HTTPConnection(address, HTTP_PORT)
        client.sock = network.connect_in(self._namespace, (address, HTTP_PORT))
        client.sock.settimeout(timeout_s)
        return client


def _choice(random: Random) -> str:
    (doing,) = random.choices(list(MIX), list(MIX.values()))
    return doing

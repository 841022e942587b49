"""Where servers listen, and who is one peer."""

import asyncio
import socket

import pytest
from leadline_controller.serve.http_server import HttpLimits, HttpServer
from leadline_controller.serve.listeners import THIS_MACHINE, listen_tcp, peer_of
from leadline_controller.serve.settings import ListenAddress, ListenError


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("127.0.0.1", 1), THIS_MACHINE),
        (("::1", 1, 0, 0), THIS_MACHINE),
        (("::ffff:127.0.0.1", 1, 0, 0), THIS_MACHINE),
        ("", THIS_MACHINE),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
    ],
)
def test_a_peer_is_an_address(address: object, peer: str) -> None:
    assert peer_of(address) == peer


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_a_wildcard_listens_for_both_families(host: str) -> None:
    (listener,) = await listen_tcp(host, 0)
    with listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


async def test_a_port_that_is_taken_at_one_of_the_addresses_is_no_place_to_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as ::1 and 127.0.0.1, both of which are localhost."""
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
            for address in ("127.0.0.1", "127.0.0.2", "192.0.2.1")
        ]

        async def getaddrinfo(*_: object, **__: object) -> object:
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        with pytest.raises(OSError, match="in use"):
            await listen_tcp("both.lan", port)
        del found[1]  # an address that this machine does not have is left out
        (listener,) = await listen_tcp("both.lan", port)
    with listener:
        assert listener.getsockname() == ("127.0.0.1", port)


@pytest.mark.parametrize("host", ["a..b", "..", "a" * 64])
async def test_what_is_no_name_of_a_host_is_told(host: str) -> None:
    server = HttpServer("metrics", ListenAddress(f"{host}:0"), HttpLimits())
    with pytest.raises(ListenError, match="cannot listen there"):
        await server.start([], None)

"""Where servers listen, and who is one peer."""

import socket

import pytest
from leadline_controller.serve.listeners import THIS_MACHINE, listen_tcp, peer_of


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

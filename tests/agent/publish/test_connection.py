"""A connection is made from here to there, and nowhere the other way."""

import queue
import socket

import pytest
from leadline_agent.publish.connection import Connection, Endpoint, Event


def test_to_connect_it_listens_on_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(10)
        monkeypatch.setattr(socket.socket, "listen", refuse)
        endpoint = Endpoint("127.0.0.1", broker.getsockname()[1], None)
        will = ("leadline/v1/default/pi-1/status", b"")
        connection = Connection(
            1, endpoint, "pi-1", will, "leadline/v1/default/pi-1/lease", posted.put
        )
        peer, _ = broker.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(1)[0] >> 4 == 1  # the packet CONNECT
    connection.close()


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")

"""Who may change the cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from leadline_controller.api.callers import why_refused

TLS = {"transport_security_type": [b"ssl"], "x509_common_name": [b"alice"]}


@contextmanager
def connection() -> Iterator[tuple[object, int]]:
    """A client's address as `accept` returns it, and the server's port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()[:2]),
    ):
        accepted, address = server.accept()
        with accepted:
            yield address, server.getsockname()[1]


def test_this_user_may_over_loopback() -> None:
    with connection() as (address, port):
        assert why_refused(address, port, {}, ()) == ""


def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection() as (address, port):
        table = "  sl\n   0: 0100007F:{:04X} 0100007F:{:04X} 01 0:0 0:0 0 {} 0 1 1\n"
        for user, allowed in ((12345, False), (os.getuid(), True), (0, True)):
            text = table.format(address[1], port, user)  # type: ignore[index]
            monkeypatch.setattr("pathlib.Path.read_text", lambda *_, text=text: text)
            assert (why_refused(address, port, {}, ()) == "") is allowed
        monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "  sl\n")
        assert "sudo" in why_refused(address, port, {}, ())


def test_a_unix_sockets_permissions_decide() -> None:
    assert why_refused("", 0, {}, ()) == ""


def test_other_machines_need_a_certificate_that_is_named() -> None:
    there = ("10.0.0.7", 40000)
    assert "client certificate" in why_refused(there, 25505, {}, ("alice",))
    assert "(alice) is not in admins" in why_refused(there, 25505, TLS, ())
    assert "(alice) is not in admins" in why_refused(there, 25505, TLS, ("alic", "bob"))
    assert why_refused(there, 25505, TLS, ("bob", "alice")) == ""


def test_with_tls_the_name_counts_on_this_machine_too() -> None:
    with connection() as (address, port):
        assert "not in admins" in why_refused(address, port, TLS, ())

"""sd_notify over a real socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from leadline_wire.sd_notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(5)
        yield receiver, path


def test_each_state_is_one_datagram(systemd: tuple[socket.socket, str]) -> None:
    receiver, path = systemd
    notifier = Notifier({"NOTIFY_SOCKET": path})
    notifier.send("READY=1")
    notifier.send("STOPPING=1")
    assert [receiver.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_an_abstract_socket_is_understood() -> None:
    name = f"leadline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(5)
        Notifier({"NOTIFY_SOCKET": "@" + name}).send("READY=1")
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_systemd_nothing_happens(environ: dict[str, str]) -> None:
    notifier = Notifier(environ)
    notifier.send("READY=1")
    assert notifier.watchdog_s is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_for_another_process_is_ignored(
    environ: dict[str, str], expected: float | None
) -> None:
    assert Notifier(environ).watchdog_s == expected

"""What systemd hears of the controller, over a real socket."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from leadline_controller.notify import LATE_S, Heartbeats, feed
from leadline_wire.sd_notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(5)
        yield receiver, path


async def test_without_a_watchdog_nothing_is_fed() -> None:
    await asyncio.wait_for(feed(Notifier({}), Heartbeats(lambda: 0.0)), 90)


def test_a_loop_without_a_recent_heartbeat_is_late() -> None:
    now_s = 0.0
    heartbeats = Heartbeats(lambda: now_s)
    first, _ = heartbeats.part("first"), heartbeats.part("second")
    assert heartbeats.late() == []
    now_s = LATE_S
    first()
    now_s = LATE_S + 1
    assert heartbeats.late() == ["second"]


async def test_the_watchdog_is_fed_only_while_every_loop_has_heartbeats(
    systemd: tuple[socket.socket, str], caplog: pytest.LogCaptureFixture
) -> None:
    receiver, path = systemd
    now_s = 0.0
    heartbeats = Heartbeats(lambda: now_s)
    heartbeat = heartbeats.part("measuring")
    notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "40000"})
    feeding = asyncio.create_task(feed(notifier, heartbeats))
    assert await heard(receiver) == b"WATCHDOG=1"
    now_s = LATE_S + 1
    await said(caplog, "stuck for 20 s: measuring; the watchdog is not fed")
    receiver.setblocking(False)
    while pending(receiver):
        pass
    await asyncio.sleep(0.1)  # ten times the pause between two
    assert not pending(receiver)
    heartbeat()
    assert await heard(receiver) == b"WATCHDOG=1"
    assert len(caplog.records) == 1
    feeding.cancel()


async def heard(receiver: socket.socket) -> bytes:
    receiver.setblocking(False)
    return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(receiver, 100), 90)


def pending(receiver: socket.socket) -> bool:
    try:
        return bool(receiver.recv(100))
    except BlockingIOError:
        return False


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    for _ in range(500):
        if text in [record.getMessage() for record in caplog.records]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not said: {text}; said: {caplog.text}")

"""Packets of MQTT 5 for publishers that are faster than a client library."""

import socket
import struct
import time
from contextlib import suppress


def packet(header: int, body: bytes) -> bytes:
    """A packet with this first byte."""
    return bytes([header]) + length(len(body)) + body


def connect(client_id: str) -> bytes:
    """A CONNECT with a clean start, without a keepalive or properties."""
    return packet(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x00" + text(client_id))


def length(count: int) -> bytes:
    """A variable byte integer."""
    digits = bytearray()
    while True:
        count, low = divmod(count, 128)
        digits.append(low | 0x80 if count else low)
        if not count:
            return bytes(digits)


def text(characters: str) -> bytes:
    """A string behind its length."""
    encoded = characters.encode()
    return struct.pack("!H", len(encoded)) + encoded


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send it over a socket that does not block, as fast as the broker reads."""
    while data:
        with suppress(BlockingIOError):
            connection.recv(1 << 16)  # the broker's confirmations
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            time.sleep(0.001)

"""A host that answers echo requests with wrong data: `python icmp_responder.py`.

Runs as root in a network namespace whose kernel answers no echo requests. Each request gets the
next of REPLIES, over and over. The first word that it prints says that it listens.
"""

import socket
import struct
import sys

ECHO_REQUEST, ECHO_REPLY = 8, 0
# In place of the time at which the request was sent, a double: what ping3 takes for it.
REPLIES = (
    *(struct.pack("!d", value) for value in (-1e308, 1e308, float("nan"), float("inf"))),
    *(struct.pack("!d", value) for value in (float("-inf"), -1.0, 0.0, 5e-324)),
    b"",
    b"abc",
    bytes(1400),
)


def checksum(packet: bytes) -> int:
    """The Internet checksum."""
    packet += b"\0" * (len(packet) % 2)
    total: int = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def reply(identifier: int, sequence: int, payload: bytes) -> bytes:
    """An echo reply."""
    packet = struct.pack("!BBHHH", ECHO_REPLY, 0, 0, identifier, sequence) + payload
    return packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]


def main() -> None:
    """Answer until killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        sys.stdout.write("listens\n")
        sys.stdout.flush()
        number = 0
        while True:
            packet, (source, _) = raw.recvfrom(65_535)
            header = (packet[0] & 0x0F) * 4
            kind, _, _, identifier, sequence = struct.unpack_from("!BBHHH", packet, header)
            if kind == ECHO_REQUEST:
                payload = REPLIES[number % len(REPLIES)]
                raw.sendto(reply(identifier, sequence, payload), (source, 0))
                number += 1


if __name__ == "__main__":
    main()

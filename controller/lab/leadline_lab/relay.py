"""A link with a delay in user space, for kernels without netem.

``python -m leadline_lab.relay IF_A IF_B --delay-ms X`` forwards every Ethernet frame
between two interfaces over AF_PACKET, delayed by X / 2 in each direction. It ends on SIGTERM, and
when one of its interfaces goes down or disappears. Both senders must have their offloads off: the
other interface cannot send a segment of 64 KiB that the kernel did not split.
"""

import argparse
import errno
import logging
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

READY = "carrying frames"
MAX_QUEUED_FRAMES = 4096
_MAX_FRAME_BYTES = 65_536
_MAX_FRAMES_PER_READ = 64
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_BUFFER_BYTES = 4 << 20
_INTERFACE_GONE = (errno.ENXIO, errno.ENODEV, errno.ENETDOWN)


@dataclass
class Direction:
    """One direction of the relay: frames in order of arrival, each with its due time."""

    source: socket.socket
    destination: socket.socket
    delay_s: float
    queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    dropped: int = 0

    def receive(self, now_s: float) -> None:
        """Read frames from the source; a full queue drops new ones."""
        for _ in range(_MAX_FRAMES_PER_READ):
            try:
                frame = self.source.recv(_MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            if len(self.queue) < MAX_QUEUED_FRAMES:
                self.queue.append((now_s + self.delay_s, frame))
            else:
                self.dropped += 1

    def send_due(self, now_s: float) -> None:
        """Send every due frame; a frame that the destination does not accept is lost."""
        while self.queue and self.queue[0][0] <= now_s:
            frame = self.queue.popleft()[1]
            try:
                self.destination.send(frame)
            except OSError as error:
                if error.errno in _INTERFACE_GONE:
                    raise
                self.dropped += 1

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next frame is due; None with an empty queue."""
        return max(self.queue[0][0] - now_s, 0.0) if self.queue else None


def open_interface(name: str) -> socket.socket:
    """A raw socket that receives an interface's incoming frames, not those sent by this machine."""
    interface = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    interface.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        interface.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    interface.bind((name, _ETH_P_ALL))
    interface.setblocking(False)
    return interface


def relay(a: socket.socket, b: socket.socket, delay_ms: float) -> None:
    """Forward frames in both directions until an interface is gone (OSError). delay_ms: of a round
    trip."""
    one_way_s = delay_ms / 2000.0
    directions = {a: Direction(a, b, one_way_s), b: Direction(b, a, one_way_s)}
    while True:
        now_s = time.monotonic()
        waits_s = [s for each in directions.values() if (s := each.wait_s(now_s)) is not None]
        ready, _, _ = select.select([a, b], [], [], min(waits_s, default=None))
        now_s = time.monotonic()
        for source in ready:
            directions[source].receive(now_s)
        for direction in directions.values():
            direction.send_due(now_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the relay; the exit code is 0 on SIGTERM or if an interface is gone."""
    parser = argparse.ArgumentParser(prog="leadline_lab.relay")
    parser.add_argument("interface_a")
    parser.add_argument("interface_b")
    parser.add_argument("--delay-ms", type=float, required=True)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s relay: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sockets = [open_interface(name) for name in (arguments.interface_a, arguments.interface_b)]
        logging.info(READY)
        relay(sockets[0], sockets[1], arguments.delay_ms)
    except OSError as error:
        logging.info("%s - %s: %s", arguments.interface_a, arguments.interface_b, error)
        return 0 if error.errno in _INTERFACE_GONE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

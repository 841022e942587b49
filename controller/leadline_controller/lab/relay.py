"""A wire with a delay, in user space, for kernels that have no netem.

``python -m leadline_controller.lab.relay IF_A IF_B --delay-ms X`` carries every Ethernet frame
between two interfaces over AF_PACKET and holds it for half of X each way. It ends on SIGTERM, and
by itself as soon as one of its interfaces goes down or vanishes. Both senders must have their
offloads off: a segment of 64 KiB that the kernel never cut would not fit the other interface.
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
_READ_AT_ONCE = 64
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_BUFFER_BYTES = 4 << 20
_GONE = (errno.ENXIO, errno.ENODEV, errno.ENETDOWN)


@dataclass
class Direction:
    """One way through the relay: frames in order of arrival, each with the time it is due."""

    source: socket.socket
    sink: socket.socket
    delay_s: float
    queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    dropped: int = 0

    def take(self, now_s: float) -> None:
        """Read what waits at the source; beyond the bound the newest frames are dropped."""
        for _ in range(_READ_AT_ONCE):
            try:
                frame = self.source.recv(_MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            if len(self.queue) < MAX_QUEUED_FRAMES:
                self.queue.append((now_s + self.delay_s, frame))
            else:
                self.dropped += 1

    def give(self, now_s: float) -> None:
        """Send every frame that is due; one that the sink does not take is lost, as on a wire."""
        while self.queue and self.queue[0][0] <= now_s:
            frame = self.queue.popleft()[1]
            try:
                self.sink.send(frame)
            except OSError as error:
                if error.errno in _GONE:
                    raise
                self.dropped += 1

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next frame is due; None when none waits."""
        return max(self.queue[0][0] - now_s, 0.0) if self.queue else None


def open_interface(name: str) -> socket.socket:
    """A raw socket on an interface that sees what arrives there, not what we send ourselves."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    wire.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        wire.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    wire.bind((name, _ETH_P_ALL))
    wire.setblocking(False)
    return wire


def relay(a: socket.socket, b: socket.socket, delay_ms: float) -> None:
    """Carry frames both ways until an interface is gone (OSError); delay_ms is the round trip."""
    one_way_s = delay_ms / 2000.0
    ways = {a: Direction(a, b, one_way_s), b: Direction(b, a, one_way_s)}
    while True:
        now_s = time.monotonic()
        waits = [wait for way in ways.values() if (wait := way.wait_s(now_s)) is not None]
        ready, _, _ = select.select([a, b], [], [], min(waits, default=None))
        now_s = time.monotonic()
        for source in ready:
            ways[source].take(now_s)
        for way in ways.values():
            way.give(now_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the relay; exit code 0 when it was told to end or its interfaces are gone."""
    parser = argparse.ArgumentParser(prog="leadline_controller.lab.relay")
    parser.add_argument("interface_a")
    parser.add_argument("interface_b")
    parser.add_argument("--delay-ms", type=float, required=True)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s relay: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        ends = [open_interface(name) for name in (arguments.interface_a, arguments.interface_b)]
        logging.info(READY)
        relay(ends[0], ends[1], arguments.delay_ms)
    except OSError as error:
        logging.info("%s - %s: %s", arguments.interface_a, arguments.interface_b, error)
        return 0 if error.errno in _GONE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command `leadline-flows`: counts connections, and writes one file a minute.

Exit code 0 is success, 1 a failure, 2 wrong usage. An error is one line on standard error. Its unit
runs it without json, pathlib and argparse, which would take a tenth of its memory.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from leadline_flows import __version__
from leadline_flows.conntrack import Conntrack, ConntrackError
from leadline_flows.totals import Flow, Period, Totals

if TYPE_CHECKING:
    import argparse

DEFAULT_FILE = "/run/leadline-flows/flows.json"
MODE = 0o640
PERIOD_S = 60.0
# Between two readings of the connections that ended: one at a time costs a wake-up each, and the
# socket's buffer keeps what comes in this time.
READ_S = 1.0
MOST_SHARE = 0.01  # of a core, for dumps: a board with very many connections is counted less often
COUNTING = "/proc/sys/net/netfilter/nf_conntrack_acct"
NOT_COUNTED = "the kernel does not count bytes: sysctl -w net.netfilter.nf_conntrack_acct=1"
STOPS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    file, period_s = DEFAULT_FILE, PERIOD_S
    if given := sys.argv[1:] if arguments is None else arguments:
        asked = parser().parse_args(given)
        file, period_s = asked.file, asked.period_s
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        run(file, period_s)
    except ConntrackError as error:
        return _fail(error)
    except OSError as error:
        return _fail(f"{file}: cannot be written: {error.strerror or error}")
    return 0


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    import argparse

    made = argparse.ArgumentParser(
        prog="leadline-flows",
        description="Counts this board's connections, and writes the largest of each minute to a "
        "file for leadline-agent.",
        epilog="Example: leadline-flows --file /tmp/flows.json",
    )
    made.add_argument(
        "--file",
        default=DEFAULT_FILE,
        metavar="FILE",
        help="where to write (default: %(default)s)",
    )
    made.add_argument(
        "--period-s",
        type=_seconds,
        default=PERIOD_S,
        metavar="SECONDS",
        help="how long to count for one file, 1 to 3600 (default: %(default)g)",
    )
    made.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return made


def run(file: str, period_s: float) -> None:
    """Count until SIGTERM or SIGINT. Raises ConntrackError, and OSError if the file cannot be
    written."""
    with suppress(OSError), open(COUNTING, encoding="ascii") as switch:  # noqa: PTH123 - see above
        if switch.read().strip() == "0":
            raise ConntrackError(NOT_COUNTED)
    conntrack, totals = Conntrack(), Totals()
    totals.begin(conntrack.connections())
    _notify("READY=1")
    began_s = time.monotonic()
    began_ms, due_s = boot_ms(), began_s + period_s
    while signal.sigtimedwait(STOPS, min(READ_S, period_s / 2)) is None:
        totals.end(conntrack.ended())
        _notify("WATCHDOG=1")
        if time.monotonic() < due_s:
            continue
        start_s = time.process_time()
        totals.see(conntrack.connections())
        dump_s = time.process_time() - start_s
        now_ms = boot_ms()
        is_counted = not totals.uncounted
        period = totals.take()
        if not (is_counted or period.flows):
            raise ConntrackError(NOT_COUNTED)
        write(file, text_of(period, now_ms, now_ms - began_ms, conntrack.has_lost_events))
        conntrack.has_lost_events = False
        began_ms = now_ms
        due_s = max(due_s + period_s, time.monotonic() + dump_s / MOST_SHARE)
    _notify("STOPPING=1")
    conntrack.close()


def text_of(period: Period, now_ms: int, duration_ms: int, has_lost_events: bool) -> str:
    """The file's text, JSON. now_ms: when counting ended, milliseconds since boot."""
    flows = ",".join(map(_row, period.flows))
    return (
        f'{{"version":1,"boot_ms":{now_ms},"duration_ms":{duration_ms},'
        f'"omitted_bytes":{period.omitted_bytes},"lost_events":{_truth(has_lost_events)},'
        f'"flows":[{flows}]}}\n'
    )


def _row(flow: Flow) -> str:
    pair = flow.pair
    seen = pair.translated_source
    return (
        f"[{_address(pair.source)},{_address(pair.destination)},{pair.port},{flow.bytes_sent},"
        f"{flow.bytes_received},{flow.packets_sent},{flow.packets_received},{flow.connections},"
        f"{'null' if seen is None else _address(seen)},{_truth(pair.translated)}]"
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _address(packed: bytes) -> str:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return f'"{socket.inet_ntop(family, packed)}"'


def write(file: str, text: str) -> None:
    """Replace the file at once, so that nobody reads half of it. Raises OSError."""
    new = f"{file}.new"
    with suppress(FileNotFoundError):
        os.unlink(new)  # noqa: PTH108 - see above
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        os.fchmod(descriptor, MODE)  # the unit's umask takes the group's right away
        out.write(text)
    os.replace(new, file)  # noqa: PTH105 - see above


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included: the agent's clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _notify(state: str) -> None:
    """Send a state of sd_notify(3) to systemd, if it has started this."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.setblocking(False)
        with suppress(OSError):  # its socket is full; the next one follows
            out.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise ValueError  # argparse names the value
    return seconds


def _fail(error: object) -> int:
    sys.stderr.write(f"leadline-flows: {error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

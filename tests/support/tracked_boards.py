"""A board between a pod and a shop, each a network namespace, whose kernel tracks and counts what
it forwards, as one with kube-proxy does. Needs root.

The pod reaches the shop by its address, and by that of a Service, which the board translates.
Packets are as large as on a wire, so that the interfaces count what connection tracking counts.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NUMBERS = itertools.count()
POD, SHOP, SERVICE, MASQUERADED = "10.42.1.5", "10.42.2.7", "10.43.0.9", "10.42.2.1"
POD6, SHOP6 = "fd42:1::5", "fd42:2::7"
SERVICE_PORT, SHOP_PORT = 80, 8080
ETHERNET_BYTES = 14  # of each packet that an interface counts, and connection tracking does not
_AS_ON_A_WIRE = ("tso", "off", "gso", "off", "gro", "off", "tx", "off")
_RULES = f"""
table ip leadline {{
  chain to {{
    type nat hook prerouting priority -100; policy accept;
    ip daddr {SERVICE} tcp dport {SERVICE_PORT} dnat to {SHOP}:{SHOP_PORT}
  }}
  chain out {{
    type nat hook postrouting priority 100; policy accept;
    tcp dport 9090 masquerade
  }}
}}
table inet tracking {{
  chain forwarded {{
    type filter hook forward priority 0; policy accept;
    ct state new counter
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class TrackedBoard:
    """The names of the namespaces."""

    board: str
    pod: str
    shop: str

    def run(self, namespace: str, *command: str, text: str | None = None) -> str:
        """Run a command inside, to its end; returns its output."""
        argv = ["ip", "netns", "exec", namespace, *command]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, input=text)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
        return done.stdout

    @contextmanager
    def running(self, namespace: str, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command inside until the block ends, once it says that it is ready."""
        argv = ["ip", "netns", "exec", namespace, *command]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    def load(self, *arguments: str) -> list[str]:
        """The command line of tests/support/conntrack_load.py."""
        return [sys.executable, "-m", "tests.support.conntrack_load", *arguments]

    def carried_bytes(self) -> int:
        """What has crossed the board's link to the pod, with the headers of IP."""
        text = self.run(self.board, "cat", "/proc/net/dev").split("pod0:")[1].split()
        size, packets = int(text[0]) + int(text[8]), int(text[1]) + int(text[9])
        return size - ETHERNET_BYTES * packets


@contextmanager
def tracked_board() -> Iterator[TrackedBoard]:
    """Three namespaces, until the block ends."""
    number = f"{os.getpid()}-{next(_NUMBERS)}"
    made = TrackedBoard(f"ltb{number}", f"ltp{number}", f"lts{number}")
    try:
        for name in (made.board, made.pod, made.shop):
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.run(name, "ip", "link", "set", "lo", "up")
            # Without its messages to all, the interfaces count connections alone.
            made.run(name, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        for link, name, net, own in (("pod0", made.pod, 1, 5), ("shop0", made.shop, 2, 7)):
            made.run(made.board, *f"ip link add {link} type veth peer eth0 netns {name}".split())
            for where, device, at in ((made.board, link, 1), (name, "eth0", own)):
                made.run(where, "ip", "addr", "add", f"10.42.{net}.{at}/24", "dev", device)
                made.run(where, "ip", "addr", "add", f"fd42:{net}::{at}/64", "dev", device)
                made.run(where, "ethtool", "-K", device, *_AS_ON_A_WIRE)
                made.run(where, "ip", "link", "set", device, "up")
            made.run(name, "ip", "route", "add", "default", "via", f"10.42.{net}.1")
            made.run(name, "ip", "-6", "route", "add", "default", "via", f"fd42:{net}::1")
        forwards = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        made.run(made.board, "sysctl", "-qw", *forwards, "net.netfilter.nf_conntrack_acct=1")
        made.run(made.board, "nft", "-f", "-", text=_RULES)
        yield made
    finally:
        for name in (made.board, made.pod, made.shop):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@dataclass
class Helper:
    """A running leadline-flows, and all that it has written."""

    process: subprocess.Popen[str]
    file: Path
    written: list[dict[str, Any]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Keep each file that it writes, until it is stopped."""
        last = 0
        while not self._stop.wait(0.05):
            if self.file.exists() and (status := self.file.stat()).st_ino != last:
                last = status.st_ino
                self.written.append(json.loads(self.file.read_text()))

    def wait_for_periods(self, count: int, timeout_s: float = 60) -> None:
        """Wait until it has written `count` files more."""
        until_s, wanted = time.monotonic() + timeout_s, len(self.written) + count
        while len(self.written) < wanted:
            assert time.monotonic() < until_s, "leadline-flows writes nothing"
            assert self.process.poll() is None, "leadline-flows has ended"
            time.sleep(0.1)

    def flows(self) -> dict[tuple[str, str, int], list[int]]:
        """[bytes sent, received, packets sent, received, connections] of each pair so far."""
        found: dict[tuple[str, str, int], list[int]] = {}
        for each in self.written:
            for source, destination, port, *counts, _, _ in each["flows"]:
                sums = found.setdefault((source, destination, port), [0] * 5)
                for at, value in enumerate(counts):
                    sums[at] += value
        return found

    def translations(self) -> Counter[tuple[str, str | None, bool]]:
        """How often each (destination, translated source, whether translated) was written."""
        rows = [row for each in self.written for row in each["flows"]]
        return Counter((row[1], row[8], row[9]) for row in rows)


@contextmanager
def counting(
    board: TrackedBoard, folder: Path, more: Sequence[str] = ("--period-s", "1")
) -> Iterator[Helper]:
    """Run leadline-flows on the board until the block ends."""
    file = folder / "flows.json"
    argv = ["ip", "netns", "exec", board.board, sys.executable, "-m", "leadline_flows"]
    process = subprocess.Popen(
        [*argv, "--file", str(file), *more], stderr=subprocess.PIPE, text=True
    )
    helper = Helper(process, file)
    watcher = threading.Thread(target=helper.watch)
    watcher.start()
    try:
        yield helper
    finally:
        helper._stop.set()
        watcher.join()
        process.terminate()
        process.wait(30)
        if process.stderr:
            process.stderr.close()

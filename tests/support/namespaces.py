"""A network namespace behind a real link, for tests that run as root."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Namespace:
    """The other end of the link: its namespace and address, and our address on the link."""

    name: str
    address: str
    own_address: str

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` inside."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str) -> None:
        """Run a command inside, to its end."""
        _run(*self.command(*command))


@contextmanager
def linked_namespace(rate_mbps: int | None = None) -> Iterator[Namespace]:
    """A namespace joined to this one by a veth pair; `rate_mbps` throttles our sending to it."""
    number = next(_NUMBERS)
    name = f"lt{os.getpid()}-{number}"
    link = f"lt{os.getpid() % 100_000}v{number}"
    net = f"198.18.{os.getpid() % 250}.{4 * (number % 60)}"
    base, last = net.rsplit(".", 1)
    namespace = Namespace(name, f"{base}.{int(last) + 2}", f"{base}.{int(last) + 1}")
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "addr", "add", f"{namespace.own_address}/30", "dev", link)
        _run("ip", "link", "set", link, "up")
        namespace.run("ip", "addr", "add", f"{namespace.address}/30", "dev", "eth0")
        namespace.run("ip", "link", "set", "eth0", "up")
        namespace.run("ip", "link", "set", "lo", "up")
        if rate_mbps:
            limit = ("rate", f"{rate_mbps}mbit", "burst", "32kb", "latency", "100ms")
            _run("tc", "qdisc", "add", "dev", link, "root", "tbf", *limit)
        yield namespace
    finally:
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()} (tests need root)")

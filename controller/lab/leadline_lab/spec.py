"""The specification of a lab: pure data, from a user's TOML file or the default.

The default is NetSched's test bed: three of four boards have a throttled link, and the pods should
go to the fourth.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline_controller.parsing.documents import parse_toml
from leadline_controller.parsing.fields import FieldError, Fields, quoted

from leadline_lab.errors import SpecError

SERVER = "server"
SWITCH = "switch"
_SUBNET = ipaddress.IPv4Network("10.77.0.0/24")
_LAB_NAME = re.compile(r"[a-z0-9]{1,20}")
_BOARD_NAME = re.compile(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?")
_MAX_RATE_MBPS = 10_000.0
_MIN_RATE_MBPS = 0.1
_MAX_DELAY_MS = 10_000.0
_ETHERNET_MBPS = (10, 100, 1000, 2500, 5000, 10_000)


@dataclass(frozen=True)
class BoardSpec:
    """One board and its link to the switch."""

    name: str
    rate_mbps: float | None = None
    """Rate of the link in each direction, Mbit/s (10^6); None: not shaped."""
    delay_ms: float = 0.0
    """Delay that the link adds to a round trip, half of it in each direction."""
    link_mbps: float | None = None
    """Speed that the board's interface states, Mbit/s; None: see :attr:`speed_mbps`."""

    @property
    def speed_mbps(self) -> int | None:
        """What the interface states: by default the first speed of Ethernet that the rate fits in.
        None: what a veth states."""
        if self.link_mbps is not None:
            return round(self.link_mbps)
        if self.rate_mbps is None:
            return None
        return next(mbps for mbps in _ETHERNET_MBPS if mbps >= self.rate_mbps)


@dataclass(frozen=True)
class LabSpec:
    """A lab: boards on shaped links and an unshaped ``server``, all on one switch."""

    name: str = "demo"
    subnet: ipaddress.IPv4Network = _SUBNET
    boards: tuple[BoardSpec, ...] = (
        BoardSpec("n1", rate_mbps=4),
        BoardSpec("n2", rate_mbps=4),
        BoardSpec("n3", rate_mbps=4),
        BoardSpec("n4", rate_mbps=100),
    )

    @property
    def hosts(self) -> tuple[BoardSpec, ...]:
        """The boards, then the server, which has neither rate nor delay."""
        return (*self.boards, BoardSpec(SERVER))

    def address(self, host: str) -> str:
        """IPv4 address of a host: boards have the first addresses of the subnet, the server the
        last."""
        if host == SERVER:
            return str(self.subnet.broadcast_address - 1)
        for number, board in enumerate(self.boards, start=1):
            if board.name == host:
                return str(self.subnet.network_address + number)
        names = ", ".join(host.name for host in self.hosts)
        raise SpecError(f"lab {self.name} has no host {host}; it has {names}")

    def namespace(self, host: str) -> str:
        """Name of a host's network namespace (see ``ip netns list``)."""
        if host != SWITCH:
            self.address(host)
        return namespace_prefix(self.name) + host

    def to_mapping(self) -> dict[str, Any]:
        """The mapping that :func:`parse_spec` reads."""
        boards = [
            {"name": board.name, "delay_ms": board.delay_ms}
            | ({} if board.rate_mbps is None else {"rate_mbps": board.rate_mbps})
            | ({} if board.link_mbps is None else {"link_mbps": board.link_mbps})
            for board in self.boards
        ]
        return {"name": self.name, "subnet": str(self.subnet), "boards": boards}


def namespace_prefix(name: str) -> str:
    """The prefix of the names of a lab's namespaces; it is unique, as lab names have no dash."""
    return f"leadline-{lab_name(name)}-"


def lab_name(name: object) -> str:
    """Check a lab's name: 1 to 20 lower-case letters and digits. Raises :class:`SpecError`."""
    if not isinstance(name, str) or not _LAB_NAME.fullmatch(name):
        raise SpecError(f"lab: name: expected 1-20 of a-z and 0-9, got {quoted(name)}")
    return name


def load_spec(path: Path) -> LabSpec:
    """Read a lab's TOML file. Raises :class:`SpecError` with a message of one line."""
    try:
        return parse_spec(parse_toml(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except (FieldError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: is not TOML: {error}") from None


def parse_spec(value: Mapping[str, Any], where: str = "lab") -> LabSpec:
    """Check a mapping; missing keys have the values of the default. Raises :class:`SpecError`."""
    try:
        return _spec(Fields(value, ""))
    except FieldError as error:
        raise SpecError(f"{where}: {error}") from None


def _spec(root: Fields) -> LabSpec:
    root.only("name", "subnet", "boards")
    default = LabSpec()
    name = root.text("name", default.name)
    if not _LAB_NAME.fullmatch(name):
        raise root.error("name", "1-20 of a-z and 0-9")
    boards = tuple(map(_board, root.objects("boards"))) if root.has("boards") else default.boards
    if not boards:
        raise root.error("boards", "a list of at least one board")
    for board, times in Counter(board.name for board in boards).items():
        if times > 1:
            raise FieldError(f"boards: {board} is there more than once")
    try:
        subnet = ipaddress.IPv4Network(root.text("subnet", str(default.subnet)))
    except ValueError:
        subnet = None
    if subnet is None or not subnet.is_private or subnet.is_loopback or subnet.is_link_local:
        raise root.error("subnet", "a private IPv4 range such as 10.77.0.0/24")
    if subnet.num_addresses < len(boards) + 3:
        raise FieldError(f"subnet: {subnet} is too small for {len(boards)} boards")
    return LabSpec(name, subnet, boards)


def _board(entry: Fields) -> BoardSpec:
    entry.only("name", "rate_mbps", "delay_ms", "link_mbps")
    name = entry.text("name")
    if not _BOARD_NAME.fullmatch(name):
        raise entry.error("name", "1-10 of a-z, 0-9 and -, a letter first")
    if name in (SERVER, SWITCH):
        raise entry.error("name", f"another name, as {name} is taken by the lab itself")
    rate = _number(entry, "rate_mbps", _MIN_RATE_MBPS, _MAX_RATE_MBPS)
    delay = _number(entry, "delay_ms", 0.0, _MAX_DELAY_MS)
    link = _number(entry, "link_mbps", max(rate or 0.0, 1.0), _MAX_RATE_MBPS)
    return BoardSpec(name, rate, delay or 0.0, link)


def _number(entry: Fields, name: str, least: float, most: float) -> float | None:
    number = entry.number(name, most)
    if number is not None and number < least:
        raise entry.error(name, f"a number from {least:g} to {most:g}")
    return number

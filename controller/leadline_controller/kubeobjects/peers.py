"""The annotation `leadline.dev/peers`: what a pod says that it talks to, as text and read."""

import math
import re
from collections.abc import Callable

from leadline_controller.framework.model import NODE_PEER, DeclaredPeer
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.parsing.fields import FieldError, shown

MAX_PEERS = 64
_MOST = 1e12  # sums and products of such numbers stay finite
_LONGEST_NAME = 253
_PART = re.compile(
    r"(?P<name>[^=@<]*)(?:=(?P<mbps>[^=@<]*))?(?:@(?P<requests>[^=@<]*))?(?:<(?P<rtt>[^=@<]*))?"
)
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_EXAMPLE = "such as db=5@20rps<5ms"


def read_peers(text: str) -> tuple[DeclaredPeer, ...]:
    """The peers in the value of the annotation. Raises FieldError, which names the entry and what
    was expected."""
    entries = text.split(",", MAX_PEERS)
    if len(entries) > MAX_PEERS:
        raise FieldError(f"expected {MAX_PEERS} peers at most, got more")
    peers: dict[str, DeclaredPeer] = {}
    for number, entry in enumerate(entries, start=1):
        peer = _peer(entry.strip(), f"entry {number}")
        if peer.name in peers:
            raise FieldError(f"entry {number}: {peer.name[:80]} comes twice")
        peers[peer.name] = peer
    return tuple(peers.values())


def write_peers(peers: tuple[DeclaredPeer, ...], called: Callable[[str], str]) -> str:
    """The value of the annotation. called: what the peer of this name is called there."""

    def entry(peer: DeclaredPeer) -> str:
        text = f"{called(peer.name)}={peer.mbps!r}"
        if peer.requests_per_s is not None:
            text += f"@{peer.requests_per_s!r}rps"
        return text if peer.most_rtt_ms is None else f"{text}<{peer.most_rtt_ms!r}ms"

    return ",".join(map(entry, peers))


def _peer(entry: str, where: str) -> DeclaredPeer:
    found = _PART.fullmatch(entry)
    if found is None:
        expected = "NAME, NAME=Mbit/s, then @requests a second, then <round trip"
        raise FieldError(f"{where}: expected {expected}, {_EXAMPLE}, got {shown(entry)}")
    mbps, requests, rtt = found["mbps"], found["requests"], found["rtt"]
    return DeclaredPeer(
        _name(found["name"].strip(), where),
        1.0 if mbps is None else _number(mbps, "", "Mbit/s after '='", where),
        None if requests is None else _number(requests, "rps", "requests after '@'", where),
        None if rtt is None else _number(rtt, "ms", "round trip after '<'", where),
    )


def _name(text: str, where: str) -> str:
    name = text.removeprefix(NODE_PEER)
    if len(name) <= _LONGEST_NAME:
        if (address := read_unicast(text)) is not None:
            return str(address)
        if _NAME.fullmatch(name):
            return text
    raise FieldError(
        f"{where}: expected a Service, a workload, NAME.NAMESPACE, node/NAME or an address, "
        f"got {shown(text)}"
    )


def _number(text: str, unit: str, what: str, where: str) -> float:
    try:
        value = float(text.strip().removesuffix(unit)) if text.strip().endswith(unit) else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST:
        like = f", such as 5{unit}" if unit else ""
        raise FieldError(
            f"{where}: {what}: expected a number from 0 to {_MOST:g}{like}, got {shown(text)}"
        )
    return value

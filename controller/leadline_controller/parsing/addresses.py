"""Parses the IP addresses and networks in telemetry, manifests and settings."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@lru_cache(8192)
def read_unicast(text: str) -> Address | None:
    """The address, if `text` is a unicast IP address that any machine can use."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if address.is_multicast or address.is_unspecified:
        return None
    if isinstance(address, IPv6Address):
        # A scope is an interface of one machine; a mapped address is an IPv4 address in disguise.
        return None if address.scope_id or address.ipv4_mapped else address
    return None if address.is_reserved else address  # 240.0.0.0/4, with the broadcast address


def read_address(text: str) -> Address | None:
    """The IP address that `text` is, without its zone. A mapped one is the IPv4 address in it."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

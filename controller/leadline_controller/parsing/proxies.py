"""Decides which requests go through a proxy, as kubectl, k3s and containerd decide it.

They are written in Go, whose net/http takes networks, addresses with ports and *.example.org in
NO_PROXY, and never sends requests for this machine to a proxy (golang.org/x/net/http/httpproxy).
Python's urllib does neither, and the same variables have to mean the same to all of them.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from leadline_controller.parsing.addresses import Address, Network, read_address

_PORTS = {"http": "80", "https": "443"}
# As much of Go's url.Parse as says whether a proxy's URL is one.
_USER = r"[\w.\-~!$&'()*+,;=:%@]*@"
_HOST = r"(?:\[[0-9A-Fa-f:.]+(?:%25[^\]\s]+)?\]|[^\s\x00-\x20\x7f\[\]:@/?#%\\^`{|}]*)(?::[0-9]*)?"
_URL = re.compile(rf"([A-Za-z][A-Za-z0-9+.\-]*)://(?:{_USER})?({_HOST})(?:[/?#][^\x00-\x1f\x7f]*)?")
_HOST_AND_PORT = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)")


class ProxyError(ValueError):
    """A proxy that cannot be used; str() is one line, without the proxy's password."""


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for a request of `url`, None to go directly.

    environ: the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or in small letters, which count
    where those in capitals are empty. A proxy without a scheme is an http one. One whose URL Go
    cannot read counts as none, as it does there.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        return None
    proxy = _proxy_url(_variable(environ, f"{parts.scheme}_proxy"))
    if proxy is None:
        return None
    host = _ascii(parts.hostname or "")
    port = str(parts.port or _PORTS[parts.scheme])
    if _goes_directly(host, port, _variable(environ, "no_proxy")):
        return None
    return proxy


def http_proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """As proxy_for, for a client that knows only HTTP proxies. Raises ProxyError."""
    proxy = proxy_for(url, environ)
    scheme = urlsplit(proxy).scheme if proxy else "http"
    if scheme not in _PORTS:
        name = f"{urlsplit(url).scheme}_proxy".upper()
        raise ProxyError(f"{name}: expected http://HOST:PORT or https://HOST:PORT, got {scheme}://")
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _proxy_url(proxy: str) -> str | None:
    found = _URL.fullmatch(proxy)
    if proxy and (found is None or not found[2]):
        proxy = f"http://{proxy}"
        found = _URL.fullmatch(proxy)
    return found and found[1].lower() + proxy[found.end(1) :]


def _goes_directly(host: str, port: str, no_proxy: str) -> bool:
    address = read_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return "*" in entries or any(_matches(entry, host, port, address) for entry in entries)


def _matches(entry: str, host: str, port: str, address: Address | None) -> bool:
    """Whether an entry of NO_PROXY means this host or, if it is one, this address."""
    network = _network(entry)
    if network is not None:
        return address is not None and address in network
    found = _HOST_AND_PORT.fullmatch(entry)
    name, only = (found[1] or found[2] or "", found[3]) if found else (entry, "")
    if not name or (only and only != port):
        return False
    named = None if "%" in name else read_address(name)
    if named is not None or address is not None:
        return named == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    if name.startswith("."):
        return host.endswith("." + _ascii(name[1:]))
    return f".{host}".endswith("." + _ascii(name))


def _network(entry: str) -> Network | None:
    text, slash, bits = entry.partition("/")
    if not (slash and bits.isascii() and bits.isdigit()) or "%" in text:
        return None
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if isinstance(network, IPv6Network) and mapped is not None and network.prefixlen >= 96:
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def _ascii(name: str) -> str:
    """A name as DNS has it."""
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name

"""Where the controller's servers listen, and their certificates.

The inspection service shows the whole cluster, so an address that other machines can reach needs
TLS with client certificates.
"""

import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

# gRPC's core writes to stderr about each failed handshake, without Python's logging.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

# Outside what Linux gives to outgoing connections (32768 to 60999), which would keep a server from
# its port by chance, and outside Kubernetes' node ports (30000 to 32767).
DEFAULT_ADDRESS = "127.0.0.1:25505"
DEFAULT_EXTENDER_ADDRESS = "127.0.0.1:25506"
DEFAULT_KEDA_ADDRESS = "127.0.0.1:25507"
DEFAULT_METRICS_ADDRESS = "127.0.0.1:25508"
DEFAULT_HEALTH_ADDRESS = "127.0.0.1:25510"
UNIX_PREFIX = "unix:"
_HOST_PORT = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})")
MAX_REQUEST_BYTES = 64 * 1024
# For all decisions and nodes of the largest cluster; gRPC's default is 4 MiB.
MAX_ANSWER_BYTES = 32 * 1024 * 1024


class ServeError(Exception):
    """A server can't start with its settings; str() is one line for a person."""


class ListenError(ServeError):
    """The address cannot be had now; later it may. section: of the settings. why: with what joins
    it to the sentence."""

    def __init__(self, section: str, address: str, why: str) -> None:
        super().__init__(f"{section} address {address}: cannot listen there{why}")
        self.where = f"{section} address {address}"
        self.what = f"cannot listen there{why}"


@dataclass(frozen=True, slots=True)
class Unserved:
    """A server that waits for its address. since_s: on the monotonic clock of the states."""

    where: str
    what: str
    since_s: float


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the CA of the other side's certificates, and our own certificate and key."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def server_credentials(self) -> grpc.ServerCredentials:
        """Server credentials that require a client certificate. Raises ServeError."""
        pair = (_read(self.key_file), _read(self.cert_file))
        return grpc.ssl_server_credentials(
            [pair], root_certificates=_read(self.ca_file), require_client_auth=True
        )

    def server_context(self) -> ssl.SSLContext:
        """Like server_credentials, for Python's ssl. Raises ServeError."""
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca_file)
            context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ValueError) as problem:
            raise ServeError(f"certificates: {problem}") from None
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_credentials(self) -> grpc.ChannelCredentials:
        """Client credentials with a client certificate. Raises ServeError."""
        return grpc.ssl_channel_credentials(
            _read(self.ca_file), _read(self.key_file), _read(self.cert_file)
        )


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """address: host:port, [ipv6]:port (port 0 takes a free one) or unix:/path."""

    address: str = DEFAULT_ADDRESS

    @property
    def unix_path(self) -> Path | None:
        """The socket's path; None for TCP."""
        path = self.address.removeprefix(UNIX_PREFIX)
        return None if path == self.address else Path(path)

    @property
    def host(self) -> str:
        """The host to listen on."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on; 0 takes a free one."""
        return int(self.address.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class ServeSettings(ListenAddress):
    """Where to listen. Raises ServeError for an invalid address, and for one that other machines
    can reach without `tls`."""

    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not is_local(self.address):
            raise ServeError(
                f"{self.address}: other machines can reach it, so it needs TLS with client "
                "certificates; configure them, or listen on 127.0.0.1"
            )
        if self.tls is not None and self.unix_path is not None:
            raise ServeError(
                f"{self.address}: a unix socket takes no TLS; leave the certificates out, "
                "or listen on host:port"
            )


@dataclass(frozen=True, slots=True)
class ExtenderSettings(ServeSettings):
    """Where the extender listens: no unix socket. every_filter: whether to run the filters that
    kube-scheduler has as well. bind: whether callers may bind pods, which needs `tls`. Raises
    ServeError as ServeSettings does, and for `bind` without `tls`."""

    address: str = DEFAULT_EXTENDER_ADDRESS
    every_filter: bool = False
    bind: bool = False

    def __post_init__(self) -> None:
        ServeSettings.__post_init__(self)
        if self.unix_path is not None:
            raise ServeError(f"{self.address}: kube-scheduler takes host:port only")
        if self.bind and self.tls is None:
            raise ServeError(
                f"{self.address}: only those with a certificate may have pods bound; configure "
                "certificates beside bind = true, or leave it out"
            )


@dataclass(frozen=True, slots=True)
class KedaSettings(ServeSettings):
    """Where KEDA asks for replicas: no unix socket. requests_urls: endpoints with Prometheus' text
    format that count the requests, such as the ingress'; without one there is no rate. window_s:
    over how long a rate is taken. Raises ServeError as ServeSettings does."""

    address: str = DEFAULT_KEDA_ADDRESS
    requests_urls: tuple[str, ...] = ()
    window_s: float = 30.0

    def __post_init__(self) -> None:
        ServeSettings.__post_init__(self)
        if self.unix_path is not None:
            raise ServeError(f"{self.address}: KEDA's scalerAddress is host:port")


@dataclass(frozen=True, slots=True)
class MetricsSettings(ServeSettings):
    """Where Prometheus asks: no unix socket. peers: to how many near peers of each board there are
    series. every_link: of every measured pair instead. Raises ServeError as ServeSettings does."""

    address: str = DEFAULT_METRICS_ADDRESS
    peers: int = 3
    every_link: bool = False

    def __post_init__(self) -> None:
        ServeSettings.__post_init__(self)
        if self.unix_path is not None:
            raise ServeError(f"{self.address}: Prometheus takes host:port only")


@dataclass(frozen=True, slots=True)
class HealthSettings(ListenAddress):
    """Where kubelet asks: no unix socket. Raises ServeError for an invalid address."""

    address: str = DEFAULT_HEALTH_ADDRESS

    def __post_init__(self) -> None:
        is_local(self.address)
        if self.unix_path is not None:
            raise ServeError(f"{self.address}: kubelet takes host:port only")


def is_local(address: str) -> bool:
    """Whether only this machine can connect to the address. Raises ServeError if it is invalid."""
    if address.startswith(f"{UNIX_PREFIX}/"):
        return True
    found = _HOST_PORT.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise ServeError(f"{address!r}: expected host:port, [ipv6]:port or unix:/path")
    host = found["ipv6"] or found["host"]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise ServeError(f"certificates: cannot read {path}: {reason}") from None

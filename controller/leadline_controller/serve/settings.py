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

from leadline_controller.tls import tls_context

# gRPC's core writes to stderr about each failed handshake, without Python's logging.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from leadline_controller.parsing.settings import REQUIRED, readable_file, section, setting

# Outside what Linux gives to outgoing connections (32768 to 60999), which would keep a server from
# its port by chance, and outside Kubernetes' node ports (30000 to 32767).
DEFAULT_REMOTE_ADDRESS = "127.0.0.1:25505"
DEFAULT_EXTENDER_ADDRESS = "127.0.0.1:25506"
DEFAULT_KEDA_ADDRESS = "127.0.0.1:25507"
DEFAULT_METRICS_ADDRESS = "127.0.0.1:25508"
DEFAULT_HEALTH_ADDRESS = "127.0.0.1:25510"
UNIX_PREFIX = "unix:"
DEFAULT_ADDRESS = f"{UNIX_PREFIX}/run/leadline/controller.sock"
_HOST_PORT = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})")
_HTTP_URL = re.compile(r"https?://[^\s/@]+(/[^\s#]*)?")
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
    """A server that waits for its address."""

    where: str
    what: str
    since_s: float  # on the monotonic clock of the states


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files."""

    ca_file: Path = setting(
        REQUIRED,
        "the authority of those who ask; all three are required where other machines reach the "
        "address",
        read=readable_file,
    )
    cert_file: Path = setting(REQUIRED, "the server's certificate", read=readable_file)
    key_file: Path = setting(REQUIRED, "its key, without a passphrase", read=readable_file)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Server credentials that require a client certificate. Raises ServeError."""
        pair = (_read(self.key_file), _read(self.cert_file))
        return grpc.ssl_server_credentials(
            [pair], root_certificates=_read(self.ca_file), require_client_auth=True
        )

    def server_context(self) -> ssl.SSLContext:
        """Like server_credentials, for Python's ssl. Raises ServeError."""
        return server_context(self.ca_file, self.cert_file, self.key_file, ssl.CERT_REQUIRED)

    def client_credentials(self) -> grpc.ChannelCredentials:
        """Client credentials with a client certificate. Raises ServeError."""
        return grpc.ssl_channel_credentials(
            _read(self.ca_file), _read(self.key_file), _read(self.cert_file)
        )


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """host:port, [ipv6]:port (port 0 takes a free one) or unix:/path."""

    address: str

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

    tls: TlsFiles | None = section()

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

    @property
    def each(self) -> tuple["ServeSettings", ...]:
        """The settings of each address."""
        return (self,)


@dataclass(frozen=True, slots=True)
class GrpcSettings(ServeSettings):
    """Where `leadline` asks: unix:/path for this machine, host:port for others, or several with
    commas between them. tls: of each host:port. Raises ServeError as ServeSettings does."""

    # Empty: DEFAULT_ADDRESS, and with tls DEFAULT_REMOTE_ADDRESS too.
    address: str = setting(
        "",
        "where `leadline` asks: `unix:/path` for this machine, `host:port` for others, or several "
        "with commas between them; see [its limits](#the-grpc-api-its-limits). With `grpc.tls` the "
        f"default is this socket and `{DEFAULT_REMOTE_ADDRESS}`",
        shown=f"`{DEFAULT_ADDRESS}`",
    )

    def __post_init__(self) -> None:
        if not self.address:
            both = f"{DEFAULT_ADDRESS},{DEFAULT_REMOTE_ADDRESS}"
            object.__setattr__(self, "address", DEFAULT_ADDRESS if self.tls is None else both)
        secure = any(each.tls is not None for each in self.each)
        if self.tls is not None and not secure:
            ServeSettings.__post_init__(self)

    @property
    def each(self) -> tuple[ServeSettings, ...]:
        """The settings of each address."""
        return tuple(
            ServeSettings(each, None if each.startswith(UNIX_PREFIX) else self.tls)
            for each in map(str.strip, self.address.split(","))
        )


@dataclass(frozen=True, slots=True)
class PortSettings(ServeSettings):
    """Where those listen whom no Unix socket reaches. Raises ServeError as ServeSettings does, and
    for a socket."""

    def __post_init__(self) -> None:
        ServeSettings.__post_init__(self)
        require_port(self)


@dataclass(frozen=True, slots=True)
class ExtenderSettings(PortSettings):
    """Where the extender listens. Raises ServeError as PortSettings does, and for `bind` without
    `tls`."""

    address: str = setting(
        DEFAULT_EXTENDER_ADDRESS,
        "where kube-scheduler asks, `host:port`; without a section `[extender]` it cannot",
    )
    every_filter: bool = setting(
        False,
        "own: only the filters that kube-scheduler does not have; all: all of them",
        name="filters",
        words={"own": False, "all": True},
    )
    bind: bool = setting(
        False,
        "true: kube-scheduler may have Leadline bind pods, see `POST /bind`; only with "
        "`extender.tls`",
    )

    def __post_init__(self) -> None:
        PortSettings.__post_init__(self)
        if self.bind and self.tls is None:
            raise ServeError(
                f"{self.address}: only those with a certificate may have pods bound; configure "
                "certificates beside bind = true, or leave it out"
            )


def _http_url(text: str) -> str:
    if not _HTTP_URL.fullmatch(text):
        raise ValueError("expected a URL such as http://10.42.0.7:9100/metrics")
    return text


@dataclass(frozen=True, slots=True)
class KedaSettings(PortSettings):
    """Where KEDA asks for replicas. Raises ServeError as PortSettings does."""

    address: str = setting(
        DEFAULT_KEDA_ADDRESS,
        "where [KEDA](replicas.md#scale-up-keda) asks for replicas, `host:port`; without a section "
        "`[keda]` it cannot",
    )
    # Without one there is no rate.
    requests_urls: tuple[str, ...] = setting(
        (),
        "addresses with Prometheus' text format that count requests, such as "
        '`["http://10.42.0.7:9100/metrics"]`; their counts add up',
        read=_http_url,
    )
    window_s: float = setting(
        30.0, "over how many seconds a request rate is taken", least=1, most=3600
    )


@dataclass(frozen=True, slots=True)
class MetricsSettings(PortSettings):
    """Where Prometheus asks. Raises ServeError as PortSettings does."""

    address: str = setting(
        DEFAULT_METRICS_ADDRESS,
        "where [Prometheus](metrics.md) asks, `host:port`; without a section `[metrics]` it cannot",
    )
    peers: int = setting(
        3, "to how many near peers of each board there are series of links", most=64
    )
    every_link: bool = setting(
        False,
        "all: series of every measured pair, whose number grows with the square of the boards",
        name="links",
        words={"nearest": False, "all": True},
    )


@dataclass(frozen=True, slots=True)
class HealthSettings(ListenAddress):
    """Where kubelet asks. Raises ServeError for an invalid address, and for a Unix socket."""

    address: str = setting(
        DEFAULT_HEALTH_ADDRESS,
        "where kubelet's probes ask `/healthz` and `/readyz`, `host:port`, without TLS; without a "
        "section `[health]` they cannot. See [cluster.md](cluster.md#probes)",
    )

    def __post_init__(self) -> None:
        is_local(self.address)
        require_port(self)


def server_context(
    ca_file: Path | None, cert_file: Path, key_file: Path, mode: ssl.VerifyMode
) -> ssl.SSLContext:
    """TLS of a server with Python's ssl. ca_file: of the clients' certificates, which `mode` asks
    for. Raises ServeError."""
    try:
        context = tls_context(ca_file, ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as problem:
        raise ServeError(f"certificates: {problem}") from None
    context.verify_mode = mode
    return context


def require_port(settings: ListenAddress) -> None:
    """Raises ServeError for a Unix socket."""
    if settings.unix_path is not None:
        raise ServeError(f"{settings.address}: expected host:port only; a Unix socket is for grpc")


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

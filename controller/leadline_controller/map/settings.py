"""Where the map is served, and who may see it."""

import hashlib
import hmac
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from leadline_controller.parsing.settings import (
    REQUIRED,
    readable_file,
    secret_line,
    section,
    setting,
)
from leadline_controller.serve.settings import (
    ListenAddress,
    ServeError,
    is_local,
    require_port,
    server_context,
)

DEFAULT_WEB_ADDRESS = "127.0.0.1:25509"
_SHORTEST_PASSWORD = 8


@dataclass(frozen=True, slots=True)
class WebTls:
    """PEM files."""

    cert_file: Path = setting(
        REQUIRED,
        "the map's certificate; it and its key are required where other machines reach the address",
        read=readable_file,
    )
    key_file: Path = setting(REQUIRED, "its key, without a passphrase", read=readable_file)
    client_ca_file: Path | None = setting(
        None, "visitors with a certificate of this authority need no login", read=readable_file
    )

    def server_context(self, *, login: bool) -> ssl.SSLContext:
        """login: visitors without a certificate may log in. Raises ServeError."""
        mode = ssl.CERT_NONE
        if self.client_ca_file is not None:
            mode = ssl.CERT_OPTIONAL if login else ssl.CERT_REQUIRED
        return server_context(self.client_ca_file, self.cert_file, self.key_file, mode)


@dataclass(frozen=True, slots=True)
class Login:
    """The one user."""

    # SHA-256 of user:password, which only serves to compare texts of any length in constant time.
    digest: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Login":
        """From a file with a line user:password that nobody else may read. Raises ValueError."""
        user, colon, password = secret_line(path).partition(":")
        if not (user and colon):
            raise ValueError(f"{path}: expected one line user:password")
        if len(password) < _SHORTEST_PASSWORD:
            raise ValueError(
                f"{path}: expected a password of {_SHORTEST_PASSWORD} characters or more"
            )
        return cls(hashlib.sha256(f"{user}:{password}".encode()).digest())

    def admits(self, given: bytes) -> bool:
        """Whether this is the right user:password."""
        return hmac.compare_digest(hashlib.sha256(given).digest(), self.digest)


def _login(text: str) -> Login:
    return Login.read(Path(text))


@dataclass(frozen=True, slots=True)
class WebSettings(ListenAddress):
    """Where the map is served. Raises ServeError for an invalid address, for a Unix socket, and for
    one that other machines can reach, without TLS and visitors' certificates or a login."""

    address: str = setting(
        DEFAULT_WEB_ADDRESS,
        "where [the map](map.md) is served, `host:port`; without a section `[web]` it is not",
    )
    tls: WebTls | None = section()
    login: Login | None = setting(
        None,
        "a file with a line `user:password` that only the controller may read; visitors "
        "[log in](map.md#who-may-see-it)",
        name="password_file",
        read=_login,
    )

    def __post_init__(self) -> None:
        local = is_local(self.address)
        require_port(self)
        if local:
            return
        if self.tls is None:
            raise ServeError(
                f"{self.address}: other machines can reach it, so it needs TLS; configure "
                "[web.tls], or listen on 127.0.0.1"
            )
        if self.login is None and self.tls.client_ca_file is None:
            raise ServeError(
                f"{self.address}: other machines can reach it, so visitors need a certificate "
                "(client_ca_file) or a login (password_file)"
            )

"""Where the map is served, and who may see it."""

import hashlib
import hmac
import os
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from leadline_controller.api.settings import ListenAddress, ServeError, is_local

DEFAULT_WEB_ADDRESS = "127.0.0.1:25509"
_LONGEST = 1024
_SHORTEST_PASSWORD = 8


@dataclass(frozen=True, slots=True)
class WebTls:
    """PEM files: our certificate and key, and the CA of visitors' certificates, None if visitors
    need none."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def server_context(self, *, login: bool) -> ssl.SSLContext:
        """login: visitors without a certificate may log in. Raises ServeError."""
        try:
            context = ssl.create_default_context(
                ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca_file
            )
            context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ValueError) as problem:
            raise ServeError(f"certificates: {problem}") from None
        context.verify_mode = ssl.CERT_NONE
        if self.client_ca_file is not None:
            context.verify_mode = ssl.CERT_OPTIONAL if login else ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class Login:
    """The one user. digest: SHA-256 of user:password, which only serves to compare texts of any
    length in constant time."""

    digest: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path, credentials: Path | None = None) -> "Login":
        """From a file with a line user:password that nobody else may read. credentials: systemd's
        folder of them, which has its own protection. Raises ServeError."""
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                line = file.read(_LONGEST + 1)
        except OSError as error:
            raise ServeError(f"{path}: {error.strerror}") from None
        protected = credentials is not None and path.is_relative_to(credentials)
        if not protected and stat.S_IMODE(mode) & 0o077:
            raise ServeError(f"{path}: others may read it; chmod 600 it")
        try:
            user, colon, password = line.decode("utf-8-sig").rstrip("\r\n").partition(":")
        except UnicodeDecodeError:
            user = colon = password = ""
        sound = user and colon and password.isprintable() and user.isprintable()
        if not sound or len(line) > _LONGEST:
            raise ServeError(f"{path}: expected one line user:password")
        if len(password) < _SHORTEST_PASSWORD:
            raise ServeError(
                f"{path}: expected a password of {_SHORTEST_PASSWORD} characters or more"
            )
        return cls(hashlib.sha256(f"{user}:{password}".encode()).digest())

    def admits(self, given: bytes) -> bool:
        """Whether this is the right user:password."""
        return hmac.compare_digest(hashlib.sha256(given).digest(), self.digest)


@dataclass(frozen=True, slots=True)
class WebSettings(ListenAddress):
    """Where the map is served: no unix socket. Raises ServeError for an invalid address, and for
    one that other machines can reach, without TLS and visitors' certificates or a login."""

    address: str = DEFAULT_WEB_ADDRESS
    tls: WebTls | None = None
    login: Login | None = None

    def __post_init__(self) -> None:
        local = is_local(self.address)
        if self.unix_path is not None:
            raise ServeError(f"{self.address}: browsers take host:port only")
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

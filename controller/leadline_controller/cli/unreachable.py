"""Why a controller cannot be reached.

gRPC says no more than "failed to connect to all addresses", and says it differently in each
version. So after a failure the connection is made once more, step by step.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from leadline_controller.serve.certificates import CertificateFile
from leadline_controller.serve.settings import UNIX_PREFIX, TlsFiles

STEP_S = 3.0
SEE = "`systemctl status leadline-controller` and `journalctl -u leadline-controller`"
_LOOK = f"see {SEE}"
# How an HTTP/2 client begins: the preface of RFC 9113, section 3.4, and empty SETTINGS.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS_TYPE = 4
_TLS_ALERT = b"\x15\x03"
_NOT_YET, _EXPIRED = 9, 10  # X509_V_ERR_... of OpenSSL
_OTHER_NAME = (62, 64)  # a host name, an IP address


class NotReachedError(Exception):
    """why: it failed. remedy: what to do."""

    def __init__(self, why: str, remedy: str = _LOOK) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def cause_of(address: str, tls: TlsFiles | None, step_s: float = STEP_S) -> NotReachedError | None:
    """Why the controller at this address (host:port or unix:/path) cannot be reached; None when a
    gRPC server answers there. Takes `step_s` at most for each step."""
    try:
        with _connected(address, step_s) as plain:
            if tls is None:
                _greet(plain, _why_not_plain)
                return None
            with _secured(plain, address, tls) as secure:
                _greet(secure, lambda error: _why_not_accepted(error, tls))
                return None
    except NotReachedError as cause:
        return cause


def is_open(address: str, step_s: float = STEP_S) -> bool:
    """Whether anything accepts connections at this address."""
    try:
        _connected(address, step_s).close()
    except NotReachedError:
        return False
    return True


def _connected(address: str, step_s: float) -> socket.socket:
    places = _places(address)
    for at, (family, kind, protocol, _, where) in enumerate(places, start=1):
        made = socket.socket(family, kind, protocol)
        made.settimeout(step_s)
        try:
            made.connect(where)
        except OSError as error:
            made.close()
            if at == len(places):
                raise _why_not_connected(error, is_file=family == socket.AF_UNIX) from None
        else:
            return made
    raise NotReachedError("the name has no address", "check --address")


def _places(address: str) -> Sequence[tuple[Any, ...]]:
    """As of getaddrinfo."""
    if address.startswith(UNIX_PREFIX):
        path = address.removeprefix(UNIX_PREFIX)
        return ((socket.AF_UNIX, socket.SOCK_STREAM, 0, "", path),)
    host, _, port = address.rpartition(":")
    try:
        return socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = f"the name {host} is not resolved ({getattr(error, 'strerror', None) or error})"
        raise NotReachedError(why, "check --address, and the name server of this machine") from None


def _why_not_connected(error: OSError, *, is_file: bool) -> NotReachedError:
    why, remedy = f"{error.strerror or error}", "check --address and the network"
    if isinstance(error, FileNotFoundError):
        why, remedy = "there is no such socket", f"check --address, and {_LOOK}"
    elif isinstance(error, PermissionError) and is_file:
        why, remedy = "you may not open this socket", "use sudo, or ask for the right"
    elif isinstance(error, ConnectionRefusedError):
        why = "connection refused, so no controller listens there"
        remedy = (
            f"{_LOOK}, start one with `leadline-controller run`, or name another with --address"
        )
    elif isinstance(error, TimeoutError):
        why = "timed out: nothing answers"
        remedy = "check --address, whether the machine is on, and its firewall"
    return NotReachedError(why, remedy)


def _secured(plain: socket.socket, address: str, tls: TlsFiles) -> ssl.SSLSocket:
    host = address.rpartition(":")[0].strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(tls.ca_file)
        # A key with a passphrase must fail here instead of asking at a terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
    except (OSError, ValueError) as error:
        why = f"certificates cannot be used: {getattr(error, 'reason', None) or error}"
        raise NotReachedError(
            why, "check --ca, --cert and --key: PEM, and a key of that certificate"
        ) from None
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _why_not_trusted(error, host) from None
    except TimeoutError:
        raise _silent() from None
    except OSError as error:
        raise _why_not_secure(error) from None


def _why_not_trusted(error: ssl.SSLCertVerificationError, host: str) -> NotReachedError:
    why = f"its certificate is not signed by the authority in --ca ({error.verify_message})"
    remedy = "give the authority of the controller's certificate"
    if error.verify_code == _EXPIRED:
        why = "its certificate has expired"
        remedy = f"renew it, check the clock of this machine, and {_LOOK}"
    elif error.verify_code == _NOT_YET:
        why, remedy = "its certificate is not valid yet", "check the clocks of both machines"
    elif error.verify_code in _OTHER_NAME:
        why = f"its certificate is for another name than {host}"
        remedy = "use the name that is in it in --address, or give the controller another one"
    return NotReachedError(why, remedy)


def _why_not_secure(error: OSError) -> NotReachedError:
    """Why TLS does not work with a server that may be trusted."""
    reason = getattr(error, "reason", None) or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return NotReachedError(
            "it speaks no TLS", "leave out --ca, --cert and --key, or check --address"
        )
    return NotReachedError(f"the TLS handshake failed ({reason or error.strerror or error})")


def _why_not_accepted(error: OSError, tls: TlsFiles) -> NotReachedError:
    """Why a server ends a connection after the handshake: in TLS 1.3 it checks the client's
    certificate then, and may close without a word."""
    ends_s = CertificateFile("--cert", tls.cert_file).ends_unix_s()
    if ends_s is not None and ends_s < time.time():
        return NotReachedError("the certificate in --cert has expired", "renew it")
    reason = getattr(error, "reason", None) or ""
    said = reason.partition("ALERT_")[2].replace("_", " ").lower() or "it closed the connection"
    return NotReachedError(
        f"it does not accept the certificate in --cert ({said})",
        f"give one of the authority that it trusts (grpc.tls.ca_file), and {_LOOK}",
    )


def _why_not_plain(_: OSError) -> NotReachedError:
    return NotReachedError(
        "it closes connections without TLS", "give --ca, --cert and --key, or check --address"
    )


def _silent() -> NotReachedError:
    return NotReachedError("it accepts connections and does not answer, as if it hung")


def _greet(made: socket.socket, why_not: Callable[[OSError], NotReachedError]) -> None:
    """Begin HTTP/2. Raises NotReachedError unless the server does so, too."""
    try:
        made.sendall(_PREFACE)
        said = made.recv(9)
    except TimeoutError:
        raise _silent() from None
    except OSError as error:
        raise why_not(error) from None
    if not said:
        raise why_not(ConnectionResetError("it closed the connection"))
    if said.startswith(_TLS_ALERT):
        raise NotReachedError("it wants TLS", "give --ca, --cert and --key, or check --address")
    if len(said) < 4 or said[3] != _SETTINGS_TYPE:
        raise NotReachedError(
            "another program answers there, which is no controller", "check --address"
        )

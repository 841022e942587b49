"""When the controller's certificates end."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline_wire import certificates

from leadline_controller.serve.settings import TlsFiles

if TYPE_CHECKING:  # the command line imports this without MQTT
    from leadline_controller.telemetry.session import BrokerTls


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """A file with a certificate, the first of which counts."""

    setting: str  # where it is configured
    path: Path

    def ends_unix_s(self) -> float | None:
        """When it ends, Unix seconds; None when it can't be read."""
        try:
            return certificates.read(self.path).not_after.timestamp()
        except (OSError, ValueError):
            return None


def certificate_files(
    section: str, tls: "BrokerTls | TlsFiles | None"
) -> Iterator[CertificateFile]:
    """The two certificates of a section of the settings, such as "broker.tls"; none without TLS."""
    if tls is not None:
        yield CertificateFile(f"{section}.ca_file", tls.ca_file)
        yield CertificateFile(f"{section}.cert_file", tls.cert_file)

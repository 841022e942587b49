"""Certificates as gRPC and the controller's settings take them."""

from pathlib import Path

import grpc
from leadline_controller.serve.settings import TlsFiles

from tests.support.certificates import Certificate


def tls_files(certificate: Certificate) -> TlsFiles:
    return TlsFiles(certificate.ca_file, certificate.cert_file, certificate.key_file)


def credentials(own: Certificate, ca_file: Path | None = None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        (ca_file or own.ca_file).read_bytes(), own.key_file.read_bytes(), own.cert_file.read_bytes()
    )

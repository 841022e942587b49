"""Requests for certificates as an agent's pod makes them, and an authority that signs them."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from leadline_controller.kube.signing import IssuingSettings

from tests.support.certificates import Authority


def request(subject: str, *, key_type: str = "ec", extension: str = "") -> str:
    """A new key's request with this subject (as openssl takes it), base64 of PEM."""
    option = "ec_paramgen_curve:prime256v1" if key_type == "ec" else "rsa_keygen_bits:2048"
    made = subprocess.run(
        [
            *("openssl", "req", "-new", "-newkey", key_type, "-pkeyopt", option, "-nodes"),
            *("-keyout", "/dev/null", "-subj", subject, "-utf8"),
            *(("-addext", extension) if extension else ()),
        ],
        capture_output=True,
        check=True,
    )
    return base64.b64encode(made.stdout).decode()


def issuing(authority: Authority) -> IssuingSettings:
    """The settings that sign with this authority."""
    return IssuingSettings(authority.ca_file, authority.ca_file.with_suffix(".key"))


def text_of(certificate: str, folder: Path) -> str:
    """What openssl says of a certificate, base64 of PEM."""
    file = folder / "shown.pem"
    file.write_bytes(base64.b64decode(certificate))
    command = ["openssl", "x509", "-in", str(file), "-noout", "-text", "-nameopt", "RFC2253"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

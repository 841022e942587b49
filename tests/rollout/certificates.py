"""Certificates for the tests of refusals and renewals."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.rollout.nspawn_testbed import NspawnTestbed


def sign(testbed: NspawnTestbed, purpose: str, host: str, days: int, out: Path) -> None:
    """Sign a host's certificate again with the testbed's authority, with the same key and names. It
    expires in `days`; with a negative number it has expired."""
    folder = testbed.folder / "pki"
    old = folder / purpose / f"{host}.pem"
    key = old.with_suffix(".key")
    request, extensions = out.with_suffix(".csr"), out.with_suffix(".ext")
    _openssl("x509", "-x509toreq", "-in", old, "-signkey", key, "-out", request)
    names = _openssl("x509", "-in", old, "-noout", "-ext", "subjectAltName").splitlines()[1]
    usage = "serverAuth" if purpose == "broker" else "clientAuth"
    extensions.write_text(
        f"subjectAltName={names.strip().replace('IP Address', 'IP')}\nextendedKeyUsage={usage}\n"
        "keyUsage=critical,digitalSignature\nbasicConstraints=critical,CA:FALSE\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", folder / "mqtt-ca.pem"),
        *("-CAkey", folder / "mqtt-ca.key", "-set_serial", "0x7e57", "-days", str(days)),
        *("-extfile", extensions, "-out", out),
    )


def sign_client(testbed: NspawnTestbed, name: str, out: Path, key: Path) -> None:
    """Create a key, and sign a certificate of a broker's client with the testbed's authority."""
    folder, request = testbed.folder / "pki", out.with_suffix(".csr")
    extensions = out.with_suffix(".ext")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    _openssl("req", *curve, "-nodes", "-keyout", key, "-subj", f"/CN={name}", "-out", request)
    extensions.write_text(
        f"subjectAltName=DNS:{name}\nextendedKeyUsage=clientAuth\n"
        "keyUsage=critical,digitalSignature\nbasicConstraints=critical,CA:FALSE\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", folder / "mqtt-ca.pem"),
        *("-CAkey", folder / "mqtt-ca.key", "-set_serial", "0x7e58", "-days", "2"),
        *("-extfile", extensions, "-out", out),
    )


def days_left(pem: str) -> int:
    """The whole days until a certificate in PEM expires: by bisection, 0 to 16384."""
    low, high = 0, 1 << 14
    while high - low > 1:
        middle = (low + high) // 2
        command = ["openssl", "x509", "-noout", "-checkend", str(middle * 86400)]
        lasts = subprocess.run(command, input=pem, capture_output=True, text=True, check=False)
        low, high = (middle, high) if lasts.returncode == 0 else (low, middle)
    return low


def _openssl(*arguments: str | Path) -> str:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout

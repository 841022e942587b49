"""Reading one's own certificate, with certificates made by openssl."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from leadline_wire.certificates import read

from tests.support.certificates import Authority


def test_the_end_is_the_one_that_openssl_reads(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for days in ("2", "20000"):  # beyond 2050 times have another encoding
        file = authority.client("web", days=days).cert_file
        command = ["openssl", "x509", "-noout", "-enddate", "-in", str(file)]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        end = datetime.strptime(shown.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        assert read(file).not_after == end


def test_the_subject_is_read_and_not_the_issuer(tmp_path: Path) -> None:
    certificate = read(Authority(tmp_path, name="Somebody else").client("pi-1").cert_file)
    assert certificate.common_name == "pi-1"
    assert certificate.not_after - certificate.not_before == timedelta(days=30)
    assert abs(certificate.not_before - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_name_longer_than_a_short_length_is_read(tmp_path: Path) -> None:
    name = "n" * 60 + "." + "m" * 3
    assert read(Authority(tmp_path).client(name).cert_file).common_name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
    ],
)
def test_an_invalid_certificate_is_a_value_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cert.pem"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected"):
        read(path)

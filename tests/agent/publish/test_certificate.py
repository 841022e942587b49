"""Reading a node's own certificate, with certificates made by openssl."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from leadline_agent.publish.certificate import Certificate, read

from tests.support.certificates import Authority

NOW = datetime(2026, 5, 17, tzinfo=UTC)
OURS = Certificate("pi-1", NOW - timedelta(days=1), NOW + timedelta(days=1))


def test_the_subject_is_read_and_not_the_issuer(tmp_path: Path) -> None:
    certificate = read(Authority(tmp_path, name="Somebody else").client("pi-1").cert_file)
    assert certificate.common_name == "pi-1"
    assert certificate.not_after - certificate.not_before == timedelta(days=30)
    assert abs(certificate.not_before - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_name_longer_than_a_short_length_is_read(tmp_path: Path) -> None:
    name = "n" * 60 + "." + "m" * 3
    assert read(Authority(tmp_path).client(name).cert_file).common_name == name


@pytest.mark.parametrize(
    ("node", "now", "fault"),
    [
        ("pi-1", NOW, ""),
        ("pi-1", NOW + timedelta(days=2), "expired on 2026-05-18: renew it"),
        ("pi-1", NOW - timedelta(days=2), "clock says 2026-05-15, before its certificate begins"),
        ("pi-2", NOW, "certificate is pi-1's, but its settings say node = pi-2"),
    ],
)
def test_a_fault_of_the_certificate_is_explained(node: str, now: datetime, fault: str) -> None:
    said = OURS.fault(node, now)
    assert fault in said
    assert bool(said) == bool(fault)


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

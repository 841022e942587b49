import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from leadline_controller.parsing.certificates import not_after_s

from tests.support.certificates import Authority


def test_the_end_is_the_one_that_openssl_reads(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for days in ("2", "20000"):  # beyond 2050 times have another encoding
        file = authority.client("web", days=days).cert_file
        command = ["openssl", "x509", "-noout", "-enddate", "-in", str(file)]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        end = datetime.strptime(shown.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        assert not_after_s(file) == end.timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_is_a_value_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011  # the library's texts vary
        not_after_s(file)

"""The schedule, and what the loop makes of files that are not what they should be."""

from pathlib import Path

import pytest
from leadline_agent.config import Broker, ConfigError, Tls
from leadline_agent.loop import Every, endpoint_of

from tests.support.certificates import Authority, Certificate


def test_nothing_is_due_before_its_time() -> None:
    every = Every(period_s=10.0, first_s=103.0)
    assert not every.take(102.9)
    assert every.take(103.0)
    assert every.due_s == 113.0


def test_being_late_shifts_nothing_and_repeats_nothing() -> None:
    every = Every(period_s=10.0, first_s=100.0)
    assert every.take(137.0)
    assert every.due_s == 140.0
    assert not every.take(137.0)


def test_what_never_is_due_stays_so() -> None:
    assert not Every(float("inf"), float("inf")).take(1e12)


def tls(certificate: Certificate) -> Broker:
    files = Tls(certificate.ca_file, certificate.cert_file, certificate.key_file)
    return Broker("broker", 8883, files)


def test_tls_checks_the_broker_and_shows_a_certificate(tmp_path: Path) -> None:
    context = endpoint_of(tls(Authority(tmp_path).client("pi-1"))).tls
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version.name == "TLSv1_2"
    assert len(context.get_ca_certs()) == 1  # this authority and no other


@pytest.mark.parametrize("broken", ["ca_file", "cert_file", "key_file", "another key"])
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, broken: str) -> None:
    authority = Authority(tmp_path)
    certificate = authority.client("pi-1")
    if broken == "another key":
        certificate.key_file.write_bytes(authority.client("pi-2").key_file.read_bytes())
    else:
        Path(getattr(certificate, broken)).write_text("no PEM")
    with pytest.raises(ConfigError, match=r"broker\.tls: expected PEM files"):
        endpoint_of(tls(certificate))

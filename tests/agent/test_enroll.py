"""What an API server answers never ends an enrolment; tests/kube/test_issuing.py has a real one."""

import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_agent import enroll
from leadline_wire import certificates

from tests.support.certificates import Authority

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["certificate", "conditions", "type", "message"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


class Stopped(BaseException):
    """The test has seen enough."""


@dataclass(frozen=True)
class Answers(enroll.ApiServer):
    """Answers a request for a certificate with what `status` returns."""

    host: str = "none"
    port: int = 1
    status: Callable[[], Any] = dict

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        return {"metadata": {"name": "r"}, "status": self.status()}


def keep(server: enroll.ApiServer, file: Path, turns: int) -> list[float]:
    """The waits of so many turns."""
    waits: list[float] = []

    def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == turns:
            raise Stopped

    with pytest.raises(Stopped):
        enroll.keep(server, "n1", file, sleep)
    return waits


@given(JSON)
def test_no_answer_ends_it(tmp_path_factory: pytest.TempPathFactory, status: Any) -> None:
    file = tmp_path_factory.mktemp("pki") / "agent.pem"
    assert len(keep(Answers(status=lambda: status), file, 3)) == 3
    assert not file.exists()


def test_a_refusal_is_said_in_one_line_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    denied = {"conditions": [{"type": "Denied", "message": "not your\nnode"}]}
    waits = keep(Answers(status=lambda: denied), tmp_path / "agent.pem", 8)
    assert caplog.messages[0] == (
        "node n1: no new certificate: denied: not your\\nnode; trying again"
    )
    assert max(waits[1::2]) > min(waits[1::2]) >= 1  # between them, it asks again after a second


def test_a_certificate_is_renewed_in_time_and_not_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    own = Authority(tmp_path / "authority").client("n1").cert_file.read_bytes()
    answers = Answers(status=lambda: {"certificate": base64.b64encode(own).decode()})
    file = tmp_path / "agent.pem"
    assert keep(answers, file, 3) == [1.0, *([enroll.MAX_SLEEP_S] * 2)]
    assert caplog.messages == [
        f"node n1: a certificate until {certificates.read(file).not_after:%F}"
    ]
    assert b"PRIVATE KEY" in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [file.name]


@given(st.integers(0, 100), st.integers(1, 30))
def test_it_is_due_after_two_thirds_of_its_life(percent: int, days: int) -> None:
    began = datetime(2026, 5, 1, tzinfo=UTC)
    own = certificates.Certificate("n1", began, began + timedelta(days=days))
    left_s = enroll.renewal_s(own, began + timedelta(days=days) * (percent / 100))
    assert (left_s > 0) == (percent <= 66)

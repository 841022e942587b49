"""The soak of `make attack`, briefly: boards, pods and a client while the broker and the API server
go away for a moment. What the process needs over time only the long run shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.soak import accounted, soak

pytestmark = [pytest.mark.broker, pytest.mark.cluster]
SOAK_S, BOARDS = 20.0, 20


def test_outages_lose_no_pod_and_no_report_but_the_brokers(tmp_path: Path) -> None:
    found = soak(tmp_path, SOAK_S, BOARDS)
    checks = list(accounted(found))
    assert [str(check) for check in checks if not check.held] == []

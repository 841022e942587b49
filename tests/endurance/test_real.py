"""`make endurance-real`, briefly: boards, pods and a client while broker, API server and controller
go away in turn. What the process needs over time only the long run shows."""

from __future__ import annotations

import pytest

from tests.endurance.real import endure

pytestmark = [pytest.mark.broker, pytest.mark.cluster]
MINUTES, BOARDS = 0.5, 20


def test_outages_lose_no_pod_and_no_report_but_the_brokers() -> None:
    checks = endure(MINUTES, lambda _: None, BOARDS)
    assert [str(check) for check in checks if not check.held] == []

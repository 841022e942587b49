"""What a node's own certificate says of why a broker refused it."""

from datetime import UTC, datetime, timedelta

import pytest
from leadline_agent.publish.certificate import fault
from leadline_wire.certificates import Certificate

NOW = datetime(2026, 5, 17, tzinfo=UTC)
OURS = Certificate("pi-1", NOW - timedelta(days=1), NOW + timedelta(days=1))


@pytest.mark.parametrize(
    ("node", "now", "expected"),
    [
        ("pi-1", NOW, ""),
        ("pi-1", NOW + timedelta(days=2), "expired on 2026-05-18: renew it"),
        ("pi-1", NOW - timedelta(days=2), "clock says 2026-05-15, before its certificate begins"),
        ("pi-2", NOW, "certificate is pi-1's, but its settings say node = pi-2"),
    ],
)
def test_a_fault_of_the_certificate_is_explained(node: str, now: datetime, expected: str) -> None:
    said = fault(OURS, node, now)
    assert expected in said
    assert bool(said) == bool(expected)

"""An extender service that three nodes are known to."""

import pytest

from tests.controller.scheduling.extender_harness import ExtenderHarness, nodes_with_mbps


@pytest.fixture
def harness() -> ExtenderHarness:
    """Three nodes, the third with the widest link and so the best for much data."""
    made = ExtenderHarness(nodes_with_mbps(10, 100, 1000))
    made.list()
    return made

"""An extender service that knows three nodes."""

import pytest

from tests.controller.extender.harness import ExtenderHarness, listed


@pytest.fixture
def harness() -> ExtenderHarness:
    return listed()

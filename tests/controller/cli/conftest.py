"""The commands, on the controller that answers at `address`."""

import pytest

from tests.controller.cli.calling import Leadline, calling


@pytest.fixture
def leadline(capsys: pytest.CaptureFixture[str], address: str) -> Leadline:
    return calling(capsys, "--address", address)

"""Two controllers that a module's tests share, with the module's SETTINGS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.controller_pair import ControllerPair, controller_pair


@pytest.fixture(scope="module")
def running_pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControllerPair]:
    settings = getattr(request.module, "SETTINGS", "")
    with controller_pair(tmp_path_factory.mktemp("controllers"), settings) as running:
        yield running


@pytest.fixture
def pair(running_pair: ControllerPair) -> Iterator[ControllerPair]:
    try:
        yield running_pair
    finally:
        running_pair.clean()

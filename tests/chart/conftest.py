"""The images of `make image` for all tests."""

from pathlib import Path

import pytest

from tests.chart import image_archives


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> archive of each image."""
    return image_archives.build(tmp_path_factory.mktemp("images"))

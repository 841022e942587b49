"""Labs that no test leaves behind, whatever happens in between."""

from collections.abc import Iterator

import pytest
from leadline_controller.lab import lab as labs
from leadline_controller.lab.lab import Lab
from leadline_controller.lab.spec import BoardSpec, LabSpec

from tests.lab.inventory import fresh_name


@pytest.fixture
def name() -> Iterator[str]:
    """A name whose lab, if a test builds one, is gone afterwards."""
    chosen = fresh_name()
    yield chosen
    labs.down(chosen)


@pytest.fixture(scope="session")
def shaped_lab() -> Iterator[Lab]:
    """One lab for all tests that only measure: a throttled, a delayed and an unshaped link."""
    boards = (BoardSpec("n1", rate_mbps=4), BoardSpec("n2", 20, delay_ms=30), BoardSpec("n3"))
    spec = LabSpec(fresh_name(), boards=boards)
    try:
        yield labs.up(spec)
    finally:
        labs.down(spec.name)

"""Fixtures of labs, which are removed after the tests in any case."""

from collections.abc import Iterator

import pytest
from leadline_lab import lab as labs
from leadline_lab.lab import Lab
from leadline_lab.spec import BoardSpec, LabSpec

from tests.lab.inventory import fresh_name


@pytest.fixture
def name() -> Iterator[str]:
    """A lab name; a lab of this name is removed after the test."""
    lab_name = fresh_name()
    yield lab_name
    labs.down(lab_name)


@pytest.fixture(scope="session")
def shaped_lab() -> Iterator[Lab]:
    """A lab for all tests that only measure: a throttled, a delayed and an unshaped link."""
    boards = (BoardSpec("n1", rate_mbps=4), BoardSpec("n2", 20, delay_ms=30), BoardSpec("n3"))
    spec = LabSpec(fresh_name(), boards=boards)
    try:
        yield labs.up(spec)
    finally:
        labs.down(spec.name)

"""One control plane for all cluster tests of a run: a start takes seconds and a test far less."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.oracle import Oracle

if TYPE_CHECKING:
    from tests.experiments.results import Run

# Against what hangs; no test is judged by its time, and CI may be several times slower than here.
BUILD_S = 600
EXPERIMENT_S = 1200

# The same examples in every run, and none of them timed: a slow machine fails no test.
settings.register_profile(
    "leadline", max_examples=40, derandomize=True, deadline=None, print_blob=True
)
# `make test-all` tries ten times as many.
settings.register_profile("many", settings.get_profile("leadline"), max_examples=400)
settings.load_profile("leadline")


def pytest_configure() -> None:
    """Let the processes that tests start hear Ctrl-C.

    A shell that runs the tests in the background has SIGINT ignored, and what is ignored is
    inherited; what is handled is not.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep 400,000 objects that stay, modules and tests, out of every search for garbage: it took a
    tenth of the time of all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the first cluster test of a new checkout wait for the build of the control plane, and an
    experiment compute for as long as it takes."""
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        if "timeout" in names:
            continue
        if "cluster" in names:
            item.add_marker(pytest.mark.timeout(BUILD_S))
        elif "experiment" in names:
            item.add_marker(pytest.mark.timeout(EXPERIMENT_S))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return Api(plane.kubeconfig)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str], Run]:
    """A paper's experiment by name, computed once for the tests of all workers."""
    from tests.experiments.results import computed_once  # its libraries take long to import

    own = tmp_path_factory.getbasetemp()
    folder = own if worker_id == "master" else own.parent
    return lambda name: computed_once(name, folder)

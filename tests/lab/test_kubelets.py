"""Labs whose boards run pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from leadline_controller.lab.spec import BoardSpec

from tests.lab.images import push_image, random_layer
from tests.lab.running import RunningLab, running_lab, running_pod

pytestmark = [pytest.mark.network, pytest.mark.cluster]

BOARDS = (BoardSpec("fast", rate_mbps=100), BoardSpec("slow", rate_mbps=8), BoardSpec("far", 50, 4))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningLab]:
    with running_lab(BOARDS) as built:
        yield built


def test_a_pod_runs_on_a_board_and_answers_over_its_link(running: RunningLab) -> None:
    image = push_image(running.lab, "web", [random_layer(2, seed=1)])
    name = running.create(running_pod("web", image, nodeName="slow"))
    answering = running.wait_running(name)
    assert 2 * 8 / 8 * 0.8 < running.fetch("fast", answering, "/data/1") < 2 * 8 / 8 * 2


def test_a_pull_takes_as_long_as_the_link_needs(running: RunningLab) -> None:
    image = push_image(running.lab, "big", [random_layer(10, seed=2)])
    pulled_s = {}
    for board in ("fast", "slow"):
        name = running.create(running_pod(f"big-{board}", image, nodeName=board))
        running.wait_running(name)
        pulled_s[board] = running.pulled_s(name)
    print(pulled_s)
    assert 10 * 8 / 8 * 0.8 < pulled_s["slow"] < 10 * 8 / 8 * 2
    assert pulled_s["fast"] < pulled_s["slow"] / 3

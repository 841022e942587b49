"""What is kept of requests that fail."""

import logging

import pytest
from leadline_controller.framework.ports import ForbiddenError, UnavailableError
from leadline_controller.kube.reachability import ReachabilityLog

URL = "https://10.0.0.1:6443"


class Clock:
    now_s = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reachability(clock: Clock) -> ReachabilityLog:
    return ReachabilityLog(URL, lambda: clock.now_s)


def test_before_the_first_answer_nothing_is_known(reachability: ReachabilityLog) -> None:
    status = reachability.status()
    assert (status.url, status.answered_s, status.failures) == (URL, None, ())


def test_a_failure_keeps_when_it_began_and_its_last_error(
    reachability: ReachabilityLog, clock: Clock
) -> None:
    reachability.succeeded("/pods")
    clock.now_s = 110.0
    reachability.failed("/pods", UnavailableError("refused"))
    clock.now_s = 115.0
    reachability.failed("/nodes", ForbiddenError("403"))
    clock.now_s = 120.0
    reachability.failed("/pods", UnavailableError("no answer in time"))
    pods, nodes = reachability.status().failures
    assert (pods.path, pods.error, pods.since_s) == ("/pods", "no answer in time", 110.0)
    assert (nodes.refused, pods.refused) == (True, False)
    assert reachability.status().answered_s == 100.0


def test_each_path_is_over_by_itself(
    reachability: ReachabilityLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for path in ("/pods", "/nodes"):
        reachability.failed(path, UnavailableError("refused"))
    clock.now_s = 130.0
    reachability.succeeded("/nodes")
    assert [each.path for each in reachability.status().failures] == ["/pods"]
    assert reachability.status().by_path == {"/nodes": 130.0}
    reachability.succeeded("/pods")
    assert reachability.status().failures == ()
    assert len(caplog.records) == 2  # that it went and that it came, once each

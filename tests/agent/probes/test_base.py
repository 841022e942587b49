"""A supervised thread restarts after a failure and says why it is unhealthy."""

import logging
import threading
import time

import pytest
from leadline_agent.probes.base import MAX_FAILURES, Probe

from tests.support.ports import wait_until


class Task(Probe):
    """Fails `failures` times and then waits until `stop`; with `ends` it does nothing at all."""

    def __init__(self, failures: int = 0, ends: bool = False) -> None:
        super().__init__("task")
        self.failures, self.ends, self.runs = failures, ends, 0
        self.end = threading.Event()

    def start_lease(self, lease: object) -> None:
        """A task has no lease."""

    def _run(self) -> None:
        self.runs += 1
        if self.ends:
            return
        self.begin(30.0)
        if self.runs <= self.failures:
            raise OverflowError("cannot convert\nfloat infinity")
        self.done()
        self.end.wait()

    def stop(self) -> None:
        self.end.set()
        self._end(10.0)


@pytest.fixture(autouse=True)
def short_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_agent.probes.base.FIRST_BACK_OFF_S", 0.001)


def test_a_failure_is_logged_and_reported_once_and_the_thread_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task(failures=2)
    with caplog.at_level(logging.ERROR):
        task.start()
        wait_until(lambda: task.runs == 3, "it runs again after each failure")
    assert task.take_failed()
    assert not task.take_failed()
    assert task.unhealthy_reason(time.monotonic()) == ""  # merely to begin again is healthy
    assert caplog.text.count("OverflowError") == 2
    assert "Traceback" not in caplog.text
    task.stop()


def test_a_thread_that_keeps_failing_is_unhealthy() -> None:
    task = Task(failures=1_000_000)
    task.start()
    wait_until(lambda: task.runs > MAX_FAILURES, "it fails again and again")
    wait_until(lambda: "times in a row" in task.unhealthy_reason(time.monotonic()), "that is seen")
    task.stop()


def test_a_thread_over_its_time_limit_is_unhealthy() -> None:
    task = Task(ends=True)
    task.begin(5.0)
    now_s = time.monotonic()
    assert "late" in task.unhealthy_reason(now_s + 60.0)
    task.start()
    task.stop()
    task.done()
    assert task.unhealthy_reason(now_s + 60.0) == ""


def test_a_thread_that_ended_is_unhealthy() -> None:
    task = Task(ends=True)
    task.start()
    wait_until(
        lambda: task.unhealthy_reason(time.monotonic()) == "task has ended", "its end is seen"
    )


def test_a_stop_does_not_wait_for_the_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_agent.probes.base.FIRST_BACK_OFF_S", 60.0)
    task = Task(failures=1)
    task.start()
    wait_until(task.take_failed, "it has failed")
    task.stop()
    assert task.unhealthy_reason(time.monotonic()) == ""
    assert task.runs == 1

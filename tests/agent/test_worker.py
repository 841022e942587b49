"""A supervised thread restarts after a failure and says why it is unhealthy."""

import logging
import threading
import time

import pytest
from leadline_agent.worker import MAX_FAILURES, Worker

from tests.support.ports import wait_until


class Task:
    """Fails `failures` times and then waits until `stop`."""

    def __init__(self, failures: int, first_back_off_s: float = 0.001) -> None:
        self.failures, self.runs = failures, 0
        self.end = threading.Event()
        self.worker = Worker("task", self.run, first_back_off_s)

    def run(self) -> None:
        self.runs += 1
        self.worker.begin(30.0)
        if self.runs <= self.failures:
            raise OverflowError("cannot convert\nfloat infinity")
        self.worker.done()
        self.end.wait()

    def stop(self) -> None:
        self.end.set()
        self.worker.stop(10.0)


def test_a_failure_is_logged_and_reported_once_and_the_thread_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task(failures=2)
    with caplog.at_level(logging.ERROR):
        task.worker.start()
        wait_until(lambda: task.runs == 3, "it runs again after each failure")
    assert task.worker.take_failed()
    assert not task.worker.take_failed()
    assert task.worker.unhealthy_reason(time.monotonic()) == ""  # merely to begin again is healthy
    assert caplog.text.count("OverflowError") == 2
    assert "Traceback" not in caplog.text
    task.stop()


def test_a_thread_that_keeps_failing_is_unhealthy() -> None:
    task = Task(failures=1_000_000)
    task.worker.start()
    wait_until(lambda: task.runs > MAX_FAILURES, "it fails again and again")
    wait_until(
        lambda: "times in a row" in task.worker.unhealthy_reason(time.monotonic()), "that is seen"
    )
    task.stop()


def test_a_thread_over_its_time_limit_is_unhealthy() -> None:
    worker = Worker("task", lambda: None)
    worker.begin(5.0)
    now_s = time.monotonic()
    assert "late" in worker.unhealthy_reason(now_s + 60.0)
    worker.start()
    worker.stop(10.0)
    worker.done()
    assert worker.unhealthy_reason(now_s + 60.0) == ""


def test_a_thread_that_ended_is_unhealthy() -> None:
    worker = Worker("task", lambda: None)
    worker.start()
    wait_until(
        lambda: worker.unhealthy_reason(time.monotonic()) == "task has ended", "its end is seen"
    )


def test_a_stop_does_not_wait_for_the_back_off() -> None:
    task = Task(failures=1, first_back_off_s=60.0)
    task.worker.start()
    wait_until(task.worker.take_failed, "it has failed")
    task.stop()
    assert task.worker.unhealthy_reason(time.monotonic()) == ""
    assert task.runs == 1

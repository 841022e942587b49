"""What others can make the controller write to its log."""

import logging
import subprocess
import sys

import pytest
from leadline_controller.logs import ErrorLog, RateLimitFilter


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Kept(logging.Handler):
    """Keeps what it would write."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.addFilter(RateLimitFilter(at_most=3, per_s=60, now_s=clock))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def logger(handler: logging.Handler, name: str) -> logging.Logger:
    made = logging.Logger(name)
    made.addHandler(handler)
    return made


def test_repeated_records_are_limited_and_then_counted() -> None:
    clock = Clock()
    kept = Kept(clock)
    log = logger(kept, "a")
    for number in range(1000):
        log.warning("no such pod: %d", number)
    log.warning("another complaint")
    assert kept.lines == [
        "no such pod: 0",
        "no such pod: 1",
        "no such pod: 2 (more like it are left out for 60 s)",
        "another complaint",
    ]
    clock.now_s += 60
    log.warning("no such pod: %d", 1000)
    assert kept.lines[4:] == ["no such pod: 1000 (997 like it were left out)"]


def test_records_that_all_differ_are_limited_by_logger() -> None:
    kept = Kept(Clock())
    log = logger(kept, "a")
    for number in range(5000):
        log.warning(f"no such pod: {'x' * (number % 1000)}")
    assert len(kept.lines) == 18
    logger(kept, "b").warning("no such pod: 0")
    assert kept.lines[-1] == "no such pod: 0"


def test_an_error_is_one_line_without_its_traceback() -> None:
    kept = Kept(Clock())
    log = logger(kept, "a")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it\nfailed")
    log.error("%d is no number", "x")
    log.error("x" * 100_000)
    assert kept.lines[0] == "it failed: ValueError('two\\nlines')"
    assert kept.lines[1] == "%d is no number"
    assert len(kept.lines[2]) < 3000


def test_the_rate_of_the_daemons_log_is_limited() -> None:
    """Also what asyncio writes about a task that nobody waited for."""
    program = (
        "import asyncio, gc\n"
        "from leadline_controller import logs\n"
        "async def fail(): raise ValueError('by intent')\n"
        "async def main():\n"
        "    for _ in range(50):\n"
        "        task = asyncio.create_task(fail())\n"
        "        await asyncio.wait((task,))\n"
        "        del task\n"
        "logs.set_up()\n"
        "asyncio.run(main())\n"
        "gc.collect()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 10, done.stderr
    assert all(line.startswith("ERROR asyncio: Task exception was never") for line in lines)


def test_an_error_is_logged_once_until_another_comes_or_the_work_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ErrorLog(logging.getLogger("work"), logging.WARNING)
    refused, away = OSError("refused"), "the server is away"
    for each in (refused, OSError("refused"), away, away, refused):
        errors.failed(each, "step %d failed: %s", 1)
    assert errors.last == "OSError('refused')"
    errors.succeeded()
    assert errors.last == ""
    errors.failed(refused, "step %d failed: %s", 2)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "step 1 failed: OSError('refused')"),
        ("WARNING", "step 1 failed: the server is away"),
        ("WARNING", "step 1 failed: OSError('refused')"),
        ("WARNING", "step 2 failed: OSError('refused')"),
    ]


def test_a_turn_that_fails_is_logged_once_and_the_work_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors, done = ErrorLog(logging.getLogger("work")), []
    for divisor in (0, 0, 1, 0):
        with errors.logged("turn of %s failed: %s", "it"):
            done.append(1 / divisor)
    assert done == [1.0]
    assert [each.getMessage() for each in caplog.records] == [
        "turn of it failed: ZeroDivisionError('division by zero')"
    ] * 2

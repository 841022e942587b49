"""The command `leadline-agent`: arguments, logging, exit codes.

Exit code 0 is success, 1 a failure, 2 wrong usage or settings. An error is one line on standard
error.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline_agent import __version__, config, loop
from leadline_agent.publish.session import ForgetError, StateError, forget
from leadline_agent.text import one_line

SAMPLE_S = 1.0
MAX_LINE = 500  # characters of a line of the log, or of standard error


class RateLimitFilter(logging.Filter):
    """Limits the number of log lines in a period, because the journal is on the SD card.

    at_most: identical lines. per_template: lines of one format string, because peers and strangers
    choose some of its arguments. overall: all lines together.
    """

    def __init__(
        self, at_most: int = 3, per_s: float = 600.0, per_template: int = 6, overall: int = 60
    ) -> None:
        super().__init__()
        self._at_most, self._per_s = at_most, per_s
        self._per_template, self._overall = per_template, overall
        self._texts: Counter[str] = Counter()
        self._templates: Counter[str] = Counter()
        self._held_back = 0
        self._start_s = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line. The last one before the limit says that more are held back."""
        now_s, text, template = time.monotonic(), record.getMessage(), str(record.msg)
        notes = []
        if now_s - self._start_s > self._per_s:
            if self._held_back:
                notes.append(f"{self._held_back} lines before this were held back")
            self._texts.clear()
            self._templates.clear()
            self._start_s, self._held_back = now_s, 0
        left = min(
            self._at_most - self._texts[text],
            self._per_template - self._templates[template],
            self._overall - self._templates.total(),
        )
        if left <= 0:
            self._held_back += 1
            return False
        self._texts[text] += 1
        self._templates[template] += 1
        if left == 1:
            notes.append(f"more like it are held back for up to {self._per_s:g} s")
        shown = one_line(text, MAX_LINE)
        record.msg, record.args = f"{shown} ({'; '.join(notes)})" if notes else shown, None
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = parser().parse_args(arguments)
    _set_up_logging()
    try:
        settings = config.load(asked.config, os.environ)
        if asked.command == "once":
            return _once(settings)
        if asked.command == "forget":
            forget(settings)
            return 0
        return loop.run(settings, reload=lambda: config.load(asked.config, os.environ))
    except config.ConfigError as error:
        return _fail(2, error)
    except (StateError, ForgetError) as error:
        return _fail(1, error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(1, "standard output was closed")
    except Exception as error:
        logging.debug("unexpected", exc_info=True)
        return _fail(1, f"unexpected {type(error).__name__}, please report it: {error}")


def parser() -> argparse.ArgumentParser:
    """What the command takes; its page of the manual is made of it, too."""
    made = argparse.ArgumentParser(
        prog="leadline-agent",
        description="Measures this board and reports it over MQTT.",
        epilog="Example: leadline-agent once",
    )
    made.add_argument(
        "command",
        nargs="?",
        choices=("run", "once", "forget"),
        default="run",
        help="run (the default); once: print one report as JSON and end; "
        "forget: have the broker forget this node, whose agent has been stopped",
    )
    made.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings in TOML (default: {config.DEFAULT_PATH}, if it is there)",
    )
    made.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return made


def _set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", handlers=[handler])
    threading.excepthook = _on_thread_end


def _on_thread_end(ended: threading.ExceptHookArgs) -> None:
    """Log the end of an unsupervised thread in one line, without a traceback."""
    name = ended.thread.name if ended.thread else "unknown"
    logging.error(
        "thread %s: ended, please report it: %s: %s", name, ended.exc_type.__name__, ended.exc_value
    )


def _once(settings: config.Settings) -> int:
    import json

    import psutil
    from leadline_wire.v1 import telemetry_pb2 as pb

    from leadline_agent.collectors import Collectors

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    collectors = Collectors()
    collectors.collect()
    time.sleep(SAMPLE_S)
    report = collectors.collect()
    if cores := psutil.cpu_count():
        report.cpu.cores = cores  # to the controller, only the birth has them
    shown: dict[str, Any] = {
        "node": settings.node,
        "cluster": settings.cluster,
        "measured_boot_ms": report.timing.measured_boot_ms,
        "collectors": [],
    }
    for run in report.collectors:
        outcome = pb.CollectorRun.Outcome.Name(run.outcome).lower()
        shown["collectors"].append({**_values(run), "outcome": outcome})
        shown[run.name] = _values(getattr(report, run.name)) if outcome == "ok" else None
    print(json.dumps(shown, indent=2))  # noqa: T201 - its purpose
    sys.stdout.flush()
    return 0


def _values(value: Any) -> Any:
    """A field of the report for JSON; what is not set is null."""
    if isinstance(value, float):
        return float(f"{value:.7g}")  # all digits that a float of the wire has
    if isinstance(value, str | int):
        return value
    if not hasattr(value, "DESCRIPTOR"):
        return [_values(each) for each in value]
    return {
        field.name: _values(getattr(value, field.name))
        if not field.has_presence or value.HasField(field.name)
        else None
        for field in value.DESCRIPTOR.fields
    }


def _fail(code: int, error: object) -> int:
    sys.stderr.write(f"leadline-agent: {one_line(str(error), MAX_LINE)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

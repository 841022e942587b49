"""The command `leadline-agent`: arguments, logging, exit codes.

0 is fine, 1 means that the work failed, 2 that the usage or the configuration is wrong.
What goes wrong is said in one line on standard error.
"""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from leadline_agent import __version__, config, loop
from leadline_agent.publish import ForgetError, StateError, forget

SAMPLE_S = 1.0


class Quiet(logging.Filter):
    """Lets the same complaint through only so often; the SD card holds the journal."""

    def __init__(self, at_most: int = 3, per_s: float = 600.0) -> None:
        super().__init__()
        self._at_most, self._per_s = at_most, per_s
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it; the last one that is written says that the rest is not."""
        now_s, text = time.monotonic(), record.getMessage()
        start_s, count = self._seen.get(text, (now_s, 0))
        if now_s - start_s > self._per_s:
            start_s, count = now_s, 0
        if len(self._seen) > 100:
            self._seen.clear()
        self._seen[text] = (start_s, count + 1)
        if count + 1 == self._at_most:
            record.msg, record.args = f"{text} (not said again for {self._per_s:g} s)", None
        return count < self._at_most


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    _set_up_logging()
    try:
        settings = config.load(asked.config, os.environ)
        if asked.command == "once":
            return _once(settings)
        if asked.command == "forget":
            forget(loop.endpoint_of(settings.broker), settings.cluster, settings.node)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leadline-agent",
        description="Measures this board and reports it over MQTT.",
        epilog="Example: leadline-agent once",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "once", "forget"),
        default="run",
        help="run (the default); once: print one report as JSON and end; "
        "forget: have the broker forget this node, whose agent has been stopped",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"settings in TOML (default: {config.DEFAULT_PATH}, if it is there)",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Quiet())
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", handlers=[handler])


def _once(settings: config.Settings) -> int:
    import dataclasses
    import json

    from leadline_agent.collectors import Collectors

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    collectors = Collectors()
    collectors.collect()
    time.sleep(SAMPLE_S)
    report = dataclasses.asdict(collectors.collect())
    print(json.dumps({"node": settings.node, "cluster": settings.cluster, **report}, indent=2))  # noqa: T201 - its purpose
    sys.stdout.flush()
    return 0


def _fail(code: int, error: object) -> int:
    sys.stderr.write(f"leadline-agent: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

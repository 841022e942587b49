"""`leadline-controller`: argv, signals and exit codes."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from leadline_controller import __version__, logs
from leadline_controller.framework.options import OptionError
from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.serve.settings import ServeError
from leadline_controller.settings import DEFAULT_PATH, ConfigError, Settings, load

_EXAMPLE = "Example: leadline-controller run --config /etc/leadline/controller.toml"
_LONGEST_ERROR = 800


def main(argv: list[str] | None = None) -> int:
    """Run the controller; 0 after a clean stop, 1 when it failed, 2 on bad usage or settings."""
    arguments = parser().parse_args(argv)
    logs.set_up()
    try:
        settings = load(arguments.config)
        asyncio.run(_run_until_signal(settings))
    except (ConfigError, OptionError, KubeConfigError) as error:
        return _fail(error, 2)
    except (ServeError, OSError) as error:
        return _fail(error, 1)
    except Exception as error:  # no traceback reaches a user
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        return _fail(f"unexpected {type(error).__name__}: {error}; please report it", 1)
    return 0


def parser() -> argparse.ArgumentParser:
    """What the command takes; its page of the manual is made of it, too."""
    made = argparse.ArgumentParser(
        prog="leadline-controller",
        description="Scores nodes and tells Kubernetes where to bind each pod.",
        epilog=_EXAMPLE,
    )
    made.add_argument("command", nargs="?", choices=["run"], default="run", help="the default")
    made.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings in TOML (default: {DEFAULT_PATH})"
    )
    made.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return made


async def _run_until_signal(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Wrong settings and --help are told without loading the rest of the controller.
    from leadline_controller.wiring import daemon

    await daemon.run(settings, stop)


def _fail(error: object, code: int) -> int:
    line = str(error)
    if len(line) > _LONGEST_ERROR:  # it quotes the settings at length
        line = f"{line[: _LONGEST_ERROR // 2]} ... {line[-_LONGEST_ERROR // 2 :]}"
    sys.stderr.write(f"leadline-controller: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

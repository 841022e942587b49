"""A fake experiment that runs until it is killed; it writes its process id to a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from leadline_controller.framework.cycle import Strategy
from leadline_experiments.result import Progress, Result


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Write the process id and never return."""
    with Path(os.environ["ENDLESS_PIDS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(0.1)

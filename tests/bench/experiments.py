"""How long the papers' experiments take: each alone, and all at once on this machine's cores."""

import os
import subprocess
import sys
import time

from leadline_experiments import EXPERIMENTS

AIM_S = 300


def main() -> None:
    """Print the seconds of each `leadline experiment`."""
    for name in (*EXPERIMENTS, "all"):
        print(f"{name:24}{_seconds(name):10.1f} s", flush=True)
    print(f"{os.cpu_count()} cores; the aim for all, on two cores: {AIM_S} s")


def _seconds(name: str) -> float:
    command = [sys.executable, "-m", "leadline_controller.cli", "experiment", name, "-o", "json"]
    start_s = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()

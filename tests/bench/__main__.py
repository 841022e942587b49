"""`make bench`: speed and size, every figure beside what it is compared with, in one run.

Nothing here passes or fails; machines are shared and noisy, so read the ratios.
"""

import platform
import sys
from importlib import import_module

PARTS = (
    "decision",
    "experiments",
    "batch",
    "preemption",
    "predicates",
    "metrics",
    "scale",
    "agent_memory",
    "flows",
    "extender",
    "scheduling",
    "shadow",
    "responsiveness",
    "optimum",
    "belief",
    "sounding",
    "regret",
    "replay",
    "day",
    "ping",
    "recording",
    "traffic_graph",
    "page",
)


def main(names: list[str]) -> None:
    """Run the named benchmarks, or all."""
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}")
    for name in names or PARTS:
        print(f"\n== {name}", flush=True)
        import_module(f"tests.bench.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])

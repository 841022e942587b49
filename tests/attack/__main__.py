"""`make attack`: what an attacker with one board, one socket or one bad disk can still do.

Each part attacks real daemons in full length and checks what must hold. The tests run the same
attacks with small counts.
"""

import sys
from importlib import import_module

PARTS = ("agent", "grpc", "extender", "decisions", "telemetry", "documents", "booted")


def main(names: list[str]) -> int:
    """Run the parts named, or all; returns 1 when something did not hold."""
    broken = 0
    for name in names or PARTS:
        print(f"\n== {name}", flush=True)
        for check in import_module(f"tests.attack.{name}").main():
            print(check, flush=True)
            broken += not check.held
    print(f"\n{broken} broken" if broken else "\nall held")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

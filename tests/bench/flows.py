"""What leadline-flows takes on a board with many connections."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.memory import peak_bytes
from tests.support.tracked_boards import SHOP, SHOP_PORT, TrackedBoard, counting, tracked_board

NEW_PER_S = 100
# A connection of TCP stays in the kernel's table for two minutes after it was closed.
WARM_UP_S, MEASURED_S = 130, 120


def main(counts: tuple[int, ...] = (100, 1_000, 5_000)) -> None:
    """Print a line for each number of connections, with 100 short ones a second beside them."""
    with tracked_board() as board:
        for count in counts:
            _measure(board, count)


def _measure(board: TrackedBoard, count: int) -> None:
    seconds = WARM_UP_S + MEASURED_S + 30
    load = board.load("hold", SHOP, str(SHOP_PORT), str(count), str(NEW_PER_S), str(seconds))
    with (
        TemporaryDirectory() as folder,
        board.running(board.shop, *board.load("serve", "0.0.0.0", str(SHOP_PORT))),
        board.running(board.pod, *load),
        counting(board, Path(folder), more=()) as helper,
    ):
        time.sleep(WARM_UP_S)
        pid = helper.process.pid
        before_s = _cpu_s(pid)
        time.sleep(MEASURED_S)
        share = (_cpu_s(pid) - before_s) / MEASURED_S
        tracked = board.run(board.board, "sysctl", "-n", "net.netfilter.nf_conntrack_count")
        print(
            f"{count:5} connections and {NEW_PER_S} new ones a second, {tracked.strip()} in the "
            f"kernel's table: {share:.2%} of a core, {peak_bytes(pid) / 2**20:.1f} MiB",
            flush=True,
        )


def _cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or (100, 1_000, 5_000))

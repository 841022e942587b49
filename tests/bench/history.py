"""The cost of the history: bytes in the database, bytes written, and time, by the number of boards.

Each board has nine metrics of changing noise and eight peers that answer in three of ten minutes.
All boards are written once a quarter of an hour, as in a large cluster.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from leadline_controller.decisions.database import Database
from leadline_controller.decisions.times import Moment
from leadline_controller.telemetry.series import COARSE, FINE, Block, SeriesKey

START_S = 1_800_000_000
MIB = 1024 * 1024
# Mean and relative noise of each metric.
METRICS = {
    "cpu_percent": (20, 0.3),
    "memory_percent": (50, 0.01),
    "packets_sent_per_s": (60, 0.4),
    "packets_received_per_s": (60, 0.4),
    "disk_bytes_per_s": (9000, 0.8),
    "bandwidth_mbps": (95, 0.01),
    "link_mbps": (100, 0),
    "used_mbps": (1, 0.5),
    "cpu_celsius": (50, 0.02),
}
PEERS, ANSWERED = 8, 0.3
KEYS = (
    *map(SeriesKey, METRICS),
    *(SeriesKey("rtt_ms", f"pi-{37 * number}") for number in range(PEERS)),
)


def block(start_s: int, random: np.random.Generator) -> Block:
    """A quarter of an hour of one board, with six reports a minute."""
    mean, noise = np.array(list(METRICS.values())).T[:, :, np.newaxis]
    drift = np.exp(np.cumsum(random.normal(0, 1, (len(METRICS), FINE.points)) * noise / 4, axis=1))
    reports = (mean * drift)[:, :, np.newaxis] * np.exp(
        random.normal(0, 1, (len(METRICS), FINE.points, 6)) * noise[:, :, np.newaxis] / 2
    )
    own = np.stack((reports.mean(axis=2), reports.min(axis=2), reports.max(axis=2)), axis=-1)
    rtts = random.lognormal(0, 1, (PEERS, 1)) * random.lognormal(0, 0.1, (PEERS, FINE.points))
    rtts[random.random(rtts.shape) > ANSWERED] = np.nan
    return Block(FINE, start_s, KEYS, np.concatenate((own, np.repeat(rtts[:, :, None], 3, axis=2))))


def written_bytes() -> int:
    """What this process has sent to the disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["write_bytes"])


def measure(boards: int, quarters: int, path: Path) -> None:
    """Print one line."""
    random = np.random.default_rng(1)
    database, took_s, before = Database(path, 1024 * MIB, 1e9), 0.0, written_bytes()
    for quarter in range(quarters):
        start_s = START_S + FINE.block_s * quarter
        blocks = [(f"pi-{board}", block(start_s, random)) for board in range(boards)]
        began_s = time.perf_counter()
        database.write_series(blocks, Moment("boot", FINE.block_s * quarter, START_S))
        database.checkpoint()
        took_s += time.perf_counter() - began_s
    written = (written_bytes() - before) / quarters
    of_steps = database._series._used()
    overhead = database._used_bytes() / sum(of_steps.values())
    database.close()
    fine, coarse = (of_steps[each.step_s] * overhead / boards / quarters for each in (FINE, COARSE))
    day = 86_400 // FINE.block_s
    print(
        f"{boards:<8,}{fine:14.0f}{coarse:14.0f}{(fine + 14 * coarse) * day * boards / 1e6:16.1f}"
        f"{written * day / 1e6:16.0f}{took_s / quarters * 1e3:12.0f}",
        flush=True,
    )


def main() -> None:
    """Measure and print; takes about a minute."""
    print(f"{'':8}{'B a board and quarter':>28}{'all of it,':>16}{'written a':>16}{'ms a':>12}")
    print(f"{'boards':8}{'minutes':>14}{'quarters':>14}{'MB':>16}{'day, MB':>16}{'quarter':>12}")
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as name:
        for boards, quarters in ((10, 192), (300, 32), (1000, 16)):
            measure(boards, quarters, Path(name) / f"{boards}.db")


if __name__ == "__main__":
    main()

"""Blocks of series."""

import numpy as np
from leadline_controller.telemetry.series import COARSE, FINE, Block, SeriesKey

from tests.controller.history.decision_builder import UNIX_S

MIB = 1024 * 1024
CPU = SeriesKey("cpu_percent")
START_S = int(UNIX_S) - int(UNIX_S) % COARSE.block_s


def block(start_s: int = START_S, at: int = 0, value: float = 20.0, keys: int = 1) -> Block:
    """A fine block with a value at one minute."""
    points = np.full((keys, FINE.points, 3), np.nan)
    points[:, at] = value
    names = (CPU, *(SeriesKey("rtt_ms", f"pi-{number}") for number in range(1, keys)))
    return Block(FINE, start_s, names, points)

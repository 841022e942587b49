"""Reads what this board is, once at the start, for the birth message. Not a collector."""

import os
from pathlib import Path

import psutil

from leadline_agent.sample import Board

# In order of preference: the device tree of a Pi, then the DMI tables of a PC.
MODELS = ("firmware/devicetree/base/model", "class/dmi/id/product_name")


def read_board(
    sys_root: Path, version: str, address: str, interval_s: float, probes: tuple[str, ...]
) -> Board:
    """Combine the system's data with the agent's."""
    system = os.uname()
    return Board(
        agent_version=version,
        hardware_model=hardware_model(sys_root),
        architecture=system.machine,
        kernel=system.release,
        cores=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        address=address,
        interval_s=interval_s,
        probes=probes,
    )


def hardware_model(sys_root: Path) -> str:
    """The name of the board, "" if there is none. Device tree strings end with a NUL."""
    for name in MODELS:
        try:
            text = (sys_root / name).read_bytes()
        except OSError:
            continue
        return text.decode(errors="replace").strip("\0\n ")[:100]
    return ""

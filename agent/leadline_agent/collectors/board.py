"""Reads what this board is, once at the start, for the birth message. Not a collector."""

import os
from pathlib import Path

import psutil
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.collectors.memory import read_memory
from leadline_agent.config import Settings

# In order of preference: the device tree of a Pi, what the kernel says of it in a container, where
# the tree is hidden, then the DMI tables of a PC.
MODELS = (
    "firmware/devicetree/base/model",
    "devices/soc0/machine",
    "class/dmi/id/product_name",
)


def read_board(
    sys_root: Path, version: str, settings: Settings, probes: tuple[str, ...]
) -> pb.Birth:
    """The birth message, as far as it is constant while the agent runs."""
    system, memory = os.uname(), read_memory()
    return pb.Birth(
        agent_version=version,
        hardware_model=hardware_model(sys_root),
        architecture=system.machine,
        kernel=system.release,
        cores=psutil.cpu_count(),
        memory_bytes=memory.total_bytes if memory.HasField("total_bytes") else None,
        address=settings.probe.address,
        interval_s=round(settings.interval_s),
        probes=probes,
    )


def hardware_model(sys_root: Path) -> str:
    """The name of the board, "" if there is none. Device tree strings end with a NUL."""
    said = [files.text(sys_root / name) or "" for name in MODELS]
    lines = (line.partition(":") for line in files.proc("cpuinfo").splitlines())
    said += [model for name, _, model in lines if name.strip() == "Model"]  # a Pi's
    return next(filter(None, (model.strip("\0\n ")[:100] for model in said)), "")

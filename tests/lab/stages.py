"""A lab that is interrupted while it is built."""

from collections.abc import Callable
from typing import Any

import pytest
from leadline_lab import lab as labs
from leadline_lab import network, processes
from leadline_lab.processes import Process
from leadline_lab.spec import BoardSpec, LabSpec


def at_a_stage(stage: str, act: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Have `act` called before the build of a host, or the start of a process, of this name."""
    build_host, spawn = network.build_host, processes.spawn

    def before_building(spec: LabSpec, host: BoardSpec, number: int, netem: bool) -> Any:
        if host.name == stage:
            act()
        return build_host(spec, host, number, netem)

    def before_starting(name: str, *rest: Any) -> Process:
        if name == stage:
            act()
        return spawn(name, *rest)

    patch.setattr(network, "build_host", before_building)
    patch.setattr(labs, "spawn", before_starting)

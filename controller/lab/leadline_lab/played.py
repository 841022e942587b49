"""Boards for the demo where no lab can be built: a simulation plays them and their links."""

import asyncio
from typing import cast

import numpy as np
from leadline_controller.clock import SystemClock
from leadline_controller.telemetry.session import BrokerSession, BrokerStatus
from leadline_controller.wiring import Controller
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_lab.sounding.simulated_network import SimulatedNetwork
from leadline_lab.sounding.simulation import Sounding
from leadline_lab.spec import LabSpec

_MEASURED_MINUTES = 1.0
_STEP_S = 0.5
_SWITCH_MS, _NOISE = 0.3, 0.05
_UNSHAPED_MBPS = 1000.0


class PlayedBoards(SystemClock):
    """The hosts of a lab's spec on a simulated network. They are a controller's clock, which real
    time follows, and its session with a broker, which delivers at once."""

    def __init__(self, spec: LabSpec) -> None:
        delays_ms = np.array([host.delay_ms for host in spec.hosts])
        rtt_ms = delays_ms + delays_ms[:, np.newaxis] + _SWITCH_MS
        np.fill_diagonal(rtt_ms, 0.0)
        speeds = np.array([host.rate_mbps or _UNSHAPED_MBPS for host in spec.hosts])
        names = tuple(host.name for host in spec.hosts)
        self._sounding = Sounding(SimulatedNetwork(names, rtt_ms, speeds, noise=_NOISE))
        self.measured = asyncio.Event()

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each host."""
        return {name: node.addresses[0] for name, node in self._sounding.nodes.items()}

    def now_s(self) -> float:
        """Seconds since the simulation began."""
        return self._sounding.now_s

    async def run(self, controller: Controller) -> None:
        """Let a controller measure the boards: a minute at once, then as real time passes, until
        cancelled."""
        controller.session = cast("BrokerSession", self)
        while not controller.state.listed:  # noqa: ASYNC110  # has no event
            await asyncio.sleep(_STEP_S / 10)
        self._sounding.use(controller.telemetry, controller.probe_scheduler)
        self._sounding.run(_MEASURED_MINUTES)
        self.measured.set()
        while True:
            await asyncio.sleep(_STEP_S)
            self._sounding.run(_STEP_S / 60)

    # The session.

    def send(self, lease: pb.Lease) -> None:
        """Send a lease to its board."""
        self._sounding.leases.append(lease)

    def is_prompt(self) -> bool:
        """Always."""
        return True

    def status(self) -> BrokerStatus:
        """There is one."""
        return BrokerStatus("played", connected=True, since_s=0.0, heard_s=self.now_s())

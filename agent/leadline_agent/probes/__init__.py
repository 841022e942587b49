"""Probes load the network, and only under a lease: one file and one line in PROBES each.

What only reads this machine belongs in collectors/.
"""

from collections.abc import Mapping

from leadline_agent.lease import BandwidthLease, Lease, PingLease
from leadline_agent.probes.base import Probe, ProbeContext
from leadline_agent.probes.iperf3 import Iperf3
from leadline_agent.probes.ping import Ping

__all__ = ["PROBES", "ProbeContext", "Probes"]

PROBES: Mapping[type[Lease], type[Ping] | type[Iperf3]] = {
    PingLease: Ping,
    BandwidthLease: Iperf3,
}


class Probes:
    """One instance of each probe."""

    def __init__(self, context: ProbeContext) -> None:
        self._probes: dict[type[Lease], Probe] = {
            lease: probe(context) for lease, probe in PROBES.items()
        }

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What this board can probe."""
        return tuple(name for probe in self._probes.values() for name in probe.capabilities)

    def start_lease(self, lease: Lease) -> None:
        """Pass a lease to its probe."""
        self._probes[type(lease)].start_lease(lease)

    def has_loaded_since(self, since_s: float) -> bool:
        """Whether the network counters include our own traffic since then (monotonic)."""
        return any(probe.has_loaded_since(since_s) for probe in self._probes.values())

    def take_failed(self) -> list[str]:
        """The probes whose thread failed since the last call."""
        return [probe.name for probe in self._probes.values() if probe.take_failed()]

    def unhealthy_reason(self, now_s: float) -> str:
        """Why a probe is unhealthy, in a few words; "" if all are healthy. `now_s`: monotonic."""
        reasons = (probe.unhealthy_reason(now_s) for probe in self._probes.values())
        return next(filter(None, reasons), "")

    def stop(self) -> None:
        """Stop all probes."""
        for probe in self._probes.values():
            probe.stop()

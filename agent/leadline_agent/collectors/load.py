"""Reads the load between reports. It costs little, so it leaves most out. Not a collector."""

from collections.abc import Iterable

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import per_second
from leadline_agent.collectors.cpu import busy_percent, times
from leadline_agent.collectors.memory import read_memory
from leadline_agent.collectors.network import parse
from leadline_agent.jumps import Load

_PACKETS = ("packets_sent_per_s", "packets_received_per_s")


class LoadReader:
    """Rates are since the previous reading; the first has none."""

    def __init__(self) -> None:
        self._times: tuple[float, float] | None = None
        self._packets: int | None = None
        self._at_ms = 0

    def read(self, interfaces: Iterable[str]) -> Load:
        """The load of now, with the packets of these interfaces."""
        cpu, packets, at_ms = files.cpu_times_s(), _packets(interfaces), boot_ms()
        before, packets_before, before_ms = self._times, self._packets, self._at_ms
        self._times, self._packets, self._at_ms = times(cpu) if cpu else None, packets, at_ms
        per_s = None
        if packets is not None and packets_before is not None:
            per_s = per_second(packets_before, packets, at_ms - before_ms)
        return Load(busy_percent(before, self._times), _used_percent(read_memory()), per_s)


def _packets(interfaces: Iterable[str]) -> int | None:
    """Sent and received since boot; None if one of the interfaces cannot be read."""
    wanted = tuple(f"{name}:" for name in interfaces)
    lines = files.proc("net/dev").splitlines()
    found = parse("\n".join(line for line in lines if line.lstrip().startswith(wanted)))
    counts = [each[key] or 0 for each in found.values() for key in _PACKETS]
    return sum(counts) if wanted and len(found) == len(wanted) else None


def load_of(report: pb.Report) -> Load:
    """The load that a report tells."""
    cpu, network = report.cpu, report.network
    is_known = bool(network) and all(each.HasField(key) for each in network for key in _PACKETS)
    per_s = sum(getattr(each, key) for each in network for key in _PACKETS)
    return Load(
        cpu.busy_percent if cpu.HasField("busy_percent") else None,
        _used_percent(report.memory),
        per_s if is_known else None,
    )


def _used_percent(memory: pb.Memory) -> float | None:
    if not (memory.HasField("available_bytes") and memory.total_bytes):
        return None
    return 100 * (1 - memory.available_bytes / memory.total_bytes)

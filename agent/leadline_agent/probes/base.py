"""What every probe is given and must offer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leadline_agent.sample import Result
from leadline_agent.worker import Worker


class IperfError(Exception):
    """A bandwidth test without a result; str() says why in one sentence."""


class LeaseExceededError(IperfError):
    """The other end took more than was leased, and was cut off."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """This board's caps on leases, what a probe must ask of others, and who takes its results.

    `own_address` may be empty (unknown). `broker_rtts_ms` hands over the round trips to the
    broker since the last call, milliseconds, None for one that was not answered.
    """

    max_ping_peers: int
    max_bandwidth_bytes: int
    max_bandwidth_duration_ms: int
    own_address: Callable[[], str]
    broker_rtts_ms: Callable[[], Sequence[float | None]]
    report: Callable[[Result], None]


class Probe(Protocol):
    """Loads the network under a lease, in a thread of its own."""

    @property
    def worker(self) -> Worker:
        """The thread."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do on this board, for the birth message."""

    def start_lease(self, lease: Any) -> None:
        """Start this lease, or refuse it. Returns at once."""

    def has_loaded_since(self, since_s: float) -> bool:
        """Whether its own traffic shows in the network counters since then (monotonic)."""

    def stop(self) -> None:
        """End what is under way, within seconds."""

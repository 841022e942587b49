"""What every probe receives and provides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leadline_agent import config
from leadline_agent.sample import Result
from leadline_agent.worker import Worker


class IperfError(Exception):
    """A bandwidth test failed; str() says why in one sentence."""


class LeaseExceededError(IperfError):
    """The other end exceeded the lease and was cut off."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """This board's limits on leases, and callbacks to the rest of the agent.

    `own_address` may return "" (unknown). `broker_rtts_ms` returns the round trips to the broker
    since its last call, None for one without an answer. `report` takes a result.
    """

    limits: config.Probe
    own_address: Callable[[], str]
    broker_rtts_ms: Callable[[], Sequence[float | None]]
    report: Callable[[Result], None]


class Probe(Protocol):
    """Loads the network under a lease, in its own thread."""

    @property
    def worker(self) -> Worker:
        """The thread."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can measure on this board, for the birth message."""

    def start_lease(self, lease: Any) -> None:
        """Start the lease, or refuse it. Returns at once."""

    def has_loaded_since(self, since_s: float) -> bool:
        """Whether the network counters include its traffic since then (monotonic)."""

    def stop(self) -> None:
        """Stop within seconds."""

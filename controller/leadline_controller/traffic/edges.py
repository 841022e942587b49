"""What is known of the traffic between two ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline_controller.framework.services import Service

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
WINDOWS_S = (MINUTE_S, HOUR_S, DAY_S)


@dataclass(frozen=True, slots=True)
class End:
    """One end of an edge. name: "namespace/name" of a workload, "node/name", or an address."""

    name: str
    workload: Service | None = None  # see `workload_of`; None for a node or an address
    node: str = ""  # of a node its name; of an address the node where its packets enter


@dataclass(frozen=True, slots=True)
class Rates:
    """Means over a time, both directions together."""

    mbps: float
    packets_per_s: float
    connections_per_s: float


@dataclass(frozen=True, slots=True)
class TrafficEdge:
    """The traffic between two ends. `source` opens the connections."""

    source: End
    destination: End
    port: int  # on which `destination` answers; 0 if many or none
    # By the length of time, WINDOWS_S; the last minute only if one of the ends reported in it.
    rates: Mapping[float, Rates] = field(default_factory=dict)
    # The connections that began and the packets of the rarer direction, of the last hour; requests
    # are between them.
    requests_per_s: tuple[float, float] = (0.0, 0.0)
    counted_s: float = 0.0  # when it was counted last, on the clock of the decisions
    one_sided: bool = False  # only one end has reported it

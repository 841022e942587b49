"""The traffic that was counted between workloads, as a decision reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from leadline_controller.framework.services import Service


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PeerTraffic:
    """What one pod of a workload exchanges with one peer."""

    peer: Service | str  # a workload, or the name of a node
    name: str  # for people: "namespace/name" of a workload, "node/name", or an address
    mbps: float  # both directions together
    # Bounds: the connections that began, and the packets of the rarer direction.
    least_requests_per_s: float
    most_requests_per_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What was counted in the last hour."""

    # Workload (see `workload_of`) -> its peers, those with the most traffic first.
    peers: Mapping[Service, tuple[PeerTraffic, ...]] = field(default_factory=_empty)
    # Address outside of the cluster -> the node where its packets enter.
    entries: Mapping[str, str] = field(default_factory=_empty)
    # Node -> what its pods exchange with other nodes and with addresses outside, Mbit/s.
    flowing_mbps: Mapping[str, float] = field(default_factory=_empty)


NO_TRAFFIC = Traffic()

"""Whom a pod talks to, and what was counted between workloads, as a decision reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from leadline_controller.framework.model import DeclaredPeer
from leadline_controller.framework.node_table import Floats, Ints
from leadline_controller.framework.services import Service

# A peer on more nodes is everywhere, and no node is nearer to it than others.
_EVERYWHERE = 32
# A request over HTTP was 1 packet of the rarer direction in the lab's shop if its answer is small
# and the next one comes soon, and 3 with an answer of 20 kB; on a connection of its own it is 5.
# Where no new connections tell more, at most so many are taken to be one, so 2 are expected (`make
# shop-lab`). A long transfer has far more: one for each 3 kB, or for each 64 kB with GRO.
_PACKETS_OF_A_REQUEST = 4.0


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


@dataclass(frozen=True, slots=True, eq=False)
class PeerAt:
    """A peer, and where it is."""

    name: str  # as declared; of an observed one "namespace/name", "node/name" or an address
    share: Floats  # of its pods on each node, shape (n,), 1 in sum
    mbps: float  # both directions together
    # Bounds; the same if the pod declares them.
    least_requests_per_s: float
    most_requests_per_s: float
    most_rtt_ms: float | None  # the round trip that the pod needs
    declared: bool

    @property
    def requests_per_s(self) -> float:
        """How many are expected: the geometric mean of the bounds."""
        most = self.most_requests_per_s
        return sqrt(max(self.least_requests_per_s, most / _PACKETS_OF_A_REQUEST) * most)

    @property
    def is_everywhere(self) -> bool:
        """Whether it is on so many nodes that it plays no part in where the pod goes."""
        return int(np.count_nonzero(self.share)) > _EVERYWHERE

    @property
    def nodes(self) -> Ints:
        """The indexes of the nodes where it is, those with the largest share first."""
        here = np.flatnonzero(self.share)
        found: Ints = here[np.argsort(-self.share[here], kind="stable")]
        return found


class PodPeers(NamedTuple):
    """The peers of a pod: those that are somewhere, and those that it declares and are nowhere."""

    somewhere: tuple[PeerAt, ...] = ()
    nowhere: tuple[DeclaredPeer, ...] = ()


NO_PEERS = PodPeers()

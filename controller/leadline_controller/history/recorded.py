"""What a recording consists of: all that decisions depend on, in the order in which the controller
learnt it, and what it decided. Fed again to the same states, it gives the same views.

Nothing here has an environment, an argument, a command or a secret of a pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline_controller.framework.model import Layer
from leadline_controller.framework.ports import ClusterChange, ImagePull
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import PeerTraffic
from leadline_controller.telemetry.accepted import Accepted


@dataclass(frozen=True, slots=True)
class Began:
    """A controller begins to decide, or began to record. It knows nothing of what came before; a
    file's first entry is one."""

    unix_s: float | None  # the wall clock's time now, seconds since 1970, None while it is not set
    version: str
    cluster: str
    strategy: str
    options: Mapping[str, str]
    seed: int
    preferences: str = "off"
    letter: bool = False
    assumed_load: bool = True
    scheduler_name: str = "leadline"
    # Times to live of measurements, seconds, by the names of TimesToLive.
    ttl: Mapping[str, float] = field(default_factory=dict)
    is_passive: bool = False  # no bandwidth tests are made, as TelemetryState has it
    preemption: bool = True
    batch_window_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Changed:
    """The watch shows a change of the cluster; the first one is a Relisted. Pods have the profiles
    of their services."""

    change: ClusterChange


@dataclass(frozen=True, slots=True)
class Pulled:
    """A kubelet begins to pull an image, or has pulled it."""

    pull: ImagePull


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a registry says of an image: its layers for each architecture."""

    image: str
    digest: str
    layers: Mapping[str, tuple[Layer, ...]]


@dataclass(frozen=True, slots=True)
class Used:
    """What the metrics API says of running pods: workload -> cores and bytes of memory that one of
    its pods uses. It replaces what was said before."""

    usage: Mapping[Service, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted between workloads, as decisions read it from now on: the fields of
    Traffic."""

    peers: Mapping[Service, tuple[PeerTraffic, ...]]
    entries: Mapping[str, str]
    flowing_mbps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decided:
    """The controller decided on a pod. node: None if it fits nowhere."""

    uid: str
    pod: str  # namespace/name
    node: str | None


@dataclass(frozen=True, slots=True)
class Missed:
    """So many entries before this one are missing, as the processor or the disk was too slow, or a
    part of the file is damaged. A controller that missed some shows the whole cluster next."""

    count: int


Recorded = Began | Changed | Accepted | Pulled | Learnt | Used | Counted | Decided | Missed


class Entry(NamedTuple):
    """One thing that happened. at_s: on the clock of the decisions, seconds; it never goes back
    within one file between two Began."""

    at_s: float
    what: Recorded

"""What became of each pod in one run of recorded hours under one strategy."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """One pod. Times are seconds since the recording began; None is unknown or never."""

    pod: str  # namespace/name
    workload: str  # namespace/name of its service or owner, its own without one
    created_s: float
    node: str | None = None  # where it was placed, None if it never was
    bound_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None  # None if it outlived the recording
    pull_s: float | None = None  # of that, waiting for its images
    user_rtt_ms: float | None = None  # to its user's node, mean over its life
    transfer_s: float | None = None  # of its data to its user, over the bandwidth that was left
    # Mean share of the CPU that it wanted and its board did not have, 0 to 1.
    contention: float | None = None
    moves: int = 0
    # Each move after the first placement: when it was there, and the node.
    moved: tuple[tuple[float, str], ...] = ()
    # In hindsight, the least over the nodes that passed the filters when it was placed, each for
    # this pod alone: seconds from creation to ready, and the round trip to its user.
    best_ready_s: float | None = None
    best_rtt_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: all pods that were created within it, in that order."""

    strategy: str
    seed: int
    length_s: float
    pods: tuple[PodOutcome, ...]
    # Of each node that pods could be placed on.
    zones: Mapping[str, str] = field(default_factory=dict)
    tiers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    # What the replay could not know and assumed, in sentences.
    caveats: tuple[str, ...] = ()
    # Which recorded hours: a name that all runs of them share, as the file's, and its cluster's.
    window: str = ""
    cluster: str = ""
    began_unix_s: float | None = None  # None if the clock was not set
    is_recorded: bool = False  # this strategy, with these options, decided at that time

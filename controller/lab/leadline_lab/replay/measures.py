"""What counts about a run: each measure, what it means, and its values in an outcome.

A value that is not known is left out and counted; it never becomes 0.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leadline_lab.replay.outcomes import Outcome, PodOutcome

Floats = NDArray[np.float64]
SHARE = "share"  # a unit: 0 to 1, shown in percent
CELL_S = 300.0  # what is weighted by time has one value for each of these
EDGE = "edge"


class Values(NamedTuple):
    """The values of one measure in one run."""

    at_s: Floats  # to which time each belongs: a pod's creation, since the recording began
    value: Floats
    weight: Floats  # 1 for a pod; seconds where a value is a mean over time
    known: int  # pods
    unknown: int  # pods that are left out


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure."""

    key: str  # in JSON and CSV
    title: str
    unit: str
    meaning: str  # one sentence
    words: tuple[str, str, str]  # of a sentence about a difference: subject, less, more
    values: Callable[[Outcome], Values]
    lower_is_better: bool | None = True  # None: it depends on the cluster's owner
    has_worst: bool = True
    in_percent: bool = True  # whether a difference is told in percent of the base's value


class Stay(NamedTuple):
    """A pod's time on a node, seconds since the recording began."""

    node: str
    since_s: float
    until_s: float


def stays(pod: PodOutcome, length_s: float) -> Iterator[Stay]:
    """Where a pod was within the recording, one after the other."""
    if pod.node is None or pod.bound_s is None:
        return
    end_s = length_s if pod.ended_s is None else min(pod.ended_s, length_s)
    places = [(pod.bound_s, pod.node), *pod.moved]
    ends = [*(since_s for since_s, _ in places[1:]), end_s]
    for (since_s, node), until_s in zip(places, ends, strict=True):
        if (until_s := min(until_s, end_s)) > (since_s := max(since_s, 0.0)):
            yield Stay(node, since_s, until_s)


def nodes(outcome: Outcome) -> Sequence[str]:
    """All nodes that pods could be placed on, also those that got none, by name."""
    used = (stay.node for pod in outcome.pods for stay in stays(pod, outcome.length_s))
    return sorted({*outcome.zones, *outcome.tiers, *used})


def _of_pods(
    value: Callable[[PodOutcome, Outcome], float | None],
) -> Callable[[Outcome], Values]:
    """The values of a measure that each pod has or has not."""

    def values(outcome: Outcome) -> Values:
        found = [(pod.created_s, value(pod, outcome)) for pod in outcome.pods]
        known = [(at_s, each) for at_s, each in found if each is not None]
        at_s, of_pods = np.array(known, dtype=np.float64).reshape(-1, 2).T
        return Values(at_s, of_pods, np.ones(len(known)), len(known), len(found) - len(known))

    return values


def _ready_s(pod: PodOutcome, _: Outcome) -> float | None:
    return None if pod.ready_s is None else pod.ready_s - pod.created_s


def _wait_s(pod: PodOutcome, outcome: Outcome) -> float:
    """A pod that never got a node waited until it was deleted or the recording ended."""
    until_s = next((x for x in (pod.bound_s, pod.ended_s) if x is not None), outcome.length_s)
    return max(0.0, until_s - pod.created_s)


def _start_s(pod: PodOutcome, _: Outcome) -> float | None:
    if pod.ready_s is None or pod.bound_s is None or pod.pull_s is None:
        return None
    return max(0.0, pod.ready_s - pod.bound_s - pod.pull_s)


def _ready_over_best_s(pod: PodOutcome, outcome: Outcome) -> float | None:
    ready_s = _ready_s(pod, outcome)
    if ready_s is None or pod.best_ready_s is None:
        return None
    return round(ready_s - pod.best_ready_s, 9)  # on its best node 0, and no rounding error


def _rtt_over_best_ms(pod: PodOutcome, _: Outcome) -> float | None:
    if pod.user_rtt_ms is None or pod.best_rtt_ms is None:
        return None
    return pod.user_rtt_ms - pod.best_rtt_ms


def _pending(pod: PodOutcome, _: Outcome) -> float:
    return float(pod.bound_s is None and pod.ended_s is None)


def _on_edge(pod: PodOutcome, outcome: Outcome) -> float | None:
    if pod.node is None or not outcome.tiers:
        return None
    return float(outcome.tiers.get(pod.node, EDGE) == EDGE)


def _variation(outcome: Outcome, groups: Mapping[str, str]) -> Values:
    """The coefficient of variation of the pods per board of each group, as its mean over each
    cell of time in which there is a pod. groups: node -> group."""
    sizes = Counter(groups.values())
    placed = sum(pod.bound_s is not None for pod in outcome.pods)
    if len(sizes) < 2:
        return Values(np.empty(0), np.empty(0), np.empty(0), 0, len(outcome.pods))
    cells = max(1, round(outcome.length_s / CELL_S))
    events = [(cell * CELL_S, "", 0) for cell in range(1, cells)]
    for pod in outcome.pods:
        for stay in stays(pod, outcome.length_s):
            if stay.node in groups:
                group = groups[stay.node]
                events += [(stay.since_s, group, 1), (stay.until_s, group, -1)]
    events.sort()
    counts = dict.fromkeys(sizes, 0)
    total = squares = before_s = 0.0
    sums, seconds = np.zeros(cells), np.zeros(cells)
    for at_s, group, change in [*events, (outcome.length_s, "", 0)]:
        if total > 1e-9 and at_s > before_s:
            cell = min(int(before_s / CELL_S), cells - 1)
            square = max(0.0, len(sizes) * squares / total**2 - 1)
            sums[cell] += sqrt(square) * (at_s - before_s)
            seconds[cell] += at_s - before_s
        before_s = at_s
        if change:
            old = counts[group] / sizes[group]
            counts[group] += change
            new = counts[group] / sizes[group]
            total, squares = total + new - old, squares + new**2 - old**2
    cells_used = np.flatnonzero(seconds)
    means = sums[cells_used] / seconds[cells_used]
    starts_s = (cells_used * CELL_S).astype(np.float64)
    return Values(starts_s, means, seconds[cells_used], placed, len(outcome.pods) - placed)


READY = Measure(
    "ready_s",
    "Time to ready",
    "s",
    "The time from a pod's creation until it is ready: waiting for a node, pulling, starting.",
    ("pods are ready", "sooner", "later"),
    _of_pods(_ready_s),
)
MEASURES: Sequence[Measure] = (
    READY,
    Measure(
        "wait_s",
        "Wait for a node",
        "s",
        "The time from a pod's creation until it has a node; one that never gets a node waits "
        "until it is deleted or the recording ends.",
        ("pods wait for a node", "less", "longer"),
        _of_pods(_wait_s),
    ),
    Measure(
        "pull_s",
        "Pull of images",
        "s",
        "The time that a pod waits for its images on its node; less where layers are there.",
        ("pulls of images take", "less", "longer"),
        _of_pods(lambda pod, _: pod.pull_s),
    ),
    Measure(
        "start_s",
        "Start",
        "s",
        "The time from the end of the pull until the pod is ready.",
        ("starts take", "less", "longer"),
        _of_pods(_start_s),
    ),
    Measure(
        "pending",
        "Pending at the end",
        SHARE,
        "The share of the pods that still have no node when the recording ends.",
        ("pods pending at the end are", "fewer", "more"),
        _of_pods(_pending),
        has_worst=False,
        in_percent=False,
    ),
    Measure(
        "user_rtt_ms",
        "Round trip to users",
        "ms",
        "The network's round trip between a pod's node and its user's, the mean over its life.",
        ("round trips to users are", "shorter", "longer"),
        _of_pods(lambda pod, _: pod.user_rtt_ms),
    ),
    Measure(
        "transfer_s",
        "Transfer to users",
        "s",
        "The time that a pod's data takes to its user over the bandwidth that is left.",
        ("transfers to users take", "less", "longer"),
        _of_pods(lambda pod, _: pod.transfer_s),
    ),
    Measure(
        "contention",
        "CPU contention",
        SHARE,
        "The share of the CPU that a pod wants and its board does not have.",
        ("pods lack CPU", "less", "more"),
        _of_pods(lambda pod, _: pod.contention),
        in_percent=False,
    ),
    Measure(
        "moves",
        "Moves",
        "moves a pod",
        "How often a pod that runs is moved to another board.",
        ("moves are", "fewer", "more"),
        _of_pods(lambda pod, _: float(pod.moves)),
        in_percent=False,
    ),
    Measure(
        "board_variation",
        "Unevenness over boards",
        "",
        "The standard deviation of the pods per board, over their mean, at each moment, and then "
        "the mean over time; 0 is perfectly even.",
        ("the spread over boards is", "more even", "less even"),
        lambda outcome: _variation(outcome, {node: node for node in nodes(outcome)}),
        has_worst=False,
    ),
    Measure(
        "zone_variation",
        "Unevenness over zones",
        "",
        "The same over zones, with the pods per board of each zone.",
        ("the spread over zones is", "more even", "less even"),
        lambda outcome: _variation(outcome, {n: zone for n, zone in outcome.zones.items() if zone}),
        has_worst=False,
    ),
    Measure(
        "edge",
        "Share on the edge",
        SHARE,
        "The share of the placed pods whose first node is of the tier edge.",
        ("pods on the edge are", "fewer", "more"),
        _of_pods(_on_edge),
        lower_is_better=None,
        has_worst=False,
        in_percent=False,
    ),
    Measure(
        "ready_over_best_s",
        "Time to ready over the bound",
        "s",
        "How much later a pod is ready than on the node that was best for it alone, known only "
        "in hindsight. The bound is no plan: not all pods can have their best node at once.",
        ("times to ready over the bound are", "shorter", "longer"),
        _of_pods(_ready_over_best_s),
        in_percent=False,
    ),
    Measure(
        "rtt_over_best_ms",
        "Round trip over the bound",
        "ms",
        "How much longer the round trip to the user is than from the nearest node that fitted "
        "the pod alone. This bound is no plan either.",
        ("round trips over the bound are", "shorter", "longer"),
        _of_pods(_rtt_over_best_ms),
        in_percent=False,
    ),
)

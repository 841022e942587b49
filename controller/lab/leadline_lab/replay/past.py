"""What a recording tells of each pod that its controller placed, and of the boards: when pods came,
how long they took to start and lived, how fast images were pulled. In hindsight, for all runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isnan, nan
from statistics import median

import numpy as np
from leadline_controller.cluster.pull_times import PullSpeed
from leadline_controller.framework.assumed_load import Expectations
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import CPU, MEMORY, Node
from leadline_controller.framework.ports import NodeChanged, Relisted
from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.history.recorded import Began, Changed, Decided, Entry, Missed, Recorded
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.coordinates import RttEstimates
from leadline_controller.telemetry.sequence import Stamp

from leadline_lab.replay.lives import Life, lives_of, workload_name
from leadline_lab.replay.states import ESTIMATE_EVERY_S, States, began_of


@dataclass(frozen=True)
class Boards:
    """What is known of a table's nodes. mbps, overhead_s: how fast each pulls, NaN if unknown;
    prepare_s: how long its kubelet prepares a pod before that; kind: the place of its kind in
    `kinds`; shape (n,)."""

    names: Sequence[str]
    mbps: Floats
    overhead_s: Floats
    prepare_s: Floats
    kind: Ints
    kinds: Sequence[str]


@dataclass
class Past:
    """What a recording tells. entries: on one clock, also over restarts of the controller."""

    entries: list[Entry]
    began: Began
    lives: dict[str, Life]  # by uid, in the order in which they came
    warm_s: float  # when the controller first decided
    # What each workload used, and how fast each node pulled, as known at the end.
    expected: Expectations
    speeds: Mapping[str, PullSpeed]
    # Of each node: what kind of board it is.
    kinds: Mapping[str, str]
    # full name -> by digest, of the images that registries told of.
    digests: Mapping[str, str]
    restarts: int = 0
    missed: int = 0
    estimate_every_s: float = ESTIMATE_EVERY_S
    # Of round trips, by their time: they depend on no placement.
    estimates: dict[float, RttEstimates | None] = field(default_factory=dict)
    _starts: dict[tuple[str, str, bool], float] = field(default_factory=dict)
    _pulls: dict[str, float] = field(default_factory=dict)
    _boards: Boards | None = None  # of the last table

    @classmethod
    def of(cls, recorded: Iterable[Entry], estimate_every_s: float = ESTIMATE_EVERY_S) -> "Past":
        """Read a recording. estimate_every_s: see States. Raises ReplayError."""
        entries = list(on_one_clock(recorded))
        began = began_of(entries)
        lives, models, nodes = lives_of(entries, began), dict[str, str](), dict[str, Node]()
        digests: dict[str, str] = {}
        estimates: dict[float, RttEstimates | None] = {}
        states = States(began, entries[0].at_s, estimate_every_s, estimates)
        warm_s = inf
        for at_s, what in entries:
            states.apply(Entry(at_s, what))
            match what:
                case Decided():
                    warm_s = min(warm_s, at_s)
                case Born(agent):
                    models[agent.node] = agent.hardware_model
                case Changed(NodeChanged(node)):
                    nodes[node.name] = node
                case Changed(Relisted(listed)):
                    nodes.update((node.name, node) for node in listed)
                case _:
                    digests.update(_digest(what))
        statuses = states.cluster.images.statuses(states.cluster.table)
        past = cls(
            entries,
            began,
            lives,
            warm_s,
            states.cluster.recent.expected,
            {each.node: each.speed for each in statuses if each.speed is not None},
            {name: models.get(name) or _size(node) for name, node in nodes.items()},
            digests,
            sum(isinstance(what, Began) for _, what in entries) - 1,
            sum(what.count for _, what in entries if isinstance(what, Missed)),
            estimate_every_s,
            estimates,
        )
        past._learn_starts()
        return past

    @property
    def first_s(self) -> float:
        """When it began."""
        return self.entries[0].at_s

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.entries[-1].at_s - self.first_s

    def speed(self, node: str) -> PullSpeed | None:
        """How fast the node pulls: as seen, else as the middle one of the others; None if no pull
        was seen."""
        return self.speeds.get(node, self._middle_speed)

    @cached_property
    def _middle_speed(self) -> PullSpeed | None:
        speeds = sorted(self.speeds.values())
        return speeds[len(speeds) // 2] if speeds else None

    def boards(self, names: Sequence[str]) -> Boards:
        """What is known of these nodes."""
        if self._boards is None or self._boards.names != names:
            speeds = [self.speed(node) or PullSpeed(nan, nan, 0) for node in names]
            of_nodes = [self.kinds.get(node, "") for node in names]
            kinds = sorted(set(of_nodes))
            place = {kind: at for at, kind in enumerate(kinds)}
            prepare_s = {kind: self._prepare_s(kind) for kind in kinds}
            self._boards = Boards(
                names,
                np.array([each.mbps for each in speeds]),
                np.array([each.overhead_s for each in speeds]),
                np.array([prepare_s[kind] for kind in of_nodes]),
                np.array([place[kind] for kind in of_nodes], dtype=np.intp),
                kinds,
            )
        return self._boards

    def _prepare_s(self, kind: str) -> float:
        """What pods that waited for no image took longer to start: so long their boards were busy
        with them before they would have pulled."""
        without, after = (self._usual_start_s("", kind, pulled) for pulled in (False, True))
        return 0.0 if isnan(without) or isnan(after) else max(without - after, 0.0)

    def starts_s(self, life: Life, names: Sequence[str], pulls: Bools) -> Floats:
        """From the images to ready, of this pod on each of these nodes, shape (n,): its own time on
        such a board, else the median of its workload there, else of its workload, else of all pods;
        NaN if unknown. pulls: whether the node has to pull, as the kubelet prepares the pod before
        that, and else after it."""
        boards = self.boards(names)
        both = [
            np.array([self._start_s(life, kind, has_pulled) for kind in boards.kinds])
            for has_pulled in (False, True)
        ]
        return np.where(pulls, both[1][boards.kind], both[0][boards.kind])

    def _start_s(self, life: Life, kind: str, has_pulled: bool) -> float:
        own = life.start_s
        is_alike = has_pulled == life.has_pulled
        if own is not None and is_alike and self.kinds.get(life.node or "", "") == kind:
            return own
        return self._usual_start_s(workload_name(life.pod), kind, has_pulled)

    def _usual_start_s(self, workload: str, kind: str, has_pulled: bool) -> float:
        for pulled in (has_pulled, not has_pulled):
            for key in ((workload, kind), (workload, ""), ("", kind), ("", "")):
                if (*key, pulled) in self._starts:
                    return self._starts[*key, pulled]
        return nan

    def pulls_s(self, life: Life, names: Sequence[str]) -> Floats:
        """How long a pod waits for images of which nothing is known, on each of these nodes, shape
        (n,): as it was recorded there, else the median of its workload; NaN if unknown."""
        found = np.full(len(names), self._pulls.get(workload_name(life.pod), nan))
        if life.pull_s is not None and life.node in names:
            found[names.index(life.node)] = life.pull_s
        return found

    def _learn_starts(self) -> None:
        starts: dict[tuple[str, str, bool], list[float]] = {}
        pulls: dict[str, list[float]] = {}
        for life in self.lives.values():
            if life.start_s is None or life.pull_s is None:
                continue
            workload, kind = workload_name(life.pod), self.kinds.get(life.node or "", "")
            for of in {(workload, kind), (workload, ""), ("", kind), ("", "")}:
                key = (*of, life.has_pulled)
                starts.setdefault(key, []).append(life.start_s)
            pulls.setdefault(workload, []).append(life.pull_s)
        self._starts = {key: median(times) for key, times in starts.items()}
        self._pulls = {key: median(times) for key, times in pulls.items()}


def on_one_clock(recorded: Iterable[Entry]) -> Iterator[Entry]:
    """The entries with the times of the first controller's clock: a later one may have another, as
    after a boot of its machine. Where the wall clock was not set, no time passes between them."""
    first: Began | None = None
    first_s = last_s = shift_s = 0.0
    for entry in recorded:
        if isinstance(entry.what, Began):
            if first is None:
                first, first_s = entry.what, entry.at_s
            elif first.unix_s is not None and entry.what.unix_s is not None:
                at_s = first_s + entry.what.unix_s - first.unix_s
                shift_s = max(at_s, last_s) - entry.at_s
            else:
                shift_s = last_s - entry.at_s
        last_s = entry.at_s + shift_s
        yield entry if shift_s == 0.0 else Entry(last_s, _shifted(entry.what, shift_s))


def _shifted(what: Recorded, by_s: float) -> Recorded:
    def moved(stamp: Stamp) -> Stamp:
        return replace(stamp, measured_s=stamp.measured_s + by_s)

    match what:
        case Born() | Reported() | Pinged():
            return replace(what, stamp=moved(what.stamp))
        case Tested(test):
            return Tested(replace(test, at_s=test.at_s + by_s))
        case _:
            return what


def _digest(what: Recorded) -> Iterator[tuple[str, str]]:
    image, digest = getattr(what, "image", None), getattr(what, "digest", None)
    if image is not None and digest is not None:
        yield full_name(image), digest


def _size(node: Node) -> str:
    """Boards of the same size count as of one kind where no agent tells the model."""
    return f"{node.allocatable.get(CPU, 0)}/{node.allocatable.get(MEMORY, 0)}"

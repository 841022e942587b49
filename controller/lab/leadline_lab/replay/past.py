"""What a recording tells of each pod that its controller placed, and of the boards: when pods came,
how long they took to start and lived, how fast images were pulled. In hindsight, for all runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from statistics import median

from leadline_controller.cluster.pull_times import PullSpeed
from leadline_controller.framework.assumed_load import Expectations
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import CPU, MEMORY, Node, Pod
from leadline_controller.framework.ports import NodeChanged, PodChanged, PodDeleted, Relisted
from leadline_controller.history.recorded import (
    Began,
    Born,
    Changed,
    Decided,
    Entry,
    Missed,
    Pinged,
    Pulled,
    Recorded,
    Reported,
    Tested,
)
from leadline_controller.telemetry.coordinates import RttEstimates
from leadline_controller.telemetry.sequence import Stamp

from leadline_lab.replay.states import ESTIMATE_EVERY_S, States, began_of

_APP_LABELS = ("app.kubernetes.io/name", "app", "k8s-app")


@dataclass(slots=True)
class Life:
    """A pod as it was recorded, pending first. Times are those of the entries, s; None is never."""

    pod: Pod
    created_s: float
    node: str | None = None
    decided_s: float | None = None  # when it was placed, and bound_s: when the watch showed that
    bound_s: float | None = None
    pulled_s: float | None = None  # when the last of its images was there, if any was pulled
    ready_s: float | None = None
    shown: Pod | None = None  # as it was when it was ready, else as it was bound
    ended_s: float | None = None

    @property
    def pull_s(self) -> float | None:
        """From its placement until its images were there; None if that is not known."""
        if self.decided_s is None or self.ready_s is None:
            return None
        return 0.0 if self.pulled_s is None else max(self.pulled_s - self.decided_s, 0.0)

    @property
    def start_s(self) -> float | None:
        """From there until it was ready; None if that is not known."""
        if self.decided_s is None or self.ready_s is None:
            return None
        return max(self.ready_s - (self.pulled_s or self.decided_s), 0.0)

    @property
    def life_s(self) -> float | None:
        """From ready, or from its binding if it never was, to its end; None if it outlived that or
        was never bound."""
        since_s = self.bound_s if self.ready_s is None else self.ready_s
        return None if self.ended_s is None or since_s is None else self.ended_s - since_s


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
    _starts: dict[tuple[str, str], float] = field(default_factory=dict)
    _pulls: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, recorded: Iterable[Entry], estimate_every_s: float = ESTIMATE_EVERY_S
    ) -> "Past":
        """Read a recording. estimate_every_s: see States. Raises ReplayError."""
        entries = list(on_one_clock(recorded))
        began = began_of(entries)
        lives, models, nodes = _lives(entries, began), dict[str, str](), dict[str, Node]()
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
        found = self.speeds.get(node)
        if found is None and self.speeds:
            speeds = sorted(self.speeds.values())
            found = speeds[len(speeds) // 2]
        return found

    def start_s(self, life: Life, node: str) -> float:
        """From the images to ready, of this pod on this node: its own time on such a board, else
        the median of its workload there, else of its workload, else of all pods; NaN if unknown."""
        kind, own = self.kinds.get(node, ""), life.start_s
        if own is not None and self.kinds.get(life.node or "", "") == kind:
            return own
        workload = workload_name(life.pod)
        for key in ((workload, kind), (workload, ""), ("", kind), ("", "")):
            if key in self._starts:
                return self._starts[key]
        return nan

    def pull_s(self, life: Life, node: str) -> float:
        """How long a pod waits for images of which nothing is known: as it was recorded on this
        node, else the median of its workload; NaN if unknown."""
        if life.node == node and life.pull_s is not None:
            return life.pull_s
        return self._pulls.get(workload_name(life.pod), nan)

    def _learn_starts(self) -> None:
        starts: dict[tuple[str, str], list[float]] = {}
        pulls: dict[str, list[float]] = {}
        for life in self.lives.values():
            if life.start_s is None or life.pull_s is None:
                continue
            workload, kind = workload_name(life.pod), self.kinds.get(life.node or "", "")
            for key in {(workload, kind), (workload, ""), ("", kind), ("", "")}:
                starts.setdefault(key, []).append(life.start_s)
            pulls.setdefault(workload, []).append(life.pull_s)
        self._starts = {key: median(times) for key, times in starts.items()}
        self._pulls = {key: median(times) for key, times in pulls.items()}


def workload_name(pod: Pod) -> str:
    """namespace/name of the pod's Deployment or other owner, else of the application that its
    labels name, else its own."""
    owner, name = pod.owner, pod.name
    if owner is not None:
        suffix = f"-{pod.labels.get('pod-template-hash', '')}"
        name = owner.name.removesuffix(suffix) if len(suffix) > 1 else owner.name
    else:
        name = next((pod.labels[key] for key in _APP_LABELS if key in pod.labels), name)
    return f"{pod.namespace}/{name}"


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


def _lives(entries: Sequence[Entry], began: Began) -> dict[str, Life]:
    """The pods of the recorded scheduler that came pending, by uid."""
    lives: dict[str, Life] = {}

    def see(pod: Pod, at_s: float) -> None:
        life = lives.get(pod.uid)
        if life is None:
            is_ours = pod.scheduler_name == began.scheduler_name and pod.node_name is None
            if not is_ours or pod.finished:
                return
            life = lives[pod.uid] = Life(pod, at_s)
        if pod.node_name is not None and life.bound_s is None:
            life.bound_s, life.node, life.shown = at_s, pod.node_name, pod
            if life.decided_s is None:
                life.decided_s = at_s  # another controller, or before it was recorded
        if life.bound_s is None:
            life.pod = pod
        elif (pod.ready or pod.runs_s is not None) and life.ready_s is None:
            life.ready_s, life.shown = at_s, pod
        if pod.finished and life.ended_s is None:
            life.ended_s = at_s

    def gone(uid: str, at_s: float) -> None:
        if (life := lives.get(uid)) is not None and life.ended_s is None:
            life.ended_s = at_s

    for at_s, what in entries:
        match what:
            case Changed(Relisted(_, pods)):
                for pod in pods:
                    see(pod, at_s)
                listed = {pod.uid for pod in pods}
                for uid in lives:
                    if uid not in listed:
                        gone(uid, at_s)
            case Changed(PodChanged(pod)):
                see(pod, at_s)
            case Changed(PodDeleted(pod)):
                gone(pod.uid, at_s)
            case Pulled(pull) if pull.took_s is not None and pull.pod_uid in lives:
                lives[pull.pod_uid].pulled_s = at_s
            case Decided(uid, _, node) if node is not None and uid in lives:
                lives[uid].decided_s = at_s
            case _:
                pass
    return lives


def _digest(what: Recorded) -> Iterator[tuple[str, str]]:
    image, digest = getattr(what, "image", None), getattr(what, "digest", None)
    if image is not None and digest is not None:
        yield full_name(image), digest


def _size(node: Node) -> str:
    """Boards of the same size count as of one kind where no agent tells the model."""
    return f"{node.allocatable.get(CPU, 0)}/{node.allocatable.get(MEMORY, 0)}"

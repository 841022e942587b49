"""The pods that the recorded controller was to place, each as it was recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted
from leadline_controller.framework.services import owner_name
from leadline_controller.history.recorded import Began, Changed, Decided, Entry, Pulled

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
    def has_pulled(self) -> bool:
        """Whether its node pulled an image for it."""
        return self.pulled_s is not None

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


def workload_name(pod: Pod) -> str:
    """namespace/name of the pod's Deployment or other owner, else of the application that its
    labels name, else its own."""
    labels = (pod.labels[key] for key in _APP_LABELS if key in pod.labels)
    return f"{pod.namespace}/{owner_name(pod) or next(labels, pod.name)}"


def lives_of(entries: Iterable[Entry], began: Began) -> dict[str, Life]:
    """The pods of the recorded scheduler that came pending, by uid."""
    reader = _Reader(began.scheduler_name)
    for at_s, what in entries:
        match what:
            case Changed(change):
                reader.change(change, at_s)
            case Pulled(pull) if pull.took_s is not None and pull.pod_uid in reader.lives:
                reader.lives[pull.pod_uid].pulled_s = at_s
            case Decided(uid, _, node) if node is not None and uid in reader.lives:
                reader.lives[uid].decided_s = at_s
            case _:
                pass
    return reader.lives


class _Reader:
    def __init__(self, scheduler_name: str) -> None:
        self.lives: dict[str, Life] = {}
        self._scheduler_name = scheduler_name

    def change(self, change: ClusterChange, at_s: float) -> None:
        """The cluster changes."""
        match change:
            case Relisted(_, pods):
                for pod in pods:
                    self._see(pod, at_s)
                listed = {pod.uid for pod in pods}
                for uid in self.lives:
                    if uid not in listed:
                        self._gone(uid, at_s)
            case PodChanged(pod):
                self._see(pod, at_s)
            case PodDeleted(pod):
                self._gone(pod.uid, at_s)
            case _:
                pass

    def _see(self, pod: Pod, at_s: float) -> None:
        life = self.lives.get(pod.uid)
        if life is None:
            is_ours = pod.scheduler_name == self._scheduler_name and pod.node_name is None
            if not is_ours or pod.finished:
                return
            life = self.lives[pod.uid] = Life(pod, at_s)
        if pod.node_name is not None and life.bound_s is None:
            life.bound_s, life.node, life.shown = at_s, pod.node_name, pod
            if life.decided_s is None:
                life.decided_s = at_s  # another controller decided, or it was not recorded
        if life.bound_s is None:
            life.pod = pod
        elif (pod.ready or pod.runs_s is not None) and life.ready_s is None:
            life.ready_s, life.shown = at_s, pod
        if pod.finished and life.ended_s is None:
            life.ended_s = at_s

    def _gone(self, uid: str, at_s: float) -> None:
        if (life := self.lives.get(uid)) is not None and life.ended_s is None:
            life.ended_s = at_s

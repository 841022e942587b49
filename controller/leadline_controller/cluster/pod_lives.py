"""How long the pods of each workload live: what has run and what has ended, as the API server's
objects tell it."""

from collections.abc import Mapping
from dataclasses import dataclass

from leadline_controller.framework.assumed_load import Lives, workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import Service

_MOST_WORKLOADS = 1024
# Views share what is known until it has changed by so much; it grows with each second.
_CHANGED = 0.1


@dataclass(slots=True)
class _Count:
    """Of one workload; times are seconds since 1970."""

    running: int = 0
    started_s: float = 0.0  # the sum of when those that run began
    ended: int = 0
    ended_ran_s: float = 0.0  # how long those that ended ran, together


class PodLives:
    """Counts the pods that run and those that have ended, by workload."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Service, float]] = {}  # by uid
        self._counts: dict[Service, _Count] = {}

    def run(self, pod: Pod) -> None:
        """The pod runs, since its `runs_s`."""
        if pod.runs_s is None or pod.uid in self._running:
            return
        workload = workload_of(pod)
        count = self._counts.pop(workload, _Count())
        self._counts[workload] = count  # as the newest
        count.running += 1
        count.started_s += pod.runs_s
        self._running[pod.uid] = workload, pod.runs_s
        if len(self._counts) > _MOST_WORKLOADS:
            self._forget()

    def end(self, pod: Pod, unix_s: float) -> None:
        """The pod has ended, or is gone; unix_s: now, where the pod does not say when."""
        known = self._running.pop(pod.uid, None)
        if known is None:
            return
        workload, began_s = known
        if (count := self._counts.get(workload)) is None:
            return
        ended_s = unix_s if pod.ended_s is None else pod.ended_s
        count.running -= 1
        count.started_s -= began_s
        count.ended += 1
        count.ended_ran_s += max(ended_s - began_s, 0.0)

    def lives(self, unix_s: float, before: Mapping[Service, Lives]) -> Mapping[Service, Lives]:
        """What is known now; `before` itself while that is nearly the same."""
        found = {}
        for workload, count in self._counts.items():
            running_s = max(count.running * unix_s - count.started_s, 0.0)
            found[workload] = Lives(count.ended_ran_s + running_s, count.ended)
        if found.keys() == before.keys() and not any(
            lives.ended != before[workload].ended
            or abs(lives.ran_s - before[workload].ran_s) > _CHANGED * before[workload].ran_s
            for workload, lives in found.items()
        ):
            return before
        return found

    def _forget(self) -> None:
        """Forget the workload whose last pod came longest ago, one without running pods first."""
        gone = (each for each, count in self._counts.items() if not count.running)
        del self._counts[next(gone, next(iter(self._counts)))]

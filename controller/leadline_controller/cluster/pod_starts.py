"""How long the pods of each workload take to start on each class of board, as the API server's
objects tell it.

The last starts of a workload on a class count. Which these are follows from the pods alone, so that
a controller that starts again learns the same from those that run.
"""

from heapq import heappushpop

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Starts, learn

_MOST_PAIRS, _SAMPLES = 4096, 8
# A pod that took longer waited for something else, or was not ready for a while later on.
_LONGEST_S = 600.0

_Sample = tuple[float, str, float]  # since when the pod runs, its uid, and what its start took, s


class PodStarts:
    """Keeps the last starts of each workload on each class. known: what they tell."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Service, str], list[_Sample]] = {}  # the newest pair last
        self._is_new = False
        self.known = Starts()

    def put(self, pod: Pod, board_class: str) -> None:
        """The pod is ready on a board of this class, or was restarted there, after which it does
        not count."""
        pair = workload_of(pod), board_class
        samples = self._pairs.pop(pair, [])
        if pod.restarted:
            samples = [each for each in samples if each[1] != pod.uid]
        elif (
            pod.starting_s is not None
            and pod.runs_s is not None
            and pod.starting_s <= _LONGEST_S
            and all(uid != pod.uid for _, uid, _ in samples)
        ):
            sample = pod.runs_s, pod.uid, pod.starting_s
            if len(samples) < _SAMPLES:
                samples = sorted([*samples, sample])
            else:
                heappushpop(samples, sample)
        self._is_new = True
        if samples:
            self._pairs[pair] = samples
        if len(self._pairs) > _MOST_PAIRS:
            del self._pairs[next(iter(self._pairs))]

    def look(self) -> Starts:
        """What is known now; the same object while nothing has changed."""
        if self._is_new:
            self._is_new = False
            self.known = learn(
                {pair: [took_s for *_, took_s in kept] for pair, kept in self._pairs.items()}
            )
        return self.known

"""The best that any placement could reach: every one of so many replicas, several on one worker
or not and the threshold aside, followed by the same users with the same draws as the schedulers.

Only the placements are simulated that a bound does not rule out.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from statistics import fmean
from typing import NamedTuple

from leadline_experiments.response_time.claims import Shown
from leadline_experiments.response_time.testbed import LEVELS, Service

Plan = Sequence[Sequence[str]]  # the nodes of one replica, of two and so on
# For a twentieth of a step the replicas of the step before are there, which no bound knows.
_SLACK = 0.05


class Best(NamedTuple):
    """The best of each step by itself, whichever placement showed it."""

    response_ms: Sequence[float]
    throughput: Sequence[float]


def best_of_all(
    service: Service, follow: Callable[[Plan], Shown], schedulers: Iterable[Shown]
) -> Best:
    """follow: what the steps show where replicas are always as planned. schedulers: what theirs
    showed; they placed too, so none of them is better than the best.

    Throughput has no search of its own: users who wait for their answers ask the more often the
    sooner they come.
    """
    queues = [_by_bound(service, replicas) for replicas in range(1, max(LEVELS) + 1)]
    best = _best(schedulers)
    plan: Plan = [queue[0] for queue in queues]
    while any(open_ := [_is_open(service, queue, best) for queue in queues]):
        plan = [
            queue.popleft() if more else nodes
            for queue, more, nodes in zip(queues, open_, plan, strict=True)
        ]
        best = _best([best, follow(plan)])
    return best


def least_response_ms(service: Service, nodes: Sequence[str]) -> float:
    """No load of as many replicas as `nodes` has is answered sooner on average: a request takes
    as long as one that waits for nobody, and the busiest worker has only so many cores (the
    asymptotic bounds of Denning and Buzen, "The Operational Analysis of Queueing Network
    Models", 1978)."""
    shares = {name: count / len(nodes) for name, count in Counter(nodes).items()}
    cores = {worker.name: worker.cores for worker in service.workers}
    alone_ms = sum(share * service.predicted_ms[name] for name, share in shares.items())
    busiest_ms = max(
        share * service.profile_ms[name] / cores[name] for name, share in shares.items()
    )
    requests = service.users_a_step * len(nodes) * service.load_profile.parallel
    return max(alone_ms, requests * busiest_ms - fmean(service.load_profile.pause_s) * 1000)


def _by_bound(service: Service, replicas: int) -> deque[tuple[str, ...]]:
    workers = [worker.name for worker in service.workers]
    placements = combinations_with_replacement(workers, replicas)
    return deque(sorted(placements, key=lambda nodes: least_response_ms(service, nodes)))


def _is_open(service: Service, queue: Sequence[Sequence[str]], best: Best) -> bool:
    """Whether the next placement could still be better, in one step with so many replicas."""
    if not queue:
        return False
    reached = [
        ms for ms, level in zip(best.response_ms, LEVELS, strict=True) if level == len(queue[0])
    ]
    return least_response_ms(service, queue[0]) * (1 - _SLACK) <= max(reached)


def _best(several: Iterable[Shown | Best]) -> Best:
    each = list(several)
    return Best(
        [min(step) for step in zip(*(one.response_ms for one in each), strict=True)],
        [max(step) for step in zip(*(one.throughput for one in each), strict=True)],
    )

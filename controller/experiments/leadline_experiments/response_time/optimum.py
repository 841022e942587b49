"""The best of all placements: any nodes for any number of replicas, several on one worker included
and the threshold ignored, with the same users and random numbers as the schedulers.

A bound excludes most placements; only the others are simulated.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations_with_replacement
from statistics import fmean

from leadline_experiments.response_time.claims import MethodResult
from leadline_experiments.response_time.trial import LEVELS, Service

Plan = Sequence[Sequence[str]]  # the nodes of one replica, of two, and so on
# For a twentieth of a step the replicas are those of the step before, which the bound ignores.
_SLACK = 0.05


def best_of_all(
    service: Service,
    simulate: Callable[[Plan], MethodResult],
    schedulers: Iterable[MethodResult],
) -> MethodResult:
    """The best response time and throughput of each step, over all placements. simulate: the result
    with the replicas of a plan. schedulers: their results, which are placements too, so that no
    scheduler is better than the best.

    Throughput needs no search: users who wait for their answers send more requests the sooner the
    answers arrive.
    """
    workers = [worker.name for worker in service.workers]
    least_ms = partial(least_response_ms, service)
    queues = [
        deque(sorted(combinations_with_replacement(workers, replicas), key=least_ms))
        for replicas in range(1, max(LEVELS) + 1)
    ]
    best = _best(schedulers)
    plan: Plan = [queue[0] for queue in queues]
    while any(open_ := [_may_improve(service, queue, best) for queue in queues]):
        plan = [
            queue.popleft() if more else nodes
            for queue, more, nodes in zip(queues, open_, plan, strict=True)
        ]
        best = _best([best, simulate(plan)])
    return best


def least_response_ms(service: Service, nodes: Sequence[str]) -> float:
    """A lower bound of the average response time with one replica on each of `nodes`: a request
    without waiting, and the capacity of the busiest worker (the asymptotic bounds of Denning and
    Buzen, "The Operational Analysis of Queueing Network Models", 1978)."""
    shares = {name: count / len(nodes) for name, count in Counter(nodes).items()}
    cores = {worker.name: worker.cores for worker in service.workers}
    alone_ms = sum(share * service.predicted_ms[name] for name, share in shares.items())
    busiest_ms = max(
        share * service.profile_ms[name] / cores[name] for name, share in shares.items()
    )
    requests = service.users_per_step * len(nodes) * service.load_profile.parallel
    return max(alone_ms, requests * busiest_ms - fmean(service.load_profile.pause_s) * 1000)


def _may_improve(service: Service, queue: Sequence[Sequence[str]], best: MethodResult) -> bool:
    """Whether the next placement may be better in a step with its number of replicas."""
    if not queue:
        return False
    reached = [
        ms for ms, level in zip(best.response_ms, LEVELS, strict=True) if level == len(queue[0])
    ]
    return least_response_ms(service, queue[0]) * (1 - _SLACK) <= max(reached)


def _best(results: Iterable[MethodResult]) -> MethodResult:
    each = list(results)
    return MethodResult(
        [min(step) for step in zip(*(one.response_ms for one in each), strict=True)],
        [max(step) for step in zip(*(one.throughput for one in each), strict=True)],
    )

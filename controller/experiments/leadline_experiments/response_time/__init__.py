"""The response-time paper's experiments (Section 5): two deployments are scaled up and down on four
different workers, with the proposed scheduler and with the default one.

Alqahtani, Toosi, "Container Orchestration in Heterogeneous Edge Computing Environments",
Fig. 3 to 8.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, count
from random import Random
from statistics import fmean, pstdev

from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import ResponseTime

from leadline_experiments.response_time.claims import (
    DEFAULT,
    OURS,
    MethodResult,
    Results,
    all_claims,
)
from leadline_experiments.response_time.simulation import (
    DETECTION,
    LEVELS,
    THRESHOLD_MS,
    WEB,
    WORKERS,
    Method,
    Outcome,
    Service,
    draw_workers,
    newest,
    on_the_fullest,
    run_plan,
    run_trial,
)
from leadline_experiments.result import Claim, Figure, Progress, Result, Row, Series, Setting

_RUNS = 5
_SERVICES = (WEB, DETECTION)
Plan = Sequence[Sequence[str]]  # the nodes of one replica, of two, and so on
# For a twentieth of a step the replicas are those of the step before, which the bound ignores.
_SLACK = 0.05
_DRAWS, _SPREAD, _SHORT_S = 12, 0.3, (2.0, 60.0)
ROBUSTNESS = "how firm the claims are"
_AROUND = f"delays and profiles drawn within {_SPREAD:.0%} of the stand-ins"
_HELD = f"in how many of {_DRAWS} such testbeds a claim holds"
_METHODS: Mapping[str, Method] = {
    OURS: Method(ResponseTime(), newest),
    DEFAULT: Method(KubeDefault(), on_the_fullest),
}
_TABLES = {WEB.name: ("Fig. 3", "Fig. 5", "Fig. 6"), DETECTION.name: ("Fig. 4", "Fig. 7", "Fig. 8")}


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. Each scheduler runs each deployment five times, as
    in the paper. Beside the results stand the best of all placements, and how robust the claims
    are to other numbers."""
    parts = len(_SERVICES) * (len(_METHODS) + 1) * _RUNS + _DRAWS
    done = count(1)

    def tick(times: int = 1) -> None:
        for _ in range(times):
            progress(next(done) / parts)

    def measure(service: Service) -> tuple[Service, Results, MethodResult]:
        seeds, results = range(seed, seed + _RUNS), {}
        for name, method in _METHODS.items():
            outcomes = []
            for each in seeds:
                outcomes.append(run_trial(service, method, each))
                tick()
            results[name] = _mean(outcomes)

        def simulate(plan: Plan) -> MethodResult:
            return _mean([run_plan(service, plan, each) for each in seeds])

        best = best_of_all(service, simulate, results.values())
        tick(_RUNS)
        return service, results, best

    services = [measure(service) for service in _SERVICES]
    claims = all_claims(*((service, results) for service, results, _ in services))
    return Result(
        "response-time",
        "Container Orchestration in Heterogeneous Edge Computing Environments, Section 5",
        {name: Setting(text, "chosen") for name, text in _calibration().items()},
        [
            *(row for each in services for row in _rows(*each)),
            *_robustness_rows(claims, seed, tick),
        ],
        claims,
        [figure for each in services for figure in _figures(*each)],
    )


def _robustness_rows(claims: Sequence[Claim], seed: int, tick: Callable[[], None]) -> Iterator[Row]:
    """On how many test beds with random numbers around the stand-ins a claim holds, as the paper's
    numbers are lost and no claim should hold only because of a stand-in. Claims that always hold
    share a row."""
    held = [0] * len(claims)
    random = Random(seed)
    short = [replace(each, step_s=s) for each, s in zip(_SERVICES, _SHORT_S, strict=True)]
    for _ in range(_DRAWS):
        services = draw_workers(short, random, _SPREAD)
        results = [
            {name: _mean([run_trial(each, method, seed)]) for name, method in _METHODS.items()}
            for each in services
        ]
        drawn = all_claims(*zip(services, results, strict=True))
        held = [count + claim.holds for count, claim in zip(held, drawn, strict=True)]
        tick()
    for claim, times in zip(claims, held, strict=True):
        if times < _DRAWS:
            case = f"{claim.where}: {claim.says}"
            yield Row(ROBUSTNESS, case, "", _AROUND, _HELD, None, times)
    case = f"each of the other {held.count(_DRAWS)} claims"
    yield Row(ROBUSTNESS, case, "", _AROUND, _HELD, None, _DRAWS)


def _mean(outcomes: Sequence[Outcome]) -> MethodResult:
    """The averages over the runs."""
    steps = range(len(LEVELS))
    return MethodResult(
        [fmean(fmean(o.response_s[i]) * 1000 for o in outcomes) for i in steps],
        [fmean(o.throughput[i] for o in outcomes) for i in steps],
        [fmean(pstdev(o.response_s[i]) * 1000 for o in outcomes) for i in steps],
        outcomes[0].nodes,
        outcomes[0].removed,
    )


def _rows(service: Service, results: Results, best: MethodResult) -> Iterator[Row]:
    load, response, throughput = _TABLES[service.name]
    for step, level in enumerate(LEVELS):
        case = f"step {step + 1}, {service.steps[step].users} users"
        for name, each in results.items():
            yield Row(load, case, name, "", "replicas", level, len(each.nodes[step]))
            for table, metric, ours, optimum in (
                (response, "response_ms", each.response_ms[step], best.response_ms[step]),
                (response, "deviation_ms", each.deviation_ms[step], None),
                (throughput, "requests_per_s", each.throughput[step], best.throughput[step]),
            ):
                yield Row(table, case, name, "", metric, None, ours, optimum)


def _figures(service: Service, results: Results, best: MethodResult) -> Iterator[Figure]:
    _, response, throughput = _TABLES[service.name]
    methods = {**results, "optimum": best}
    steps = [f"{i + 1}: {step.users}" for i, step in enumerate(service.steps)]
    for table, what, unit, values in (
        (response, "response time", "ms", {n: r.response_ms for n, r in methods.items()}),
        (throughput, "throughput", "requests/s", {n: r.throughput for n, r in methods.items()}),
    ):
        name = f"response-time-{table.lower().replace('. ', '')}"
        title = f"{table}: {what}, {service.name}"
        series = [Series(method, steps, each) for method, each in values.items()]
        yield Figure(name, title, "step: users", f"{what}, {unit}", "bars", series)


def _calibration() -> dict[str, str]:
    def pause(service: Service) -> str:
        shortest_s, longest_s = service.load_profile.pause_s
        return f"{shortest_s:g}-{longest_s:g} s"

    def per_worker(profile_ms: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {ms:g} ms" for name, ms in profile_ms.items())

    return {
        "the numbers below": "stand in for what only lost figures had. As the text prints no "
        "numbers, they were adjusted while watching the outcome, until what it says in words "
        f"came out; the table '{ROBUSTNESS}' shows what other numbers give",
        "workers": "; ".join(
            f"{w.name}: {w.cores} cores, {w.memory_gib} GiB, {w.ping_ms:g} ms to the master"
            for w in WORKERS
        ),
        "profile, web": per_worker(WEB.profile_ms),
        "profile, object detection": per_worker(DETECTION.profile_ms),
        "threshold": f"{THRESHOLD_MS:g} ms",
        "a replica asks for": "0.2 cores, 128 MiB; Kind's own pods 0.1 cores, 50 MiB a node",
        "users": "at the master; each keeps 5 (web) or 10 (object detection) requests going and "
        f"pauses {pause(WEB)} or {pause(DETECTION)} after each answer",
        "steps": f"{WEB.step_s:g} s (web), {DETECTION.step_s:g} s (object detection)",
        "KEDA": "counts the requests that users keep going, as the paper's own sums do: 50 or 20 "
        "a replica; looks 20 times a step",
        "a request": "goes to a replica by chance, as kube-proxy has it, and runs on one core",
    }


def best_of_all(
    service: Service,
    simulate: Callable[[Plan], MethodResult],
    schedulers: Iterable[MethodResult],
) -> MethodResult:
    """The best response time and throughput of each step, over all placements: any nodes for any
    number of replicas, several on one worker included and the threshold ignored, with the same
    users and random numbers as the schedulers. A bound excludes most placements; only the others
    are simulated.

    simulate: the result with the replicas of a plan. schedulers: their results, which are
    placements too, so that no scheduler is better than the best.

    Throughput needs no search: users who wait for their answers send more requests the sooner the
    answers arrive.
    """
    workers = [worker.name for worker in service.workers]
    least_ms = partial(least_response_ms, service)
    queues = [
        deque(sorted(combinations_with_replacement(workers, replicas), key=least_ms))
        for replicas in range(1, max(LEVELS) + 1)
    ]

    def may_improve(queue: Sequence[Sequence[str]]) -> bool:
        steps = zip(best.response_ms, LEVELS, strict=True)
        reached_ms = [ms for ms, level in steps if queue and level == len(queue[0])]
        return bool(reached_ms) and least_ms(queue[0]) * (1 - _SLACK) <= max(reached_ms)

    best = _best_of_each_step(schedulers)
    plan: Plan = [queue[0] for queue in queues]
    while any(open_ := [may_improve(queue) for queue in queues]):
        each = zip(queues, open_, plan, strict=True)
        plan = [queue.popleft() if more else nodes for queue, more, nodes in each]
        best = _best_of_each_step([best, simulate(plan)])
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


def _best_of_each_step(results: Iterable[MethodResult]) -> MethodResult:
    each = list(results)
    return MethodResult(
        [min(step) for step in zip(*(one.response_ms for one in each), strict=True)],
        [max(step) for step in zip(*(one.throughput for one in each), strict=True)],
    )

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
from leadline_controller.framework.options import build
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import ResponseTime

from leadline_experiments.response_time.claims import (
    DEFAULT,
    OURS,
    PEAK,
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
    scaled,
)
from leadline_experiments.result import Claim, Figure, Progress, Result, Row, Series, Setting

_RUNS = 5
_SERVICES = (WEB, DETECTION)
Plan = Sequence[Sequence[str]]  # the nodes of one replica, of two, and so on
# For a twentieth of a step the replicas are those of the step before, which the bound ignores.
_SLACK = 0.05
_DRAWS, _SPREADS, _SHORT_S = 8, (0.15, 0.3, 0.6, 0.9), (2.0, 60.0)
_FACTORS = (1 / 3, 1.5, 3.0)
ROBUSTNESS, BREAKING = "how firm the claims are", "where claims break"
# Beyond the paper's most, one per node: the text's rounds, and Algorithm 1 as printed.
FURTHER, _FURTHER_LEVELS = "further replicas", tuple(range(1, 9))
_READINGS: Sequence[Mapping[str, str]] = (
    {"replicas": "rounds"},
    {"replicas": "minimum"},
    {"replicas": "minimum", "cores": "apart"},
)
_METHODS: Mapping[str, Method] = {
    OURS: Method(ResponseTime(), newest),
    DEFAULT: Method(KubeDefault(), on_the_fullest),
}
_TABLES = {WEB.name: ("Fig. 3", "Fig. 5", "Fig. 6"), DETECTION.name: ("Fig. 4", "Fig. 7", "Fig. 8")}


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. Each scheduler runs each deployment five times, as
    in the paper. Beside the results stand the best of all placements, and how robust the claims
    are to other numbers."""
    joining = {strategy.name: Method(strategy, newest)} if strategy else {}
    methods = {**joining, **_METHODS}
    parts = len(_SERVICES) * ((len(methods) + 1) * _RUNS + len(_READINGS))
    parts += _DRAWS * len(_SPREADS)
    done = count(1)

    def tick(times: int = 1) -> None:
        for _ in range(times):
            progress(next(done) / parts)

    def measure(service: Service) -> tuple[Service, Results, MethodResult]:
        seeds, results = range(seed, seed + _RUNS), {}
        for name, method in methods.items():
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
        _settings(),
        [
            *(row for each in services for row in _rows(*each)),
            *_further_rows(seed, tick),
            *_robustness_rows(claims, seed, tick),
        ],
        claims,
        [figure for each in services for figure in _figures(*each)],
    )


def _further_rows(seed: int, tick: Callable[[], None]) -> Iterator[Row]:
    """Both readings of where replicas go once every node has one, and each with the paper's
    prediction, from the paper's most replicas, up to which they are the same, to twice as many."""
    for each, step_s in zip(_SERVICES, _SHORT_S, strict=True):
        service = replace(each, levels=_FURTHER_LEVELS, step_s=step_s)
        for reading in _READINGS:
            outcome = run_trial(service, Method(build(ResponseTime, reading), newest), seed)
            tick()
            option = ", ".join(f"{name}={value}" for name, value in reading.items())
            for at, nodes in list(enumerate(outcome.nodes))[max(LEVELS) - 1 :]:
                case = f"{service.name}, {len(nodes)} replicas"
                for metric, ours in (
                    ("replicas on one node", max(Counter(nodes).values())),
                    ("response_ms", fmean(outcome.response_s[at]) * 1000),
                    ("requests_per_s", outcome.throughput[at]),
                ):
                    yield Row(FURTHER, case, OURS, option, metric, None, ours)


def _robustness_rows(claims: Sequence[Claim], seed: int, tick: Callable[[], None]) -> Iterator[Row]:
    """How many claims hold with other numbers, as the paper's are lost: with random ones around the
    stand-ins, and with all delays or all profiles multiplied. Then, for each claim that fails in
    one of these testbeds, the least spread that makes it fail."""
    random = Random(seed)
    short = [replace(each, step_s=s) for each, s in zip(_SERVICES, _SHORT_S, strict=True)]
    metric = f"claims of {len(claims)} that hold"

    def held(services: Sequence[Service]) -> list[bool]:
        results = [
            {name: _mean([run_trial(each, method, seed)]) for name, method in _METHODS.items()}
            for each in services
        ]
        return [claim.holds for claim in all_claims(*zip(services, results, strict=True))]

    breaks_at: dict[int, float] = {}
    for spread in _SPREADS:
        counts = []
        for _ in range(_DRAWS):
            holds = held(draw_workers(short, random, spread))
            counts.append(sum(holds))
            for at in [at for at, is_held in enumerate(holds) if not is_held]:
                breaks_at.setdefault(at, spread)
            tick()
        case = f"delays and profiles drawn within {spread:.0%} of the stand-ins"
        firm = len(claims) - len(breaks_at)
        for suffix, ours in (
            ("in all testbeds up to here", firm),
            (f"in the worst of {_DRAWS} testbeds", min(counts)),
        ):
            yield Row(ROBUSTNESS, case, "", "", f"{metric} {suffix}", None, ours)
    for what in ("delays", "profiles"):
        for factor in _FACTORS:
            ours = sum(held(scaled(short, **{what: factor})))
            yield Row(ROBUSTNESS, f"{what} times {factor:.2g}", "", "", metric, None, ours)
    yield Row(ROBUSTNESS, "the stand-ins, shorter steps", "", "", metric, None, sum(held(short)))
    metric = f"the least spread at which it fails in one of {_DRAWS} testbeds, %"
    for at, spread in sorted(breaks_at.items(), key=lambda item: item[1]):
        case = f"{claims[at].where}: {claims[at].says}"
        yield Row(BREAKING, case, "", "", metric, None, spread * 100)


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
                is_headline = metric == "response_ms" and step in (0, PEAK)
                yield Row(table, case, name, "", metric, None, ours, optimum, is_headline)


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


def _settings() -> Mapping[str, Setting]:
    """The stand-ins for what only lost figures had were adjusted while watching the outcome, until
    what the text says in words came out; the table ROBUSTNESS shows what other numbers give."""

    def pause(service: Service) -> str:
        shortest_s, longest_s = service.behaviour.pause_s
        return f"{shortest_s:g}-{longest_s:g} s"

    def per_worker(profile_ms: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {ms:g} ms" for name, ms in profile_ms.items())

    workers = "; ".join(
        f"{w.name}: {w.cores} cores, {w.memory_gib} GiB, {w.ping_ms:g} ms to the master"
        for w in WORKERS
    )
    return {
        "workers": Setting(f"{workers}; the paper has 8 CPUs in all", "fitted"),
        "profile, web": Setting(per_worker(WEB.profile_ms), "fitted"),
        "profile, object detection": Setting(per_worker(DETECTION.profile_ms), "fitted"),
        "threshold": Setting(f"{THRESHOLD_MS:g} ms", "fitted"),
        "a replica requests": Setting("0.2 cores, 128 MiB", "chosen"),
        "Kind's own pods request": Setting("0.1 cores, 50 MiB on each node", "chosen"),
        "users": Setting(
            "at the master; each keeps 5 (web) or 10 (object detection) requests going", "paper"
        ),
        "pauses of users": Setting(
            f"{pause(WEB)} (web) or {pause(DETECTION)} (object detection) after each answer",
            "fitted",
        ),
        "steps": Setting(
            f"{WEB.step_s:g} s (web), {DETECTION.step_s:g} s (object detection)", "chosen"
        ),
        "KEDA": Setting(
            "counts the requests that users keep going, as the paper's own sums do: 50 or 20 a "
            "replica",
            "paper",
        ),
        "KEDA looks": Setting("20 times a step", "chosen"),
        "a request": Setting(
            "goes to a replica by chance, as kube-proxy has it, and runs on one core", "chosen"
        ),
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
    requests = service.users_per_step * len(nodes) * service.behaviour.parallel
    return max(alone_ms, requests * busiest_ms - fmean(service.behaviour.pause_s) * 1000)


def _best_of_each_step(results: Iterable[MethodResult]) -> MethodResult:
    each = list(results)
    return MethodResult(
        [min(step) for step in zip(*(one.response_ms for one in each), strict=True)],
        [max(step) for step in zip(*(one.throughput for one in each), strict=True)],
    )

"""The response-time paper's experiments (Section 5): two deployments scaled up and down on four
unlike workers, with the proposed scheduler and with the default one.

Alqahtani, Toosi, "Container Orchestration in Heterogeneous Edge Computing Environments",
Fig. 3 to 8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from statistics import fmean, pstdev

from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import ResponseTime

from leadline_experiments.response_time.claims import (
    DEFAULT,
    OURS,
    Shown,
    all_claims,
)
from leadline_experiments.response_time.optimum import Best, Plan, best_of_all
from leadline_experiments.response_time.testbed import (
    DETECTION,
    LEVELS,
    THRESHOLD_MS,
    WEB,
    WORKERS,
    Service,
    drawn,
)
from leadline_experiments.response_time.trial import (
    Method,
    Outcome,
    newest,
    on_the_fullest,
    run_plan,
    run_trial,
)
from leadline_experiments.result import Claim, Figure, Progress, Result, Row, Series

_PAPER = "Container Orchestration in Heterogeneous Edge Computing Environments, Section 5"
_OPTIMUM = "optimum"
_RUNS = 5
_SERVICES = (WEB, DETECTION)
_DRAWN, _SPREAD, _SHORT_S = 12, 0.3, (2.0, 60.0)
FIRMNESS = "how firm the claims are"
_AROUND = f"delays and profiles drawn within {_SPREAD:.0%} of the stand-ins"
_HELD = f"in how many of {_DRAWN} such testbeds a claim holds"
_METHODS: Mapping[str, Method] = {
    OURS: Method(ResponseTime(), newest),
    DEFAULT: Method(KubeDefault(), on_the_fullest),
}
_TABLES = {WEB.name: ("Fig. 3", "Fig. 5", "Fig. 6"), DETECTION.name: ("Fig. 4", "Fig. 7", "Fig. 8")}


def run(seed: int, progress: Progress) -> Result:
    """Five runs of each deployment under each scheduler, as the paper has it, beside the best
    that any placement could reach; and how firmly what comes out of them stands."""
    parts = len(_SERVICES) * (len(_METHODS) + 1) * _RUNS + _DRAWN
    done = count(1)

    def tick(times: int = 1) -> None:
        for _ in range(times):
            progress(next(done) / parts)

    shown = [_all_shown(service, seed, tick) for service in _SERVICES]
    best = [
        _best(service, each, seed, tick) for service, each in zip(_SERVICES, shown, strict=True)
    ]
    claims = all_claims(*zip(_SERVICES, shown, strict=True))
    found = list(zip(_SERVICES, shown, best, strict=True))
    return Result(
        experiment="response-time",
        paper=_PAPER,
        calibration=_calibration(),
        rows=[*(row for each in found for row in _rows(*each)), *_firmness(claims, seed, tick)],
        claims=claims,
        figures=[figure for each in found for figure in _figures(*each)],
    )


def _firmness(claims: Sequence[Claim], seed: int, tick: Callable[[], None]) -> Iterator[Row]:
    """The paper's numbers are lost, so the stand-ins must not be what makes a claim hold: of
    workers drawn around them, in how many it does. Claims that hold in all share a row."""
    held = [0] * len(claims)
    random = Random(seed)
    short = [
        replace(service, step_s=step_s) for service, step_s in zip(_SERVICES, _SHORT_S, strict=True)
    ]
    for _ in range(_DRAWN):
        services = drawn(short, random, _SPREAD)
        shown = [
            {name: _shown([run_trial(each, how, seed)]) for name, how in _METHODS.items()}
            for each in services
        ]
        found = all_claims(*zip(services, shown, strict=True))
        held = [count + claim.holds for count, claim in zip(held, found, strict=True)]
        tick()
    cases = [
        (f"{claim.where}: {claim.says}", times)
        for claim, times in zip(claims, held, strict=True)
        if times < _DRAWN
    ]
    cases.append((f"each of the other {held.count(_DRAWN)} claims", _DRAWN))
    for case, times in cases:
        yield Row(FIRMNESS, case, "", _AROUND, _HELD, None, times)


def _all_shown(service: Service, seed: int, tick: Callable[[], None]) -> Mapping[str, Shown]:
    return {
        name: _five(partial(run_trial, service, method), seed, tick)
        for name, method in _METHODS.items()
    }


def _best(
    service: Service, shown: Mapping[str, Shown], seed: int, tick: Callable[[int], None]
) -> Best:
    def follow(plan: Plan) -> Shown:
        return _five(partial(run_plan, service, plan), seed, lambda: None)

    best = best_of_all(service, follow, shown.values())
    tick(_RUNS)
    return best


def _five(trial: Callable[[int], Outcome], seed: int, tick: Callable[[], None]) -> Shown:
    outcomes = []
    for each in range(seed, seed + _RUNS):
        outcomes.append(trial(each))
        tick()
    return _shown(outcomes)


def _shown(outcomes: Sequence[Outcome]) -> Shown:
    """Averages over the runs: of the requests' mean and deviation in each step, in ms."""
    steps = range(len(LEVELS))
    return Shown(
        [fmean(fmean(o.response_s[i]) * 1000 for o in outcomes) for i in steps],
        [fmean(pstdev(o.response_s[i]) * 1000 for o in outcomes) for i in steps],
        [fmean(o.throughput[i] for o in outcomes) for i in steps],
        outcomes[0].nodes,
        outcomes[0].removed,
    )


def _rows(service: Service, shown: Mapping[str, Shown], best: Best) -> Iterator[Row]:
    load, response, throughput = _TABLES[service.name]
    for step, level in enumerate(LEVELS):
        case = f"step {step + 1}, {service.steps[step].users} users"
        for name, each in shown.items():
            yield Row(load, case, name, "", "replicas", level, len(each.nodes[step]))
            for table, metric, ours, optimum in (
                (response, "response_ms", each.response_ms, best.response_ms),
                (response, "deviation_ms", each.deviation_ms, None),
                (throughput, "requests_per_s", each.throughput, best.throughput),
            ):
                reach = None if optimum is None else optimum[step]
                yield Row(table, case, name, "", metric, None, ours[step], reach)


def _figures(service: Service, shown: Mapping[str, Shown], best: Best) -> Iterator[Figure]:
    _, response, throughput = _TABLES[service.name]
    methods: Mapping[str, Shown | Best] = {**shown, _OPTIMUM: best}
    steps = [f"{i + 1}: {step.users}" for i, step in enumerate(service.steps)]
    for table, what, unit in (
        (response, "response time", "ms"),
        (throughput, "throughput", "requests/s"),
    ):
        yield Figure(
            name=f"response-time-{table.lower().replace('. ', '')}",
            title=f"{table}: {what}, {service.name}",
            x_label="step: users",
            y_label=f"{what}, {unit}",
            kind="bars",
            series=[
                Series(name, steps, each.response_ms if unit == "ms" else each.throughput)
                for name, each in methods.items()
            ],
        )


def _between(service: Service) -> str:
    shortest_s, longest_s = service.load_profile.pause_s
    return f"{shortest_s:g}-{longest_s:g} s"


def _calibration() -> dict[str, str]:
    def per_worker(profile_ms: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {ms:g} ms" for name, ms in profile_ms.items())

    return {
        "the numbers below": "stand in for what only lost figures had. As the text prints no "
        "numbers, they were adjusted while watching the outcome, until what it says in words "
        f"came out; the table '{FIRMNESS}' shows what other numbers give",
        "workers": "; ".join(
            f"{w.name}: {w.cores} cores, {w.memory_gib} GiB, {w.ping_ms:g} ms to the master"
            for w in WORKERS
        ),
        "profile, web": per_worker(WEB.profile_ms),
        "profile, object detection": per_worker(DETECTION.profile_ms),
        "threshold": f"{THRESHOLD_MS:g} ms",
        "a replica asks for": "0.2 cores, 128 MiB; Kind's own pods 0.1 cores, 50 MiB a node",
        "users": "at the master; each keeps 5 (web) or 10 (object detection) requests going and "
        f"pauses {_between(WEB)} or {_between(DETECTION)} after each answer",
        "steps": f"{WEB.step_s:g} s (web), {DETECTION.step_s:g} s (object detection)",
        "KEDA": "counts the requests that users keep going, as the paper's own sums do: 50 or 20 "
        "a replica; looks 20 times a step",
        "a request": "goes to a replica by chance, as kube-proxy has it, and runs on one core",
    }

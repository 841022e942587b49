"""Leadline's own strategy, judged: beside each paper's method in the paper's experiment and metric,
without each term of its rule, and with readings that are wrong, unknown or old.

docs/leadline-strategy.md derives the rule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.view import Floats
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.leadline import TERMS, Leadline

from leadline_experiments.leadline import papers
from leadline_experiments.leadline.claims import (
    AS_GOOD_PERCENT,
    KUBE,
    OURS,
    Change,
    paper_claim,
    robust_claims,
    term_claims,
)
from leadline_experiments.leadline.simulation import (
    ALIKE,
    APART_S,
    BOARDS,
    CORES,
    DISTURBANCES,
    GIB,
    LIFE_S,
    MIXED,
    NOISE,
    PODS_PLACED,
    SCENARIOS,
    SERVICES,
    STALE_S,
    STORAGE,
    USUAL,
    WORK_MS,
    Disturbance,
    draw_cluster,
    mean_wait_ms,
)
from leadline_experiments.result import Figure, Progress, Result, Row, Series, Setting

CLUSTERS = 36
_HALF_UNKNOWN = next(each for each in DISTURBANCES if each.unknown)
_WAIT, _MORE = "mean wait of a request, ms", "longer than {}, %"
_SETTINGS: Mapping[str, Setting] = {
    "leadline": Setting("its default options, everywhere", "chosen"),
    "the papers' methods": Setting("as in their own experiments", "chosen"),
    "draws": Setting(
        f"{papers.DRAWS} of Infrastructure Aware's 12, {papers.SCALING_RUNS} of the response "
        f"time's, with steps of a fifth of the length for web; {papers.RUNS} of the others, of "
        f"KubeDSM the first {papers.RUNS} runs of {', '.join(papers.LOADS)}",
        "chosen",
    ),
    "as good": Setting(
        f"within {AS_GOOD_PERCENT:g} % of the paper's method, or within the 95 % interval of the "
        "difference over the draws",
        "chosen",
    ),
    "boards": Setting(
        f"{BOARDS} of {CORES} cores and {GIB} GiB, and a master, {CLUSTERS} clusters of each "
        f"kind. {ALIKE}: no two differ. start: links to the registry of 5 to 100 Mbit/s, images "
        "that share layers, and half of the services are Jobs. storage: starts take 0.6 to 2.5 s "
        "on boards with NVMe, and 2 to 4 times as long on the half with SD cards; all images are "
        "there, and half of the services are Jobs of 0.5 to 5 s, which end before the next pod "
        "comes; the controller saw at most 8 starts of each service on each class. work: 5 to 90 "
        "% of the CPU in use, and three classes of boards. memory: four in ten with 85 to 97 % in "
        "use. users: up to 113 ms apart, with links of 5 to 94 Mbit/s. peers: as far apart, and "
        "services with a peer on a board. risk: loads as for work, and half of the readings "
        "unknown. throttling: on three in ten work takes 1.2 to 3 times as long; half of these "
        "report their frequency. absence: three in ten restart 0.5 to 6 times an hour, at random, "
        f"and are away for 20 to 120 s. {MIXED}: all but these two and storage, without Jobs and "
        "with all readings",
        "chosen",
    ),
    "pods": Setting(
        f"{PODS_PLACED} of {SERVICES} services, one after the other, {APART_S:g} s apart. A "
        f"request takes {WORK_MS:g} ms, with work 100 to 400. What they request is not what they "
        f"use. A pod lives for {LIFE_S:g} s, and serves a request a second, or two with a peer",
        "chosen",
    ),
    "a wait": Setting(
        "by the rule's formula with the true values once all pods run, and without its risk; the "
        "mean over the pods, and of these the ratio to the other method's on the same cluster, "
        "the geometric mean over the clusters with its 95 % interval",
        "chosen",
    ),
    "readings": Setting(
        f"new ones before each pod, with noise of {NOISE:.0%} where nothing else is said. Old: "
        f"without the loads and pods of the last {STALE_S:g} s, in which a quarter of the boards "
        "got other loads. Wrong: drawn uniformly from all that can be read",
        "chosen",
    ),
}


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. The seed draws clusters, readings and ties."""
    ours: dict[str, Strategy] = {OURS: Leadline()}
    if strategy is not None:
        is_there = strategy.name in (*ours, KUBE)
        ours[f"{strategy.name} (joined)" if is_there else strategy.name] = strategy
    beside = {KUBE: KubeDefault(), **ours}
    trials = list(_ablations(beside))
    steps = len(papers.PARTS) * CLUSTERS + len(trials) * CLUSTERS
    steps += 2 * len(DISTURBANCES) * len(beside) * CLUSTERS
    done = count(1)

    def tick() -> None:
        progress(next(done) / steps)

    def part_done() -> None:
        for _ in range(CLUSTERS):
            tick()

    compared = list(papers.comparisons(ours, seed, part_done))
    without = {
        (scenario, name): _waits_ms(scenario, told, each, seed, tick)
        for scenario, told, name, each in trials
    }
    robust = {
        (scenario, told.name): {
            name: _waits_ms(scenario, told, each, seed, tick) for name, each in beside.items()
        }
        for scenario in (ALIKE, MIXED)
        for told in DISTURBANCES
    }
    left_out = {
        (scenario, name): Change.of(waits_ms, without[scenario, OURS])
        for (scenario, name), waits_ms in without.items()
    }
    beside_kube = {case: Change.of(each[OURS], each[KUBE]) for case, each in robust.items()}
    return Result(
        "leadline",
        "Leadline's own strategy, beside those of the papers",
        _SETTINGS,
        [
            *(row for each in compared for row in _paper_rows(each)),
            *_ablation_rows(without, left_out),
            *_robust_rows(robust),
        ],
        [
            *(paper_claim(each, OURS) for each in compared if each.claims),
            *term_claims(
                {each: left_out[each] for each in left_out if each[0] != STORAGE}, [*TERMS]
            ),
            *term_claims({(STORAGE, "start"): left_out[STORAGE, "start"]}, ["start"]),
            *robust_claims(beside_kube),
        ],
        list(_figures(robust, left_out)),
    )


def _ablations(
    beside: Mapping[str, Strategy],
) -> Iterator[tuple[str, Disturbance, str, Strategy]]:
    """Scenario, readings, name and strategy: all methods, and the rule without the term that the
    scenario is about; where it is about all of them, without each."""
    for scenario in SCENARIOS:
        told = _HALF_UNKNOWN if scenario == "risk" else USUAL
        for name, each in beside.items():
            yield scenario, told, name, each
        for term in TERMS:
            if term in SCENARIOS[scenario]:
                yield scenario, told, term, Leadline(without=term)


def _waits_ms(
    scenario: str, told: Disturbance, strategy: Strategy, seed: int, tick: Callable[[], None]
) -> Floats:
    """The mean wait on each cluster, shape (CLUSTERS,)."""
    found = []
    for number in range(seed * CLUSTERS, (seed + 1) * CLUSTERS):
        found.append(mean_wait_ms(strategy, draw_cluster(scenario, number), told, number))
        tick()
    return np.array(found)


def _paper_rows(comparison: papers.Comparison) -> Iterator[Row]:
    for name in (comparison.method, *(n for n in comparison.values if n != comparison.method)):
        labels = (comparison.paper, comparison.case, name, "", comparison.metric)
        yield Row(*labels, None, comparison.mean(name), is_headline=comparison.claims)


def _ablation_rows(
    waits_ms: Mapping[tuple[str, str], Floats], changes: Mapping[tuple[str, str], Change]
) -> Iterator[Row]:
    for (scenario, name), each in waits_ms.items():
        option = f"without={name}" if name in TERMS else ""
        labels = ("Ablations", f"boards: {scenario}", OURS if option else name, option)
        yield Row(*labels, _WAIT, None, float(each.mean()))
        if name != OURS:
            change = changes[scenario, name]
            yield Row(*labels, _MORE.format(OURS), None, change.mean)
            yield Row(*labels, f"{_MORE.format(OURS)}, at least (95 %)", None, change.low)


def _robust_rows(
    waits_ms: Mapping[tuple[str, str], Mapping[str, Floats]],
) -> Iterator[Row]:
    for (scenario, readings), by_method in waits_ms.items():
        case = f"boards: {scenario}, readings: {readings}"
        for name, each in by_method.items():
            labels = ("Robust", case, name, "")
            yield Row(*labels, _WAIT, None, float(each.mean()), is_headline=scenario == MIXED)
            if name != KUBE:
                change = Change.of(each, by_method[KUBE])
                yield Row(*labels, _MORE.format(KUBE), None, change.mean)
                yield Row(*labels, f"{_MORE.format(KUBE)}, at most (95 %)", None, change.high)


def _figures(
    robust: Mapping[tuple[str, str], Mapping[str, Floats]],
    left_out: Mapping[tuple[str, str], Change],
) -> Iterator[Figure]:
    readings = [each.name for each in DISTURBANCES]

    def means(name: str) -> Sequence[float]:
        return [float(robust[MIXED, each][name].mean()) for each in readings]

    bars = [Series(name, readings, means(name)) for name in (OURS, KUBE)]
    title = "Waiting time by what is wrong with the readings"
    yield Figure("leadline-robust", title, "readings", _WAIT, "bars", bars)
    own = [Series("its own boards", [*TERMS], [left_out[term, term].mean for term in TERMS])]
    title = "What each term of the rule is worth"
    yield Figure("leadline-without", title, "without", "longer wait, %", "bars", own)

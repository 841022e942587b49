"""The DACS paper's experiments (Section 7): the pods on each node of two clusters (Fig. 3(a) and
4(a)), their delays (Fig. 3 and 4, (b) to (d)), and the completion times (Tables 6 and 7).

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from leadline_controller.framework.cycle import Strategy

from leadline_experiments.dacs import simulation
from leadline_experiments.dacs.claims import COMPLETION_S, COUNTS, claims, comparable_counts, label
from leadline_experiments.dacs.simulation import (
    ITERATIONS,
    RUNS,
    TABLE_KEYS,
    WORKERS,
    Outcome,
    ScenarioResult,
    optimality_gaps,
    run_methods,
)
from leadline_experiments.optimum import study
from leadline_experiments.result import Figure, Progress, Result, Row, Series, Setting

_SCENARIOS = (simulation.SCENARIO_1, simulation.SCENARIO_2)
_RANKS = ("the fullest node", "the second node", "the third node")
CALIBRATION: Mapping[str, str] = {
    **simulation.CALIBRATION,
    "runs": f"{RUNS} of each method, averaged; a tie is broken anew in each",
}


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. The seed breaks ties."""
    results = []
    for scenario in _SCENARIOS:
        results.append(run_methods(scenario, seed))
        progress(scenario.number / 4)
    return Result(
        "dacs",
        "DACS, Section 7",
        {name: Setting(text, "chosen") for name, text in CALIBRATION.items()},
        [
            *(row for each in results for row in (*_rows(each), *_completion_rows(each))),
            *(row for scenario in _SCENARIOS for row in optimality_gaps(scenario, seed)),
            *study.dacs_rows(seed, lambda share: progress(0.5 + share / 2)),
        ],
        [claim for each in results for claim in claims(each)],
        [figure for each in results for figure in _figures(each)],
    )


def _rows(result: ScenarioResult) -> Iterator[Row]:
    scenario, mean = result.scenario, result.mean
    for key, papers in COUNTS.items():
        paper = papers[scenario.number - 1]
        places = _RANKS if paper.any_node else WORKERS
        ours = iter(comparable_counts(result, key, paper))
        for place, pods in zip(places, paper.pods, strict=True):
            if pods is not None:
                labels = (f"{scenario.figure}(a)", scenario.title, *key, f"pods on {place}")
                yield Row(*labels, pods, next(ours))
    for part, load in zip("bc", ITERATIONS, strict=True):
        for key in TABLE_KEYS:
            for worker in (*WORKERS, None):
                ours_s = mean(key, Outcome.processing_s, load, worker)
                metric = f"processing_s on {worker or 'all nodes'}"
                yield Row(f"{scenario.figure}({part})", load, *key, metric, None, ours_s)
    for key in TABLE_KEYS:
        ours_s = mean(key, Outcome.network_s)
        yield Row(f"{scenario.figure}(d)", "all users", *key, "network_s", None, ours_s)


def _completion_rows(result: ScenarioResult) -> Iterator[Row]:
    """Both readings of Tables 6 and 7 beside the paper's value; see simulation.CALIBRATION."""
    scenario = result.scenario
    for at, load in enumerate(ITERATIONS):
        for key in TABLE_KEYS:
            papers_s = COMPLETION_S.get(key)
            paper_s = None if papers_s is None else papers_s[scenario.number - 1][at]
            for value in (Outcome.completion_s, Outcome.last_completion_s):
                ours_s = result.mean(key, value, load)
                yield Row(scenario.table, load, *key, value.__name__, paper_s, ours_s)


def _figures(result: ScenarioResult) -> Iterator[Figure]:
    scenario, mean = result.scenario, result.mean
    number = scenario.figure.removeprefix("Fig. ")
    methods = [label(key) for key in TABLE_KEYS]

    def bars(part: str, about: str, unit: str, series: Mapping[str, Sequence[float]]) -> Figure:
        name, title = f"dacs-fig{number}{part}", f"Fig. {number}({part}), {scenario.title}: {about}"
        bars = [Series(label, methods, values) for label, values in series.items()]
        return Figure(name, title, "", unit, "bars", bars)

    def by_worker(value: Callable[..., float], *of: str) -> dict[str, list[float]]:
        return {w: [mean(key, value, *of, w) for key in TABLE_KEYS] for w in WORKERS}

    yield bars("a", "pods on each node", "pods", by_worker(Outcome.pods))
    for part, load in zip("bc", ITERATIONS, strict=True):
        delays = by_worker(Outcome.processing_s, load)
        yield bars(part, f"processing delay, {load}", "processing delay (s)", delays)
    network = {"all pods": [mean(key, Outcome.network_s) for key in TABLE_KEYS]}
    yield bars("d", "network delay", "network delay (s)", network)

"""The DACS paper's experiments (Section 7): the pods on each node of two clusters (Fig. 3(a) and
4(a)), their delays (Fig. 3 and 4, (b) to (d)), and the completion times (Tables 6 and 7).

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".
"""

from collections.abc import Iterator, Mapping, Sequence

from leadline_experiments.dacs import optimality_gap, scenarios, trials
from leadline_experiments.dacs.claims import LABELS, claims, comparable_counts, label
from leadline_experiments.dacs.methods import RUNS, TABLE_KEYS, ScenarioResult, run_methods
from leadline_experiments.dacs.paper_values import COMPLETION_S, COUNTS
from leadline_experiments.dacs.scenarios import WORKERS
from leadline_experiments.dacs.trials import ITERATIONS
from leadline_experiments.optimum import study
from leadline_experiments.result import Figure, Progress, Result, Row, Series

_PAPER = "DACS, Section 7"
_RANKS = ("the fullest node", "the second node", "the third node")
CALIBRATION: Mapping[str, str] = {
    **scenarios.CALIBRATION,
    **trials.CALIBRATION,
    "runs": f"{RUNS} of each method, averaged; a tie is broken anew in each",
}


def run(seed: int, progress: Progress) -> Result:
    """Run the whole experiment; see Experiment. The seed breaks ties."""
    results = []
    for number, scenario in enumerate((scenarios.SCENARIO_1, scenarios.SCENARIO_2), start=1):
        results.append(run_methods(scenario, seed))
        progress(number / 4)
    return Result(
        "dacs",
        _PAPER,
        CALIBRATION,
        [
            *(row for each in results for row in _rows(each)),
            *optimality_gap.rows(seed),
            *study.dacs_rows(seed, lambda share: progress(0.5 + share / 2)),
        ],
        [claim for each in results for claim in claims(each)],
        [figure for each in results for figure in _figures(each)],
    )


def _rows(result: ScenarioResult) -> Iterator[Row]:
    yield from _count_rows(result)
    yield from _delay_rows(result)
    yield from _completion_rows(result)


def _count_rows(result: ScenarioResult) -> Iterator[Row]:
    title = result.scenario.title
    table = f"{LABELS[title].figure}(a)"
    for key, paper in COUNTS[title].items():
        places = _RANKS if paper.any_node else WORKERS
        ours = iter(comparable_counts(result, key, paper))
        for place, pods in zip(places, paper.pods, strict=True):
            if pods is not None:
                yield Row(table, title, *key, f"pods on {place}", pods, next(ours))


def _delay_rows(result: ScenarioResult) -> Iterator[Row]:
    figure = LABELS[result.scenario.title].figure
    for part, load in zip("bc", ITERATIONS, strict=True):
        for key in TABLE_KEYS:
            for worker in (*WORKERS, None):
                ours_s = result.processing_s(key, load, worker)
                metric = f"processing_s on {worker or 'all nodes'}"
                yield Row(f"{figure}({part})", load, *key, metric, None, ours_s)
    for key in TABLE_KEYS:
        yield Row(f"{figure}(d)", "all users", *key, "network_s", None, result.network_s(key))


def _completion_rows(result: ScenarioResult) -> Iterator[Row]:
    """Both readings of the tables beside the paper's value; see trials.CALIBRATION."""
    title = result.scenario.title
    for at, load in enumerate(ITERATIONS):
        for key in TABLE_KEYS:
            paper = COMPLETION_S[title].get(key)
            paper_s = None if paper is None else paper[at]
            labels = (LABELS[title].table, load, *key)
            yield Row(*labels, "completion_s", paper_s, result.completion_s(key, load))
            yield Row(*labels, "last_completion_s", paper_s, result.last_completion_s(key, load))


def _figures(result: ScenarioResult) -> Iterator[Figure]:
    title = result.scenario.title
    number = LABELS[title].figure.removeprefix("Fig. ")
    methods = [label(key) for key in TABLE_KEYS]

    def bars(part: str, about: str, unit: str, series: Sequence[Series]) -> Figure:
        name = f"dacs-fig{number}{part}"
        return Figure(name, f"Fig. {number}({part}), {title}: {about}", "", unit, "bars", series)

    counts = [
        Series(worker, methods, [result.pods(key, at) for key in TABLE_KEYS])
        for at, worker in enumerate(WORKERS)
    ]
    yield bars("a", "pods on each node", "pods", counts)
    for part, load in zip("bc", ITERATIONS, strict=True):
        delays = [
            Series(worker, methods, [result.processing_s(key, load, worker) for key in TABLE_KEYS])
            for worker in WORKERS
        ]
        yield bars(part, f"processing delay, {load}", "processing delay (s)", delays)
    network = [Series("all pods", methods, [result.network_s(key) for key in TABLE_KEYS])]
    yield bars("d", "network delay", "network delay (s)", network)

"""The DACS paper's experiments (Section 7): where the pods of two clusters go (Fig. 3(a) and
4(a)), what delays they have there (Fig. 3 and 4, (b) to (d)), and how long all their work takes
(Tables 6 and 7).

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".
"""

from collections.abc import Iterator, Mapping, Sequence

from leadline_experiments.dacs import optimality_gap, scenarios, trials
from leadline_experiments.dacs.claims import NAMES, claims, label, shown_counts
from leadline_experiments.dacs.methods import LISTED, RUNS, Found, run_methods
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
    """Run all of it; see Experiment. The seed breaks ties."""
    both = []
    for number, scenario in enumerate((scenarios.SCENARIO_1, scenarios.SCENARIO_2), start=1):
        both.append(run_methods(scenario, seed))
        progress(number / 4)
    distances = [
        *optimality_gap.rows(seed),
        *study.dacs_rows(seed, lambda share: progress(0.5 + share / 2)),
    ]
    return Result(
        "dacs",
        _PAPER,
        CALIBRATION,
        [*(row for found in both for row in _rows(found)), *distances],
        [claim for found in both for claim in claims(found)],
        [figure for found in both for figure in _figures(found)],
    )


def _rows(found: Found) -> Iterator[Row]:
    yield from _count_rows(found)
    yield from _delay_rows(found)
    yield from _completion_rows(found)


def _count_rows(found: Found) -> Iterator[Row]:
    title = found.scenario.title
    table = f"{NAMES[title].figure}(a)"
    for (name, option), printed in COUNTS[title].items():
        places = _RANKS if printed.any_node else WORKERS
        told = [
            (place, pods)
            for place, pods in zip(places, printed.pods, strict=True)
            if pods is not None
        ]
        ours = shown_counts(found, (name, option), printed)
        for (place, pods), count in zip(told, ours, strict=True):
            yield Row(table, title, name, option, f"pods on {place}", pods, count)


def _delay_rows(found: Found) -> Iterator[Row]:
    title = found.scenario.title
    figure = NAMES[title].figure
    for part, load in zip("bc", ITERATIONS, strict=True):
        for key in LISTED:
            for worker in (*WORKERS, None):
                ours_s = found.processing_s(key, load, worker)
                metric = f"processing_s on {worker or 'all nodes'}"
                yield Row(f"{figure}({part})", load, *key, metric, None, ours_s)
    for key in LISTED:
        yield Row(f"{figure}(d)", "all users", *key, "network_s", None, found.network_s(key))


def _completion_rows(found: Found) -> Iterator[Row]:
    """Both readings of the tables beside the paper's number; see trials.CALIBRATION."""
    title = found.scenario.title
    for at, load in enumerate(ITERATIONS):
        for key in LISTED:
            printed = COMPLETION_S[title].get(key)
            paper_s = None if printed is None else printed[at]
            where = (NAMES[title].table, load, *key)
            yield Row(*where, "completion_s", paper_s, found.completion_s(key, load))
            yield Row(*where, "last_completion_s", paper_s, found.last_completion_s(key, load))


def _figures(found: Found) -> Iterator[Figure]:
    title = found.scenario.title
    number = NAMES[title].figure.removeprefix("Fig. ")
    methods = [label(key) for key in LISTED]

    def bars(part: str, about: str, unit: str, series: Sequence[Series]) -> Figure:
        name = f"dacs-fig{number}{part}"
        return Figure(name, f"Fig. {number}({part}), {title}: {about}", "", unit, "bars", series)

    counts = [
        Series(worker, methods, [found.pods(key, at) for key in LISTED])
        for at, worker in enumerate(WORKERS)
    ]
    yield bars("a", "pods on each node", "pods", counts)
    for part, load in zip("bc", ITERATIONS, strict=True):
        delays = [
            Series(worker, methods, [found.processing_s(key, load, worker) for key in LISTED])
            for worker in WORKERS
        ]
        yield bars(part, f"processing delay, {load}", "processing delay (s)", delays)
    network = [Series("all pods", methods, [found.network_s(key) for key in LISTED])]
    yield bars("d", "network delay", "network delay (s)", network)

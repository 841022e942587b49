"""The DACS paper's experiments (Section 7): the pods on each node of two clusters (Fig. 3(a) and
4(a)), their delays (Fig. 3 and 4, (b) to (d)), and the completion times (Tables 6 and 7).

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes".
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from leadline_controller.framework.cycle import Strategy

from leadline_experiments.dacs.claims import (
    BASELINES,
    COMPLETION_S,
    COUNTS,
    FASTEST,
    claims,
    comparable_counts,
    has_the_papers_counts,
    label,
)
from leadline_experiments.dacs.methods import (
    RUNS,
    Key,
    ScenarioResult,
    methods_with,
    optimality_gaps,
    orders_of_users,
    run_methods,
    runs_in_order,
)
from leadline_experiments.dacs.settings import SETTINGS
from leadline_experiments.dacs.simulation import (
    ITERATIONS,
    SCENARIO_1,
    SCENARIO_2,
    WORKERS,
    Outcome,
    Scenario,
)
from leadline_experiments.optimum import study
from leadline_experiments.result import Figure, Progress, Result, Row, Series

_RANKS = ("the fullest node", "the second node", "the third node")


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. The seed breaks ties."""
    results: list[ScenarioResult] = []
    rows: list[Row] = []
    methods = methods_with(strategy)
    for scenario in (SCENARIO_1, SCENARIO_2):
        result = run_methods(scenario, methods, seed, RUNS)
        results.append(result)
        for part in (_count_rows, _delay_rows, _completion_rows):
            rows += part(result)
        rows += _order_rows(result, seed)
        progress(scenario.number / 4)
    for result in results:
        rows += optimality_gaps(result.scenario, methods, seed)
    rows += study.dacs_rows(seed, lambda share: progress(0.5 + share / 2))
    return Result(
        "dacs",
        "DACS, Section 7",
        SETTINGS,
        rows,
        [claim for each in results for claim in claims(each)],
        [figure for each in results for figure in _figures(each)],
    )


def _count_rows(result: ScenarioResult) -> Iterator[Row]:
    scenario, mean = result.scenario, result.mean
    for key in result.runs:
        labels = (f"{scenario.figure}(a)", scenario.title, *key)
        if key in COUNTS:
            paper = COUNTS[key][scenario.number - 1]
            places = _RANKS if paper.any_node else WORKERS
            ours = iter(comparable_counts(result, key, paper))
            for where, pods in zip(places, paper.pods, strict=True):
                if pods is not None:
                    yield Row(*labels, f"pods on {where}", pods, next(ours))
        else:
            for worker in WORKERS:
                yield Row(*labels, f"pods on {worker}", None, mean(key, Outcome.pods, worker))
            if not result.is_whole(key):
                yield Row(*labels, study.PENDING, None, mean(key, Outcome.pods, None))


def _delay_rows(result: ScenarioResult) -> Iterator[Row]:
    scenario, mean = result.scenario, result.mean
    for part, load in zip("bc", ITERATIONS, strict=True):
        for key in _whole(result):
            for worker in (*WORKERS, None):
                ours_s = mean(key, Outcome.processing_s, load, worker)
                metric = f"processing_s on {worker or 'all nodes'}"
                yield Row(f"{scenario.figure}({part})", load, *key, metric, None, ours_s)
    for key in _whole(result):
        ours_s = mean(key, Outcome.network_s)
        yield Row(f"{scenario.figure}(d)", "all users", *key, "network_s", None, ours_s)


def _whole(result: ScenarioResult) -> Sequence[Key]:
    """The lines of the tables without the methods that leave pods pending: fewer pods are
    faster."""
    return [key for key in result.table_keys if result.is_whole(key)]


def _completion_rows(result: ScenarioResult) -> Iterator[Row]:
    """Both readings of Tables 6 and 7 beside the paper's value; see SETTINGS."""
    scenario = result.scenario.number - 1
    best: Key = ("dacs", FASTEST[scenario][0])
    for at, load in enumerate(ITERATIONS):
        for key in _whole(result):
            papers_s = COMPLETION_S.get(key)
            paper_s = None if papers_s is None else papers_s[scenario][at]
            is_headline = paper_s is not None and load == "high load" and key[1] in ("", best[1])
            for value in (Outcome.completion_s, Outcome.last_completion_s):
                labels = (result.scenario.table, load, *key, value.__name__)
                ours_s = result.mean(key, value, load)
                is_shown = is_headline and value is Outcome.completion_s
                yield Row(*labels, paper_s, ours_s, is_headline=is_shown)


def _order_rows(result: ScenarioResult, seed: int) -> Iterator[Row]:
    """In how many of the 24 orders of the users' nodes the counts are the paper's, for the methods
    that look at users; and DACS' and TSRA's network delays are as it says."""
    scenario, metric = result.scenario, "orders of 24 with the paper's counts"
    table = f"{scenario.figure}(a), each order of the users"
    by_order = [runs_in_order(order, seed) for order in orders_of_users(scenario)]
    for key in by_order[0]:
        orders = sum(
            all(has_the_papers_counts(scenario, key, run_) for run_ in runs[key])
            for runs in by_order
        )
        yield Row(table, scenario.title, *key, metric, None, orders)
    less: Counter[str] = Counter()
    for runs in by_order:
        users = next(iter(runs.values()))[0].users
        tsra_ms, *alphas_ms = (_mean_rtt_ms(scenario, of, users) for of in runs.values())
        others_ms = [
            _mean_rtt_ms(scenario, result.of(key), users) for key in BASELINES if key[0] != "tsra"
        ]
        less["dacs"] += max(alphas_ms) < tsra_ms
        less["tsra"] += tsra_ms < min(others_ms)
    for name, than in (("dacs", "tsra, whatever alpha"), ("tsra", "the other four")):
        metric = f"orders of 24 with a lower network delay than {than}"
        labels = (f"{scenario.figure}(d), each order of the users", scenario.title)
        yield Row(*labels, name, "", metric, None, less[name])


def _mean_rtt_ms(scenario: Scenario, runs: Sequence[Outcome], users: Sequence[str]) -> float:
    """The average round trip between pods and users; all else in the network delay is the same for
    every method."""
    return fmean(
        scenario.rtt_between_ms(node, user)
        for run_ in runs
        for node, user in zip(run_.nodes, users, strict=True)
        if node is not None
    )


def _figures(result: ScenarioResult) -> Iterator[Figure]:
    scenario, mean = result.scenario, result.mean
    number = scenario.figure.removeprefix("Fig. ")
    keys = _whole(result)
    methods = [label(key) for key in keys]

    def bars(part: str, about: str, unit: str, series: Mapping[str, Sequence[float]]) -> Figure:
        name, title = f"dacs-fig{number}{part}", f"Fig. {number}({part}), {scenario.title}: {about}"
        bars = [Series(label, methods, values) for label, values in series.items()]
        return Figure(name, title, "", unit, "bars", bars)

    def by_worker(value: Callable[..., float], *of: str) -> dict[str, list[float]]:
        return {w: [mean(key, value, *of, w) for key in keys] for w in WORKERS}

    yield bars("a", "pods on each node", "pods", by_worker(Outcome.pods))
    for part, load in zip("bc", ITERATIONS, strict=True):
        delays = by_worker(Outcome.processing_s, load)
        yield bars(part, f"processing delay, {load}", "processing delay (s)", delays)
    network = {"all pods": [mean(key, Outcome.network_s) for key in keys]}
    yield bars("d", "network delay", "network delay (s)", network)

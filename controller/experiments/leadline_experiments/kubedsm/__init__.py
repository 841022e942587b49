"""KubeDSM's experiments: edge ratios over load and spread (Fig. 4-5), their deviation over the
services (Fig. 8-9), the variants (Fig. 10) and the QoS settings (Fig. 11).

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6. Its figures print no numbers, but its authors publish the logs that they were
drawn from. Each logged run is replayed: the same pods come and go on nodes of the same sizes, and
Leadline's strategy places them. So in the tables of figures the paper's column has the logs' value.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from leadline_controller.framework.cycle import Strategy

from leadline_experiments.kubedsm.claims import RATIO_TOLERANCE_POINTS, claims, gains
from leadline_experiments.kubedsm.logs import K8S_2024
from leadline_experiments.kubedsm.runs import (
    ALL,
    AVERAGED,
    AVERAGED_VARIED,
    BY_LOAD,
    BY_SPREAD,
    CHANGES,
    JOINING,
    K8S,
    KUBEDSM,
    LIMITS,
    LOGGED_VARIANTS,
    LOGGED_VARIED,
    METHODS,
    MOVE_S,
    PULL_S,
    SLOW_S,
    TARGETS,
    VARIANTS_RULES,
    VARIED,
    Runs,
    logged_loads,
    with_rules,
)
from leadline_experiments.optimum import study
from leadline_experiments.result import Figure, Progress, Result, Row, Series, Setting

_RATIO = "edge_ratio_percent"
_DEVIATION = "edge_ratio_deviation_points"
_FIGURES = (("Fig. 4", "Fig. 8", BY_LOAD, 80.0), ("Fig. 5", "Fig. 9", BY_SPREAD, 78.0))
_SETTINGS = {
    "load": Setting("the pods that the authors logged, ten runs of each workload", "authors"),
    "K8S in Fig. 4-9": Setting(
        "logs of February 2025, as for SEF, BEF and CF: with them the text's 6 and 9 of 11 "
        "workloads (Fig. 8-9) come out. In Fig. 10 those of October 2024, with which its 8 % comes "
        "out",
        "authors",
    ),
    "edge ratio": Setting(
        "mean over the services, of ten runs at each sample and then over time, as the authors' "
        "program averages; with it the text's 80 % and 78 % come out of the logs",
        "authors",
    ),
    "nodes": Setting(
        "edge 5, 4 and 5 cores with 5, 4 and 7 GiB, cloud 17 cores and 22 GiB: Table 4 with its "
        "columns exchanged",
        "authors",
    ),
    "other pods": Setting(
        "half a core and 0.6 GiB of each node, so that the edge holds the 4, 3 and 4 cores and the "
        "4, 3 and 6 units of 950 MiB that are seen in the logs",
        "authors",
    ),
    "suggestions": Setting(
        "one a second, 15 between two samples; moves take no time unless that is what is changed",
        "authors",
    ),
    "what a move takes": Setting(
        f"{MOVE_S:g} s in which its pod is away, one after the other, and {PULL_S:g} s more where "
        "a node does not have the service's image yet: medians of the lab with real kubelets, "
        f"20 MB over 100 Mbit/s. {SLOW_S:g} s for services that end and start slowly",
        "chosen",
    ),
    "MidMig": Setting("M_C2E = 2, M_ER = 1, from the preprint; NoMig is 0 and 0", "authors"),
    "workload of Fig. 10-11": Setting("1.4_0.4, as the logs' ratios say", "authors"),
    "SEF, BEF, CF": Setting("keep_cores and keep_gib without the other pods", "authors"),
    "K8S": Setting("kube-default, which prefers the edge whatever the score", "paper"),
    "chance": Setting(
        f"methods that never move a pod are the mean of {AVERAGED} draws of each run, on 1.4_0.4 "
        f"of {AVERAGED_VARIED}; the others have one",
        "chosen",
    ),
    "arrival": Setting("new pods of a sample come in random order", "chosen"),
    "scale-down": Setting(
        "as a ReplicaSet's since Kubernetes 1.22: of the node with most of the service's pods, the "
        "youngest by powers of two of the age, then any. Where the worst replica goes first, the "
        "strategy's score of each replica's node comes before that, as with a pod deletion cost",
        "chosen",
    ),
    "a pod that fits nowhere": Setting("counts as one that is not on the edge", "chosen"),
    "a, b, gamma": Setting("1, 0.1 and 10, without unit", "chosen"),
    "an edge ratio holds": Setting(
        f"within {RATIO_TOLERANCE_POINTS:g} points; the authors' two series with K8S are 3.3 and "
        "8.0 points apart",
        "chosen",
    ),
}


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. A strategy that joins is replayed on the loads that
    were logged with KubeDSM."""
    runs = Runs(seed, lambda share: progress(share * 0.8), strategy)
    optima = [
        *_optimum_rows(runs),
        *study.kubedsm_counts(seed),
        *study.kubedsm_rows(seed, lambda share: progress(0.85 + share * 0.15)),
    ]
    joined = [] if strategy is None else list(_joined_rows(runs, strategy.name))
    return Result(
        "kubedsm",
        "KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted "
        "Edge Clusters",
        _SETTINGS,
        [
            *_printed_rows(runs),
            *_figure_rows(runs),
            *_variant_rows(runs),
            *_rules_rows(runs),
            *_change_rows(runs),
            *_run_rows(runs),
            *joined,
            *optima,
        ],
        claims(runs),
        list(_figures(runs)),
    )


def _printed_rows(runs: Runs) -> Iterator[Row]:
    """The values that the paper's text prints."""
    table = "Printed in the text"
    for figure, _, loads, paper in _FIGURES:
        ours, best = runs.ratio(loads, KUBEDSM), runs.best_ratio(loads, KUBEDSM)
        yield Row(table, figure, KUBEDSM, "", _RATIO, paper, ours, best, is_headline=True)
    for figure, says, paper, ours, logged in gains(runs):
        yield Row(table, figure, KUBEDSM, says, "gain_percent", paper, ours, is_headline=True)
        yield Row(table, figure, KUBEDSM, says, "gain_percent of the logs", paper, logged)


def _figure_rows(runs: Runs) -> Iterator[Row]:
    for ratios, deviations, loads, _ in _FIGURES:
        for name in METHODS:
            for load in loads:
                yield _ratio_row(runs, _beside_logs(ratios), [load], name, name)
            is_headline = ratios == "Fig. 4"
            yield _ratio_row(runs, _beside_logs(ratios), loads, name, name, is_headline=is_headline)
        for name in METHODS:
            for load in loads:
                logged, ours = runs.logged_deviation(load, name), runs.deviation(load, name)
                yield Row(_beside_logs(deviations), load, name, "", _DEVIATION, logged, ours)


def _variant_rows(runs: Runs) -> Iterator[Row]:
    """Fig. 10 and 11, with the workload 1.3_0.4 that the authors logged too."""
    for load in LOGGED_VARIED:
        for name, (m_c2e, m_er) in LIMITS.items():
            option = f"{name}: m_c2e={m_c2e} m_er={m_er}"
            yield _ratio_row(runs, _beside_logs("Fig. 10"), [load], name, KUBEDSM, option)
            yield _moves_row(runs, load, name, option)
        yield _ratio_row(
            runs, _beside_logs("Fig. 10"), [load], K8S_2024, K8S, "logs of October 2024"
        )
    for setting in TARGETS:
        logged_shares = runs.logged_by_service(VARIED, setting)
        for service, ours in runs.by_service(VARIED, setting).items():
            case, logged = f"{VARIED}, deployment {service}", logged_shares[service]
            yield Row(_beside_logs("Fig. 11"), case, KUBEDSM, setting, _RATIO, logged, ours)


def _rules_rows(runs: Runs) -> Iterator[Row]:
    """Fig. 10 with other rules for pods that leave and move."""
    for variant, rules in VARIANTS_RULES:
        name = with_rules(variant, rules)
        table = f"{_beside_logs('Fig. 10')}, other rules"
        yield _ratio_row(runs, table, [VARIED], name, KUBEDSM, name)
        yield _moves_row(runs, VARIED, name, name)


def _moves_row(runs: Runs, load: str, name: str, option: str) -> Row:
    moves = runs.migrations(load, name)
    return Row("Moves in a run", load, KUBEDSM, option, "migrations", None, moves)


def _change_rows(runs: Runs) -> Iterator[Row]:
    """What comes out if one thing is changed, beside the same loads without the change."""
    others = {with_rules(*each) for each in VARIANTS_RULES}
    for name, change in CHANGES.items():
        for load in change.workloads:
            if name in others and load == VARIED:  # in a table of their own
                continue
            best = runs.best_ratio([load], name)
            strategy = change.method if change.method in METHODS else KUBEDSM
            unchanged, ours = runs.ratio([load], change.method), runs.ratio([load], name)
            table = "One thing changed"
            yield Row(table, load, strategy, name, _RATIO, None, ours, best)
            yield Row(table, load, strategy, name, f"{_RATIO} unchanged", None, unchanged, best)


def _beside_logs(figure: str) -> str:
    return f"{figure}, paper: the authors' logs"


def _ratio_row(
    runs: Runs,
    table: str,
    loads: Sequence[str],
    name: str,
    strategy: str,
    option: str = "",
    *,
    is_headline: bool = False,
) -> Row:
    """The edge ratio beside the logs and the optimum. name: see Runs."""
    case = loads[0] if len(loads) == 1 else "average"
    ours, logged = runs.ratio(loads, name), runs.logged_ratio(loads, name)
    best = runs.best_ratio(loads, name)
    return Row(table, case, strategy, option, _RATIO, logged, ours, best, is_headline)


def _run_rows(runs: Runs) -> Iterator[Row]:
    """The replay of every single run beside its log."""
    every = tuple(dict.fromkeys(ALL))
    cases = [(name, every) for name in (*METHODS, K8S_2024)]
    cases += [(name, tuple(logged_loads(name))) for name in LOGGED_VARIANTS]
    for name, loads in cases:
        strategy = name if name in METHODS else K8S if name == K8S_2024 else KUBEDSM
        option = "" if name in METHODS else name
        differences = runs.run_differences(loads, name)
        size = np.abs(differences)
        case = f"{differences.size} runs"
        for metric, value in (
            ("mean difference, points", differences.mean()),
            ("mean distance, points", size.mean()),
            ("largest distance, points", size.max()),
            ("runs within 5 points", (size <= RATIO_TOLERANCE_POINTS).sum()),
        ):
            yield Row("Run by run", case, strategy, option, metric, None, float(value))


def _joined_rows(runs: Runs, strategy: str) -> Iterator[Row]:
    for figure, _, loads, _ in _FIGURES:
        for case in (*([load] for load in loads), loads):
            name = case[0] if len(case) == 1 else "average"
            ours, best = runs.ratio(case, JOINING), runs.best_ratio(case, JOINING)
            yield Row(f"{figure}, joined", name, strategy, JOINING, _RATIO, None, ours, best)


def _optimum_rows(runs: Runs) -> Iterator[Row]:
    """QoS at the samples, on average, beside the highest of any placement (Eq. 9)."""
    for name in METHODS:
        for load in dict.fromkeys(ALL):
            ours, best = runs.qualities(load, name)
            yield Row("Optimum, Eq. 9", load, name, "", study.QOS, None, ours, best)


def _figures(runs: Runs) -> Iterator[Figure]:
    ratio, deviation = "edge ratio, %", "deviation, percentage points"
    axes = (
        (BY_LOAD, "load", 0, "spread 0.4"),
        (BY_SPREAD, "spread", 1, "load 1.5"),
    )
    for number, (loads, axis, part, fixed) in zip("45", axes, strict=True):
        x = [float(load.split("_")[part]) for load in loads]
        series = [Series(name, x, [runs.ratio([load], name) for load in loads]) for name in METHODS]
        logged = [runs.logged_ratio([load], KUBEDSM) for load in loads]
        series.append(Series("kubedsm, logged", x, logged))
        best = [runs.best_ratio([load], KUBEDSM) for load in loads]
        series.append(Series("optimum", x, best))
        title = f"Edge ratio over {axis}, {fixed}"
        yield Figure(f"kubedsm-fig{number}", title, axis, ratio, "lines", series)
    for number, (loads, axis, part, _) in zip("89", axes, strict=True):
        x = [float(load.split("_")[part]) for load in loads]
        series = [
            Series(name, x, [runs.deviation(load, name) for load in loads]) for name in METHODS
        ]
        title = "Deviation over the deployments"
        yield Figure(f"kubedsm-fig{number}", title, axis, deviation, "lines", series)
    variants = {K8S: K8S_2024, **{name: name for name in LIMITS}}
    series = [
        Series("replayed", list(variants), [runs.ratio([VARIED], n) for n in variants.values()]),
        Series(
            "logged", list(variants), [runs.logged_ratio([VARIED], n) for n in variants.values()]
        ),
    ]
    yield Figure("kubedsm-fig10", "Variants", "variant", ratio, "bars", series)
    settings = {setting: runs.by_service(VARIED, setting) for setting in TARGETS}
    series = [Series(name, list(each), list(each.values())) for name, each in settings.items()]
    yield Figure("kubedsm-fig11", "QoS settings", "deployment", ratio, "bars", series)

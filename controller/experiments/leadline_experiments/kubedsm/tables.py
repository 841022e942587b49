"""The figures of the KubeDSM paper as rows and plots. The paper's figures are lost; the values that
its text states stand beside ours."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leadline_experiments.kubedsm.methods import K8S, KUBEDSM, SETTINGS, VARIANTS
from leadline_experiments.kubedsm.runs import ALL, AS_REPLICA_SET, COMPARED, Runs
from leadline_experiments.kubedsm.setting import (
    BY_LOAD,
    BY_SPREAD,
    ROUNDED_UP,
    SERVICES,
    Scenario,
)
from leadline_experiments.result import Figure, Row, Series, gain_percent

GAIN = "gain_percent"
BASELINES = (K8S, "sef", "bef", "cloud-first")
RATIO, DEVIATION, MIGRATIONS = "edge_ratio_percent", "edge_ratio_deviation_points", "migrations"
LIKE_REPLICA_SET, PODS_ROUNDED_UP = "scale-down as a ReplicaSet", "pods rounded up"
_BY_FIGURE = (
    ("Fig. 4", "Fig. 8", BY_LOAD, 80.0),
    ("Fig. 5", "Fig. 9", BY_SPREAD, 78.0),
)


def rows(runs: Runs) -> Sequence[Row]:
    """All rows."""
    return (
        *_comparison_rows(runs),
        *_variant_rows(runs),
        *_setting_rows(runs),
        *_alternative_rows(runs),
        *_gain_rows(runs),
    )


def _comparison_rows(runs: Runs) -> Iterator[Row]:
    for ratios, deviations, scenarios, paper in _BY_FIGURE:
        for name in COMPARED:
            for each in scenarios:
                yield _ratio_row(runs, ratios, [each], name)
            paper_ratio = paper if name == KUBEDSM else None
            yield _ratio_row(runs, ratios, scenarios, name, paper=paper_ratio)
        for name in COMPARED:
            for each in scenarios:
                ours = runs.deviation_percent(each, name)
                yield Row(deviations, each.name, name, "", DEVIATION, None, ours)


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
    return Row(table, case, strategy, option, RATIO, paper, ours, best)


class EdgeRatioGain(NamedTuple):
    """How much higher the edge ratio of `better` is than that of `worse`, in percent of the
    latter."""

    table: str
    scenarios: Sequence[Scenario]
    better: str
    worse: str
    paper: float
    ours: float


def gains(runs: Runs) -> Iterator[EdgeRatioGain]:
    """All gains that the paper states."""

    def gain(
        table: str, scenarios: Sequence[Scenario], better: str, worse: str, paper: float
    ) -> EdgeRatioGain:
        ratios = (runs.ratio_percent(scenarios, name) for name in (better, worse))
        return EdgeRatioGain(table, scenarios, better, worse, paper, -gain_percent(*ratios))

    for table, scenarios, paper in (("Fig. 4", BY_LOAD, 13.4), ("Fig. 5", BY_SPREAD, 18.9)):
        best = max(BASELINES, key=lambda name: runs.ratio_percent(scenarios, name))
        yield gain(table, scenarios, KUBEDSM, best, paper)
    yield gain("Fig. 10", ALL, "NoMig", K8S, 8.0)
    yield gain("Fig. 10", ALL, "Original", "NoMig", 14.9)
    yield gain("Fig. 10", ALL, "MidMig", "Original", 5.1)
    ranked = sorted(VARIANTS, key=lambda name: runs.ratio_percent(ALL, name))
    yield gain("Fig. 10", ALL, ranked[-1], ranked[0], 20.8)


def _gain_rows(runs: Runs) -> Iterator[Row]:
    for gain in gains(runs):
        option = _option(gain.better) if gain.better in VARIANTS else ""
        case = f"average, over {gain.worse}"
        yield Row(gain.table, case, KUBEDSM, option, GAIN, gain.paper, gain.ours)


def _option(variant: str) -> str:
    """A variant with its limits."""
    m_c2e, m_er = VARIANTS[variant]
    return f"{variant}: m_c2e={m_c2e} m_er={m_er}"


def _variant_rows(runs: Runs) -> Iterator[Row]:
    for variant in VARIANTS:
        yield _ratio_row(runs, "Fig. 10", ALL, variant, _option(variant))
        moved = sum(runs.migrations(each, variant) for each in ALL) / len(ALL)
        yield Row(
            *("Fig. 10", "average of a run", KUBEDSM, _option(variant)),
            *(MIGRATIONS, None, moved),
        )


def _setting_rows(runs: Runs) -> Iterator[Row]:
    for setting in SETTINGS:
        for service, ours in shares(runs, BY_LOAD, setting).items():
            yield Row("Fig. 11", f"deployment {service}", KUBEDSM, setting, RATIO, None, ours)


def _alternative_rows(runs: Runs) -> Iterator[Row]:
    """The results with other choices; see calibration.py."""
    for name in COMPARED:
        yield _ratio_row(runs, "Fig. 4", BY_LOAD, name + AS_REPLICA_SET, LIKE_REPLICA_SET)
    for name in COMPARED:
        yield _ratio_row(runs, "Fig. 4", ROUNDED_UP, name, PODS_ROUNDED_UP)


def shares(runs: Runs, scenarios: Sequence[Scenario], name: str) -> dict[str, float]:
    """The edge ratio of each service over these scenarios, %."""
    columns = [runs.shares_percent(each, name) for each in scenarios]
    return {s: float(sum(c[i] for c in columns)) / len(columns) for i, s in enumerate(SERVICES)}


def figures(runs: Runs) -> Sequence[Figure]:
    """All plots."""
    variants = [K8S, *VARIANTS]
    ratios = [runs.ratio_percent(ALL, name) for name in variants]
    settings = {setting: shares(runs, BY_LOAD, setting) for setting in SETTINGS}
    return (
        _ratio_figure(runs, "kubedsm-fig4", "Edge ratio over load, spread 0.4", BY_LOAD, "load"),
        _ratio_figure(
            runs, "kubedsm-fig5", "Edge ratio over spread, load 1.5", BY_SPREAD, "spread"
        ),
        _deviation_figure(runs, "kubedsm-fig8", BY_LOAD, "load"),
        _deviation_figure(runs, "kubedsm-fig9", BY_SPREAD, "spread"),
        Figure(
            *("kubedsm-fig10", "Variants", "variant", "edge ratio, %", "bars"),
            [Series("edge ratio", variants, ratios)],
        ),
        Figure(
            *("kubedsm-fig11", "QoS settings", "deployment", "edge ratio, %", "bars"),
            [Series(name, list(each), list(each.values())) for name, each in settings.items()],
        ),
    )


def _ratio_figure(
    runs: Runs, name: str, title: str, scenarios: Sequence[Scenario], axis: str
) -> Figure:
    x = _x(scenarios, axis)
    series = [
        Series(each, x, [runs.ratio_percent([s], each) for s in scenarios]) for each in COMPARED
    ]
    series.append(Series("optimum", x, [runs.best_ratio_percent([s]) for s in scenarios]))
    return Figure(name, title, axis, "edge ratio, %", "lines", series)


def _deviation_figure(runs: Runs, name: str, scenarios: Sequence[Scenario], axis: str) -> Figure:
    x = _x(scenarios, axis)
    series = [
        Series(each, x, [runs.deviation_percent(s, each) for s in scenarios]) for each in COMPARED
    ]
    title, label = "Deviation over the deployments", "deviation, percentage points"
    return Figure(name, title, axis, label, "lines", series)


def _x(scenarios: Sequence[Scenario], axis: str) -> list[float]:
    return [each.load if axis == "load" else each.spread for each in scenarios]

"""The figures of the KubeDSM paper as rows and as plots. They are lost; what the text says of them
stands beside ours."""

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
    """All values."""
    return (
        *_compared(runs),
        *_variants(runs),
        *_settings(runs),
        *_otherwise(runs),
        *_gains(runs),
    )


def _compared(runs: Runs) -> Iterator[Row]:
    for ratios, deviations, scenarios, paper in _BY_FIGURE:
        for name in COMPARED:
            for each in scenarios:
                yield _ratio(runs, ratios, [each], name)
            yield _ratio(runs, ratios, scenarios, name, paper=paper if name == KUBEDSM else None)
        for name in COMPARED:
            for each in scenarios:
                ours = runs.deviation_percent(each, name)
                yield Row(deviations, each.name, name, "", DEVIATION, None, ours)


def _ratio(
    runs: Runs,
    table: str,
    scenarios: Sequence[Scenario],
    name: str,
    option: str = "",
    paper: float | None = None,
) -> Row:
    """The edge ratio beside the highest that there could be. name: as Runs has it."""
    case = scenarios[0].name if len(scenarios) == 1 else "average"
    strategy = name.removesuffix(AS_REPLICA_SET) if name not in VARIANTS else KUBEDSM
    ours, best = runs.ratio_percent(scenarios, name), runs.best_ratio_percent(scenarios)
    return Row(table, case, strategy, option, RATIO, paper, ours, best)


class Gain(NamedTuple):
    """How much more `better` has on the edge than `worse`, in percent of the latter's."""

    table: str
    scenarios: Sequence[Scenario]
    better: str
    worse: str
    paper: float
    ours: float


def gains(runs: Runs) -> Iterator[Gain]:
    """Every gain that the paper prints."""
    for table, scenarios, paper in (("Fig. 4", BY_LOAD, 13.4), ("Fig. 5", BY_SPREAD, 18.9)):
        best = max(BASELINES, key=lambda name: runs.ratio_percent(scenarios, name))
        yield _gain(runs, table, scenarios, (KUBEDSM, best), paper)
    yield _gain(runs, "Fig. 10", ALL, ("NoMig", K8S), 8.0)
    yield _gain(runs, "Fig. 10", ALL, ("Original", "NoMig"), 14.9)
    yield _gain(runs, "Fig. 10", ALL, ("MidMig", "Original"), 5.1)
    ranked = sorted(VARIANTS, key=lambda name: runs.ratio_percent(ALL, name))
    yield _gain(runs, "Fig. 10", ALL, (ranked[-1], ranked[0]), 20.8)


def _gain(
    runs: Runs, table: str, scenarios: Sequence[Scenario], names: tuple[str, str], paper: float
) -> Gain:
    better, worse = (runs.ratio_percent(scenarios, name) for name in names)
    return Gain(table, scenarios, *names, paper, -gain_percent(better, worse))


def _gains(runs: Runs) -> Iterator[Row]:
    for gain in gains(runs):
        option = limits_of(gain.better) if gain.better in VARIANTS else ""
        case = f"average, over {gain.worse}"
        yield Row(gain.table, case, KUBEDSM, option, GAIN, gain.paper, gain.ours)


def limits_of(variant: str) -> str:
    """A variant as a row's option."""
    m_c2e, m_er = VARIANTS[variant]
    return f"{variant}: m_c2e={m_c2e} m_er={m_er}"


def _variants(runs: Runs) -> Iterator[Row]:
    for variant in VARIANTS:
        said = KUBEDSM, limits_of(variant)
        yield _ratio(runs, "Fig. 10", ALL, variant, limits_of(variant))
        moved = sum(runs.migrations(each, variant) for each in ALL) / len(ALL)
        yield Row("Fig. 10", "average of a run", *said, MIGRATIONS, None, moved)


def _settings(runs: Runs) -> Iterator[Row]:
    for setting in SETTINGS:
        for service, ours in shares(runs, BY_LOAD, setting).items():
            yield Row("Fig. 11", f"deployment {service}", KUBEDSM, setting, RATIO, None, ours)


def _otherwise(runs: Runs) -> Iterator[Row]:
    """With choices of ours made otherwise; see calibration.py."""
    for name in COMPARED:
        yield _ratio(runs, "Fig. 4", BY_LOAD, name + AS_REPLICA_SET, LIKE_REPLICA_SET)
    for name in COMPARED:
        yield _ratio(runs, "Fig. 4", ROUNDED_UP, name, PODS_ROUNDED_UP)


def shares(runs: Runs, scenarios: Sequence[Scenario], name: str) -> dict[str, float]:
    """Edge ratio of each service over these scenarios, %."""
    columns = [runs.shares_percent(each, name) for each in scenarios]
    return {s: float(sum(c[i] for c in columns)) / len(columns) for i, s in enumerate(SERVICES)}


def figures(runs: Runs) -> Sequence[Figure]:
    """The plots."""
    return (
        _figure(runs, "kubedsm-fig4", "Edge ratio over load, spread 0.4", BY_LOAD, "load"),
        _figure(runs, "kubedsm-fig5", "Edge ratio over spread, load 1.5", BY_SPREAD, "spread"),
        _deviations(runs, "kubedsm-fig8", "Deviation over the deployments", BY_LOAD, "load"),
        _deviations(runs, "kubedsm-fig9", "Deviation over the deployments", BY_SPREAD, "spread"),
        _variants_figure(runs),
        _settings_figure(runs),
    )


def _x(scenarios: Sequence[Scenario], axis: str) -> list[float]:
    return [each.load if axis == "load" else each.spread for each in scenarios]


def _figure(runs: Runs, name: str, title: str, scenarios: Sequence[Scenario], axis: str) -> Figure:
    series = [
        Series(each, _x(scenarios, axis), [runs.ratio_percent([s], each) for s in scenarios])
        for each in COMPARED
    ]
    best = [runs.best_ratio_percent([each]) for each in scenarios]
    series.append(Series("optimum", _x(scenarios, axis), best))
    return Figure(name, title, axis, "edge ratio, %", "lines", series)


def _deviations(
    runs: Runs, name: str, title: str, scenarios: Sequence[Scenario], axis: str
) -> Figure:
    series = [
        Series(each, _x(scenarios, axis), [runs.deviation_percent(s, each) for s in scenarios])
        for each in COMPARED
    ]
    return Figure(name, title, axis, "deviation, percentage points", "lines", series)


def _variants_figure(runs: Runs) -> Figure:
    names = ["kube-default", *VARIANTS]
    ratios = [runs.ratio_percent(ALL, name) for name in names]
    series = [Series("edge ratio", names, ratios)]
    return Figure("kubedsm-fig10", "Variants", "variant", "edge ratio, %", "bars", series)


def _settings_figure(runs: Runs) -> Figure:
    series = []
    for setting in SETTINGS:
        ratios = shares(runs, BY_LOAD, setting)
        series.append(Series(setting, list(ratios), list(ratios.values())))
    return Figure("kubedsm-fig11", "QoS settings", "deployment", "edge ratio, %", "bars", series)

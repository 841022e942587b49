"""The claims of the KubeDSM paper about its figures beside the results, with the reasons of misses
and the figures of this run in them."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from leadline_controller.framework.view import Floats

from leadline_experiments.kubedsm.simulation import (
    ALL,
    BY_LOAD,
    BY_SPREAD,
    CYCLES,
    K8S,
    KUBEDSM,
    REPLICATES,
    ROUNDED_UP,
    SERVICES,
    VARIANTS,
    Runs,
    Scenario,
)
from leadline_experiments.result import Claim, gain_claim, gain_percent, make_claim, order_claim

_CF = "cloud-first"
BASELINES = (K8S, "sef", "bef", _CF)
_FEW_RUNS = f"{REPLICATES} runs of {CYCLES} cycles are few, of which the paper has one"


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

    def ranked(names: Sequence[str], scenarios: Sequence[Scenario]) -> Sequence[str]:
        return sorted(names, key=lambda name: runs.ratio_percent(scenarios, name), reverse=True)

    variants = ranked(tuple(VARIANTS), ALL)
    for table, scenarios, better, worse, paper in (
        ("Fig. 4", BY_LOAD, KUBEDSM, ranked(BASELINES, BY_LOAD)[0], 13.4),
        ("Fig. 5", BY_SPREAD, KUBEDSM, ranked(BASELINES, BY_SPREAD)[0], 18.9),
        ("Fig. 10", ALL, "NoMig", K8S, 8.0),
        ("Fig. 10", ALL, "Original", "NoMig", 14.9),
        ("Fig. 10", ALL, "MidMig", "Original", 5.1),
        ("Fig. 10", ALL, variants[0], variants[-1], 20.8),
    ):
        ratios = (runs.ratio_percent(scenarios, name) for name in (better, worse))
        ours = -gain_percent(*ratios)
        yield EdgeRatioGain(table, scenarios, better, worse, paper, ours)


def claims(runs: Runs) -> Sequence[Claim]:
    """All claims."""
    return (
        *_ratios(runs),
        *_gains(runs),
        *_deviations(runs),
        *_variants(runs),
        *_settings(runs),
        _sacrificed(runs),
    )


def _few_runs(values: Floats) -> str:
    """The runs differ. values: of the claim's quantity, one per run."""
    return f"{_FEW_RUNS}; it is {values.min():.1f} to {values.max():.1f} in them"


def _k8s_spreads(runs: Runs) -> str:
    k8s, bef = (runs.by_service_percent(ALL, name) for name in (K8S, "bef"))
    return (
        "K8S spreads small pods over all edge nodes, and what is left on each is too small for B "
        "and D, which need two units of 950 MiB; BEF and SEF fill node after node. On the edge "
        f"are {k8s['B']:.0f} % of B and {k8s['D']:.0f} % of D with K8S, {bef['B']:.0f} % and "
        f"{bef['D']:.0f} % with BEF"
    )


def _ratios(runs: Runs) -> Iterator[Claim]:
    for table, scenarios, paper in (("Fig. 4", BY_LOAD, 80.0), ("Fig. 5", BY_SPREAD, 78.0)):
        mean = {name: runs.ratio_percent(scenarios, name) for name in (KUBEDSM, *BASELINES)}
        why = _few_runs(runs.ratios_percent(scenarios, KUBEDSM))
        yield gain_claim(table, "average", "KubeDSM's edge ratio", paper, mean[KUBEDSM], why)
        by_name = [
            {name: runs.ratio_percent([each], name) for name in (KUBEDSM, *BASELINES)}
            for each in scenarios
        ]
        highest = [each[KUBEDSM] > max(each[name] for name in BASELINES) for each in by_name]
        says = "KubeDSM has the highest edge ratio in every workload"
        yield _in_all(table, says, highest, why)
        others = (KUBEDSM, *BASELINES[:-1])
        lowest = [each[_CF] < min(each[name] for name in others) for each in by_name]
        says = "CF has the lowest edge ratio in every workload"
        yield _in_all(table, says, lowest, _few_runs(runs.ratios_percent(scenarios, _CF)))
        alike = [mean[name] for name in (K8S, "sef", "bef")]
        apart = max(alike) - min(alike)
        texts = "similar", f"{apart:.1f} points apart"
        says = "K8S, SEF and BEF perform alike"
        why = _k8s_spreads(runs)
        yield make_claim(table, "average", says, "order", texts, apart <= 10.0, why)


def _in_all(table: str, says: str, held: Sequence[bool], why: str) -> Claim:
    texts = f"{len(held)} of {len(held)}", f"{sum(held)} of {len(held)}"
    return make_claim(table, "all", says, "order", texts, all(held), why)


def _gains(runs: Runs) -> Iterator[Claim]:
    for table, scenarios, better, worse, paper, ours in gains(runs):
        ratios = [runs.ratios_percent(scenarios, name) for name in (better, worse)]
        why = _few_runs(ratios[0] / ratios[1] * 100 - 100)
        yield gain_claim(table, "average", f"{better} over {worse}", paper, ours, why)
    mean = {name: runs.ratio_percent(ALL, name) for name in (KUBEDSM, *BASELINES)}
    order = (_CF, *sorted(("bef", "sef"), key=lambda name: mean[name]), K8S, KUBEDSM)
    says = "K8S is the second best on average"
    in_order = {name: mean[name] for name in order}
    yield order_claim("Fig. 4-5", "average", says, in_order, _k8s_spreads(runs))


def _deviations(runs: Runs) -> Iterator[Claim]:
    def least(name: str, others: Sequence[str]) -> int:
        return sum(
            runs.deviation_percent(each, name)
            < min(runs.deviation_percent(each, other) for other in others)
            for each in ALL
        )

    table, half = "Fig. 8-9", len(ALL) / 2
    without_cf = BASELINES[:-1]
    count = least(KUBEDSM, BASELINES)
    texts = "6 of 11", f"{count} of 11 ({least(KUBEDSM, without_cf)} of 11 without CF)"
    why = (
        f"CF deviates least in {least(_CF, (KUBEDSM, *without_cf))} of {len(ALL)} workloads: with "
        "so little on the edge there is little to deviate"
    )
    says = "KubeDSM deviates less than all others in most workloads"
    yield make_claim(table, "all", says, "order", texts, count > half, why)
    count = least(KUBEDSM, [K8S])
    texts = "9 of 11", f"{count} of 11"
    says = "KubeDSM deviates less than K8S in most workloads"
    yield make_claim(table, "all", says, "order", texts, count > half, _FEW_RUNS)


def _variants(runs: Runs) -> Iterator[Claim]:
    reasons: Sequence[tuple[str, str, Callable[[Floats], str]]] = (
        ("MidMig", "Original", _few_runs),
        ("NoCloudOffload", "NoMig", _reordered_too_early),
    )
    for better, worse, reason in reasons:
        why = reason(runs.ratios_percent(ALL, better) - runs.ratios_percent(ALL, worse))
        ours = {name: runs.ratio_percent(ALL, name) for name in (worse, better)}
        text = ", ".join(f"{name} {ratio:.1f} %" for name, ratio in ours.items())
        texts, says = (f"{worse} < {better}", text), f"{better} has the higher edge ratio"
        holds = ours[better] > ours[worse]
        yield make_claim("Fig. 10", "average", says, "order", texts, holds, why)


def _reordered_too_early(differences: Floats) -> str:
    return (
        "reordering comes between the batches, and when the next one is matched, pods have left at "
        "random since; memory is taken in units of 950 MiB, so that up to 3 moves seldom open a "
        f"gap. The difference is {differences.min():.1f} to {differences.max():.1f} points in "
        f"{REPLICATES} runs"
    )


def _settings(runs: Runs) -> Iterator[Claim]:
    default = runs.by_service_percent(BY_LOAD, "default")
    for setting, service, rises in (
        ("AllEqual", "D", False),
        ("AllEqual", "C", True),
        ("CA", "C", True),
        ("RespectD", "D", True),
    ):
        before, after = default[service], runs.by_service_percent(BY_LOAD, setting)[service]
        texts = "up" if rises else "down", f"{before:.1f} % to {after:.1f} %"
        says = f"deployment {service} {'rises' if rises else 'falls'}"
        holds = after > before if rises else after < before
        changes = runs.each_percent(BY_LOAD, setting) - runs.each_percent(BY_LOAD, "default")
        change = changes[:, list(SERVICES).index(service)]
        why = _few_runs(change)
        if service == "D":
            why = (
                f"D has {before:.1f} % on the edge by default already, as Fig. 6's claim says why, "
                f"and its target makes little difference: {change.min():.1f} to {change.max():.1f} "
                f"points in {REPLICATES} runs"
            )
        yield make_claim("Fig. 11", setting, says, "order", texts, holds, why)
    ca = runs.by_service_percent(BY_LOAD, "CA")
    first = max(ca, key=ca.__getitem__)
    says = "C comes before all others"
    yield make_claim("Fig. 11", "CA", says, "order", ("C", first), first == "C", _FEW_RUNS)


def _sacrificed(runs: Runs) -> Claim:
    ours = runs.by_service_percent([BY_LOAD[-1]], KUBEDSM)
    least = min(ours, key=ours.__getitem__)
    up = runs.by_service_percent(ROUNDED_UP, KUBEDSM)
    text, text_up = (
        ", ".join(f"{name} {ratio:.0f} %" for name, ratio in each.items()) for each in (ours, up)
    )
    why = (
        "the load comes in whole pods, and rounding down leaves B and D, of two units of 950 MiB a "
        "pod, less to ask for than A and C, so that their targets cost least to reach; rounded "
        f"up, the edge ratios over Fig. 4's loads are {text_up}"
    )
    says = "deployment D is the one given up"
    return make_claim("Fig. 6", "1.6_0.4", says, "order", ("D", text), least == "D", why)

"""The claims of the KubeDSM paper about its figures beside the results."""

from collections.abc import Iterator, Sequence

from leadline_experiments.kubedsm import discrepancies
from leadline_experiments.kubedsm.methods import K8S, KUBEDSM
from leadline_experiments.kubedsm.runs import ALL, Runs
from leadline_experiments.kubedsm.setting import BY_LOAD, BY_SPREAD, SERVICES, Scenario
from leadline_experiments.kubedsm.tables import BASELINES, gains, shares
from leadline_experiments.result import Claim, gain_claim, make_claim, order_claim

_CF = "cloud-first"


def claims(runs: Runs) -> Sequence[Claim]:
    """All claims."""
    return (
        *_ratios(runs),
        *_gains(runs),
        _second_best(runs),
        *_deviations(runs),
        *_variants(runs),
        *_settings(runs),
        _sacrificed(runs),
    )


def _order(
    table: str, case: str, says: str, texts: tuple[str, str], holds: bool, why: str
) -> Claim:
    return make_claim(table, case, says, "order", texts, holds, why)


def _ratios(runs: Runs) -> Iterator[Claim]:
    for table, scenarios, paper in (("Fig. 4", BY_LOAD, 80.0), ("Fig. 5", BY_SPREAD, 78.0)):
        mean = {name: runs.ratio_percent(scenarios, name) for name in (KUBEDSM, *BASELINES)}
        why = discrepancies.few_runs(runs.ratios_percent(scenarios, KUBEDSM))
        yield gain_claim(table, "average", "KubeDSM's edge ratio", paper, mean[KUBEDSM], why)
        highest = [_ratio_over(runs, each, KUBEDSM, BASELINES, 1) for each in scenarios]
        yield _in_all(table, "KubeDSM has the highest edge ratio in every workload", highest, why)
        others = (KUBEDSM, *BASELINES[:-1])
        lowest = [_ratio_over(runs, each, _CF, others, -1) for each in scenarios]
        why = discrepancies.few_runs(runs.ratios_percent(scenarios, _CF))
        yield _in_all(table, "CF has the lowest edge ratio in every workload", lowest, why)
        alike = [mean[name] for name in (K8S, "sef", "bef")]
        apart = max(alike) - min(alike)
        texts = "similar", f"{apart:.1f} points apart"
        says = "K8S, SEF and BEF perform alike"
        why = discrepancies.k8s_spreads(runs)
        yield _order(table, "average", says, texts, apart <= 10.0, why)


def _ratio_over(
    runs: Runs, scenario: Scenario, name: str, others: Sequence[str], sign: int
) -> bool:
    """Whether a method's edge ratio is above (sign 1) or below (-1) that of all others."""
    ours = sign * runs.ratio_percent([scenario], name)
    return all(ours > sign * runs.ratio_percent([scenario], other) for other in others)


def _in_all(table: str, says: str, held: Sequence[bool], why: str) -> Claim:
    texts = f"{len(held)} of {len(held)}", f"{sum(held)} of {len(held)}"
    return _order(table, "all", says, texts, all(held), why)


def _gains(runs: Runs) -> Iterator[Claim]:
    for gain in gains(runs):
        better, worse = (
            runs.ratios_percent(gain.scenarios, name) for name in (gain.better, gain.worse)
        )
        why = discrepancies.few_runs(better / worse * 100 - 100)
        says = f"{gain.better} over {gain.worse}"
        yield gain_claim(gain.table, "average", says, gain.paper, gain.ours, why)


def _second_best(runs: Runs) -> Claim:
    mean = {name: runs.ratio_percent(ALL, name) for name in (KUBEDSM, *BASELINES)}
    order = (_CF, *sorted(("bef", "sef"), key=lambda name: mean[name]), K8S, KUBEDSM)
    says = "K8S is the second best on average"
    return order_claim("Fig. 4-5", "average", says, order, mean, discrepancies.k8s_spreads(runs))


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
    why = discrepancies.cf_deviates_least(least(_CF, (KUBEDSM, *without_cf)))
    says = "KubeDSM deviates less than all others in most workloads"
    yield _order(table, "all", says, texts, count > half, why)
    count = least(KUBEDSM, [K8S])
    texts = "9 of 11", f"{count} of 11"
    says = "KubeDSM deviates less than K8S in most workloads"
    yield _order(table, "all", says, texts, count > half, discrepancies.FEW_RUNS)


def _variants(runs: Runs) -> Iterator[Claim]:
    for better, worse, reason in (
        ("MidMig", "Original", discrepancies.few_runs),
        ("NoCloudOffload", "NoMig", discrepancies.reordered_too_early),
    ):
        why = reason(runs.ratios_percent(ALL, better) - runs.ratios_percent(ALL, worse))
        ours = {name: runs.ratio_percent(ALL, name) for name in (worse, better)}
        text = ", ".join(f"{name} {ratio:.1f} %" for name, ratio in ours.items())
        says = f"{better} has the higher edge ratio"
        holds = ours[better] > ours[worse]
        yield _order("Fig. 10", "average", says, (f"{worse} < {better}", text), holds, why)


def _settings(runs: Runs) -> Iterator[Claim]:
    default = shares(runs, BY_LOAD, "default")
    for setting, service, rises in (
        ("AllEqual", "D", False),
        ("AllEqual", "C", True),
        ("CA", "C", True),
        ("RespectD", "D", True),
    ):
        before, after = default[service], shares(runs, BY_LOAD, setting)[service]
        texts = "up" if rises else "down", f"{before:.1f} % to {after:.1f} %"
        says = f"deployment {service} {'rises' if rises else 'falls'}"
        holds = after > before if rises else after < before
        change = runs.each_percent(BY_LOAD, setting) - runs.each_percent(BY_LOAD, "default")
        of_service = change[:, list(SERVICES).index(service)]
        why = (
            discrepancies.d_is_high_by_default(runs, of_service)
            if service == "D"
            else discrepancies.few_runs(of_service)
        )
        yield _order("Fig. 11", setting, says, texts, holds, why)
    ca = shares(runs, BY_LOAD, "CA")
    first = max(ca, key=lambda service: ca[service])
    says = "C comes before all others"
    yield _order("Fig. 11", "CA", says, ("C", first), first == "C", discrepancies.FEW_RUNS)


def _sacrificed(runs: Runs) -> Claim:
    ours = shares(runs, [BY_LOAD[-1]], KUBEDSM)
    least = min(ours, key=lambda service: ours[service])
    texts = "D", ", ".join(f"{name} {ratio:.0f} %" for name, ratio in ours.items())
    why = discrepancies.d_is_cheap(runs)
    says = "deployment D is the one given up"
    return _order("Fig. 6", "1.6_0.4", says, texts, least == "D", why)

"""What the KubeDSM paper says of its figures, and whether it came out."""

from collections.abc import Iterator, Sequence

from leadline_experiments.kubedsm import discrepancies
from leadline_experiments.kubedsm.methods import K8S, KUBEDSM
from leadline_experiments.kubedsm.runs import ALL, Runs
from leadline_experiments.kubedsm.setting import BY_LOAD, BY_SPREAD, SERVICES, Scenario
from leadline_experiments.kubedsm.tables import BASELINES, gains, shares
from leadline_experiments.result import Claim, gain_claim, order_claim

_CF = "cloud-first"


def claims(runs: Runs) -> Sequence[Claim]:
    """All of them."""
    return (
        *_ratios(runs),
        *_gains(runs),
        _second_best(runs),
        *_deviations(runs),
        *_variants(runs),
        *_settings(runs),
        _given_up(runs),
    )


def _order(
    where: tuple[str, str], says: str, told: tuple[str, str], holds: bool, why: str
) -> Claim:
    return Claim(*where, says, "order", *told, holds, "" if holds else why)


def _ratios(runs: Runs) -> Iterator[Claim]:
    for table, scenarios, paper in (("Fig. 4", BY_LOAD, 80.0), ("Fig. 5", BY_SPREAD, 78.0)):
        mean = {name: runs.ratio_percent(scenarios, name) for name in (KUBEDSM, *BASELINES)}
        ours = runs.ratios_percent(scenarios, KUBEDSM)
        says = "KubeDSM's edge ratio"
        yield gain_claim(table, "average", says, paper, mean[KUBEDSM], discrepancies.noise(ours))
        highest = [_is_highest(runs, each) for each in scenarios]
        says = "KubeDSM has the highest edge ratio in every workload"
        yield _in_all(table, says, highest, discrepancies.noise(ours))
        lowest = [_is_lowest(runs, each) for each in scenarios]
        says = "CF has the lowest edge ratio in every workload"
        yield _in_all(table, says, lowest, discrepancies.noise(runs.ratios_percent(scenarios, _CF)))
        near = [mean[name] for name in (K8S, "sef", "bef")]
        apart = max(near) - min(near)
        told = "similar", f"{apart:.1f} points apart"
        says = "K8S, SEF and BEF perform alike"
        yield _order((table, "average"), says, told, apart <= 10.0, discrepancies.spreads(runs))


def _is_highest(runs: Runs, scenario: Scenario) -> bool:
    ours = runs.ratio_percent([scenario], KUBEDSM)
    return all(ours > runs.ratio_percent([scenario], name) for name in BASELINES)


def _is_lowest(runs: Runs, scenario: Scenario) -> bool:
    worst = runs.ratio_percent([scenario], _CF)
    others = (KUBEDSM, *BASELINES[:-1])
    return all(worst < runs.ratio_percent([scenario], name) for name in others)


def _in_all(table: str, says: str, held: Sequence[bool], why: str) -> Claim:
    told = f"{len(held)} of {len(held)}", f"{sum(held)} of {len(held)}"
    return _order((table, "all"), says, told, all(held), why)


def _gains(runs: Runs) -> Iterator[Claim]:
    for gain in gains(runs):
        of_each = runs.ratios_percent(gain.scenarios, gain.better)
        over = of_each / runs.ratios_percent(gain.scenarios, gain.worse) * 100 - 100
        says = f"{gain.better} over {gain.worse}"
        yield gain_claim(
            gain.table, "average", says, gain.paper, gain.ours, discrepancies.noise(over)
        )


def _second_best(runs: Runs) -> Claim:
    mean = {name: runs.ratio_percent(ALL, name) for name in (KUBEDSM, *BASELINES)}
    order = (_CF, *sorted(("bef", "sef"), key=lambda name: mean[name]), K8S, KUBEDSM)
    says = "K8S is the second best on average"
    return order_claim("Fig. 4-5", "average", says, order, mean, discrepancies.spreads(runs))


def _deviations(runs: Runs) -> Iterator[Claim]:
    def least(name: str, others: Sequence[str]) -> int:
        return sum(
            runs.deviation_percent(each, name)
            < min(runs.deviation_percent(each, other) for other in others)
            for each in ALL
        )

    where, most = ("Fig. 8-9", "all"), len(ALL) / 2
    count = least(KUBEDSM, BASELINES)
    told = "6 of 11", f"{count} of 11 ({least(KUBEDSM, BASELINES[:-1])} of 11 without CF)"
    why = discrepancies.little(least(_CF, (KUBEDSM, *BASELINES[:-1])))
    says = "KubeDSM deviates less than all others in most workloads"
    yield _order(where, says, told, count > most, why)
    count = least(KUBEDSM, [K8S])
    says = "KubeDSM deviates less than K8S in most workloads"
    yield _order(where, says, ("9 of 11", f"{count} of 11"), count > most, discrepancies.FEW_RUNS)


def _variants(runs: Runs) -> Iterator[Claim]:
    for better, worse, reason in (
        ("MidMig", "Original", discrepancies.noise),
        ("NoCloudOffload", "NoMig", discrepancies.tidied_too_early),
    ):
        why = reason(runs.ratios_percent(ALL, better) - runs.ratios_percent(ALL, worse))
        ours = {name: runs.ratio_percent(ALL, name) for name in (worse, better)}
        told = ", ".join(f"{name} {ratio:.1f} %" for name, ratio in ours.items())
        says = f"{better} has the higher edge ratio"
        holds = ours[better] > ours[worse]
        yield _order(("Fig. 10", "average"), says, (f"{worse} < {better}", told), holds, why)


def _settings(runs: Runs) -> Iterator[Claim]:
    default = shares(runs, BY_LOAD, "default")
    for setting, service, rises in (
        ("AllEqual", "D", False),
        ("AllEqual", "C", True),
        ("CA", "C", True),
        ("RespectD", "D", True),
    ):
        before, after = default[service], shares(runs, BY_LOAD, setting)[service]
        told = "up" if rises else "down", f"{before:.1f} % to {after:.1f} %"
        says = f"deployment {service} {'rises' if rises else 'falls'}"
        holds = after > before if rises else after < before
        change = runs.each_percent(BY_LOAD, setting) - runs.each_percent(BY_LOAD, "default")
        of_each = change[:, list(SERVICES).index(service)]
        why = (
            discrepancies.high_already(runs, of_each)
            if service == "D"
            else discrepancies.noise(of_each)
        )
        yield _order(("Fig. 11", setting), says, told, holds, why)
    ca = shares(runs, BY_LOAD, "CA")
    first = max(ca, key=lambda service: ca[service])
    says = "C comes before all others"
    yield _order(("Fig. 11", "CA"), says, ("C", first), first == "C", discrepancies.FEW_RUNS)


def _given_up(runs: Runs) -> Claim:
    ours = shares(runs, [BY_LOAD[-1]], KUBEDSM)
    least = min(ours, key=lambda service: ours[service])
    says = "deployment D is the one given up"
    told = "D", ", ".join(f"{name} {ratio:.0f} %" for name, ratio in ours.items())
    return _order(("Fig. 6", "1.6_0.4"), says, told, least == "D", discrepancies.fares_well(runs))

"""What the KubeDSM paper says of its figures, and whether it came out."""

from collections.abc import Iterator, Sequence

from leadline_controller.experiments.kubedsm.methods import K8S, KUBEDSM
from leadline_controller.experiments.kubedsm.runs import ALL, Runs
from leadline_controller.experiments.kubedsm.setting import BY_LOAD, BY_SPREAD, Scenario
from leadline_controller.experiments.kubedsm.tables import shares
from leadline_controller.experiments.result import Claim, gain_claim, gain_percent

BASELINES = (K8S, "sef", "bef", "cloud-first")
_FREE = (
    "a migration costs nothing here: no pod is missing while it moves and no plan breaks off, "
    "which is what more migrations lose by on real nodes"
)


def claims(runs: Runs) -> Sequence[Claim]:
    """All of them."""
    return (*_ratios(runs), *_deviations(runs), *_variants(runs), *_settings(runs))


def _gain(ours: float, baseline: float) -> float:
    """How much more, in percent of the baseline."""
    return -gain_percent(ours, baseline)


def _ratios(runs: Runs) -> Iterator[Claim]:
    for table, scenarios, average, gain in (
        ("Fig. 4", BY_LOAD, 80.0, 13.4),
        ("Fig. 5", BY_SPREAD, 78.0, 18.9),
    ):
        mean = {name: runs.ratio_percent(scenarios, name) for name in (KUBEDSM, *BASELINES)}
        yield gain_claim(table, "average", "KubeDSM's edge ratio", average, mean[KUBEDSM])
        best = max(BASELINES, key=lambda name: mean[name])
        says = "KubeDSM over the best baseline"
        yield gain_claim(table, f"over {best}", says, gain, _gain(mean[KUBEDSM], mean[best]))
        yield _in_all(
            table,
            "KubeDSM has the highest edge ratio in every workload",
            [_is_highest(runs, each) for each in scenarios],
        )
        yield _in_all(
            table,
            "CF has the lowest edge ratio in every workload",
            [_is_lowest(runs, each) for each in scenarios],
        )
        near = [mean[name] for name in (K8S, "sef", "bef")]
        said = f"{max(near) - min(near):.1f} points apart"
        yield Claim(
            *(table, "average", "K8S, SEF and BEF perform alike", "order", "similar", said),
            max(near) - min(near) <= 10.0,
        )


def _is_highest(runs: Runs, scenario: Scenario) -> bool:
    ours = runs.ratio_percent([scenario], KUBEDSM)
    return all(ours > runs.ratio_percent([scenario], name) for name in BASELINES)


def _is_lowest(runs: Runs, scenario: Scenario) -> bool:
    worst = runs.ratio_percent([scenario], "cloud-first")
    others = (KUBEDSM, *BASELINES[:-1])
    return all(worst < runs.ratio_percent([scenario], name) for name in others)


def _in_all(table: str, says: str, held: Sequence[bool], why: str = "") -> Claim:
    count = f"{sum(held)} of {len(held)}"
    told = f"{len(held)} of {len(held)}", count
    return Claim(table, "all", says, "order", *told, all(held), "" if all(held) else why)


def _deviations(runs: Runs) -> Iterator[Claim]:
    ours = [runs.deviation_percent(each, KUBEDSM) for each in ALL]
    k8s = [runs.deviation_percent(each, K8S) for each in ALL]
    all_others = [min(runs.deviation_percent(each, name) for name in BASELINES) for each in ALL]
    for says, paper, others in (
        ("KubeDSM deviates less than all others in most workloads", 6, all_others),
        ("KubeDSM deviates less than K8S in most workloads", 9, k8s),
    ):
        count = sum(a < b for a, b in zip(ours, others, strict=True))
        holds = count > len(ALL) / 2
        why = "CF, with next to nothing on the edge, has next to nothing to deviate"
        yield Claim(
            *("Fig. 8-9", "all", says, "order"),
            *(f"{paper} of 11", f"{count} of 11", holds, "" if holds else why),
        )


def _variants(runs: Runs) -> Iterator[Claim]:
    ratio = {
        name: runs.ratio_percent(ALL, name)
        for name in (K8S, "Original", "MidMig", "NoCloudOffload", "NoMig")
    }
    for better, worse, paper in (
        ("NoMig", K8S, 8.0),
        ("Original", "NoMig", 14.9),
        ("MidMig", "Original", 5.1),
    ):
        gain = _gain(ratio[better], ratio[worse])
        yield gain_claim("Fig. 10", "average", f"{better} over {worse}", paper, gain)
    variants = [value for name, value in ratio.items() if name != K8S]
    spread = _gain(max(variants), min(variants))
    yield gain_claim("Fig. 10", "average", "the best variant over the worst", 20.8, spread)
    for better, worse, why in (
        ("MidMig", "Original", _FREE),
        ("NoCloudOffload", "NoMig", _PACKED_TIGHT),
    ):
        told = f"{worse} {ratio[worse]:.1f} %, {better} {ratio[better]:.1f} %"
        holds = ratio[better] > ratio[worse]
        says = f"{better} has the higher edge ratio"
        paper_said = f"{worse} < {better}"
        yield Claim(
            "Fig. 10", "average", says, "order", paper_said, told, holds, "" if holds else why
        )


_PACKED_TIGHT = (
    "match packs new pods as tightly as reordering would, and memory comes in units that leave "
    "little to reorder"
)


def _settings(runs: Runs) -> Iterator[Claim]:
    default, equal, ca, respect = (
        shares(runs, BY_LOAD, name) for name in ("default", "AllEqual", "CA", "RespectD")
    )
    for setting, says, before, after, rises in (
        ("AllEqual", "deployment D falls", default["D"], equal["D"], False),
        ("AllEqual", "deployment C rises", default["C"], equal["C"], True),
        ("CA", "deployment C rises", default["C"], ca["C"], True),
        ("RespectD", "deployment D rises", default["D"], respect["D"], True),
    ):
        holds = after > before if rises else after < before
        told = f"{before:.1f} % to {after:.1f} %"
        why = "" if holds else _WHY[setting]
        said = "up" if rises else "down"
        yield Claim("Fig. 11", setting, says, "order", said, told, holds, why)
    first = max(ca, key=lambda service: ca[service])
    yield Claim(
        *("Fig. 11", "CA", "C comes before all others", "order", "C", first, first == "C"),
        "" if first == "C" else _WHY["CA"],
    )
    at_most = shares(runs, [BY_LOAD[-1]], KUBEDSM)
    least = min(at_most, key=lambda service: at_most[service])
    yield Claim(
        *("Fig. 6", "1.6_0.4", "deployment D is the one given up", "order", "D", least),
        least == "D",
        "" if least == "D" else _WHY["D"],
    )


_WHY = {"AllEqual": "?", "CA": "?", "RespectD": "?", "D": "?"}

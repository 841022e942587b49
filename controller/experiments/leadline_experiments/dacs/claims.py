"""The DACS paper's claims beside the results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from leadline_experiments.dacs.discrepancies import (
    WHY_ALPHAS,
    WHY_GAIN,
    WHY_ORDER,
    WHY_TSRA_IS_FAR,
)
from leadline_experiments.dacs.methods import Key, ScenarioResult
from leadline_experiments.dacs.paper_values import (
    ALPHAS,
    BASELINES,
    COUNTS,
    FASTEST,
    GAINS,
    PaperCounts,
)
from leadline_experiments.dacs.scenarios import WORKERS
from leadline_experiments.dacs.trials import ITERATIONS
from leadline_experiments.result import (
    Claim,
    count_claim,
    gain_claim,
    gain_percent,
    order_claim,
)

_DACS: Sequence[Key] = tuple(("dacs", f"alpha={alpha:g}") for alpha in ALPHAS)
_BASELINES: Sequence[Key] = tuple((name, "") for name in BASELINES)


class Labels(NamedTuple):
    """The paper's figure and table of a scenario."""

    figure: str
    table: str


LABELS: Mapping[str, Labels] = {
    "scenario 1": Labels("Fig. 3", "Table 6"),
    "scenario 2": Labels("Fig. 4", "Table 7"),
}


def claims(result: ScenarioResult) -> Iterator[Claim]:
    """All claims of the paper on a scenario."""
    yield from _counts(result)
    figure = LABELS[result.scenario.title].figure
    processing = _processing_1 if figure == "Fig. 3" else _processing_2
    for load, part in zip(ITERATIONS, "bc", strict=True):
        yield from processing(result, f"{figure}({part})", load)
    yield from _network(result)
    yield from _completion(result)


def label(key: Key) -> str:
    """A method and its option, as one name."""
    return " ".join(part for part in key if part)


def comparable_counts(result: ScenarioResult, key: Key, paper: PaperCounts) -> list[int]:
    """The counts of a method that the paper has as well. If the runs differ, the counts of a run
    that differs from the paper."""
    expected = [pods for pods in paper.pods if pods is not None]
    found = set()
    for run in result.of(key):
        counts = sorted(run.counts, reverse=True) if paper.any_node else run.counts
        pairs = zip(counts, paper.pods, strict=True)
        found.add(tuple(ours for ours, pods in pairs if pods is not None))
    return list(min(found, key=lambda ours: (list(ours) == expected, ours)))


def _counts(result: ScenarioResult) -> Iterator[Claim]:
    table = f"{LABELS[result.scenario.title].figure}(a)"
    for key, paper in COUNTS[result.scenario.title].items():
        nodes = [w for w, pods in zip(WORKERS, paper.pods, strict=True) if pods is not None]
        where = "whatever node has most" if paper.any_node else ", ".join(nodes)
        expected = [pods for pods in paper.pods if pods is not None]
        ours = comparable_counts(result, key, paper)
        yield count_claim(table, label(key), f"Pods on {where}.", expected, ours)


def _by_worker(result: ScenarioResult, key: Key, load: str) -> dict[str, float]:
    return {worker: result.processing_s(key, load, worker) for worker in WORKERS}


def _processing_1(result: ScenarioResult, table: str, load: str) -> Iterator[Claim]:
    mean_s = {label(key): result.processing_s(key, load) for key in (*_BASELINES, *_DACS)}
    balancing = [*map(label, _DACS), "elasticfog", "tsra"]
    ours = {
        "dacs, elasticfog, tsra": max(mean_s[name] for name in balancing),
        "the others": min(mean_s[name] for name in ("kube-default", "nas", "kcss")),
    }
    says = "ElasticFog, TSRA and DACS have the lowest average processing delays."
    yield order_claim(table, load, says, list(ours), ours)
    kube = _by_worker(result, ("kube-default", ""), load)
    ours = {"n1, n2": max(kube["n1"], kube["n2"]), "n3": kube["n3"]}
    says = "n3, with half of the pods, is slowest."
    yield order_claim(table, f"{load}, kube-default", says, list(ours), ours)
    kcss = _by_worker(result, ("kcss", ""), load)
    says = "n2 is slower than n1, and n3 has nothing to do."
    yield order_claim(table, f"{load}, kcss", says, ["n3", "n1", "n2"], kcss)


def _processing_2(result: ScenarioResult, table: str, load: str) -> Iterator[Claim]:
    for name in ("kube-default", "elasticfog"):
        delay_s = _by_worker(result, (name, ""), load)
        for other in ("n2", "n3"):
            says = f"n1, with twice the CPU, has nearly half of {other}'s delay."
            gain = gain_percent(delay_s["n1"], delay_s[other])
            yield gain_claim(table, f"{load}, {name}", says, 50.0, gain)
    delay_s = _by_worker(result, ("tsra", ""), load)
    ours = {"n2, n3": max(delay_s["n2"], delay_s["n3"]), "n1": delay_s["n1"]}
    yield order_claim(table, f"{load}, tsra", "n1, with four pods, is slowest.", list(ours), ours)
    nas = ("nas", "n1 preferred")
    others = [key for key in result.runs if key[0] not in ("nas", "random")]
    ours = {
        "all others": max(result.processing_s(key, load, "n1") for key in others),
        label(nas): result.processing_s(nas, load, "n1"),
    }
    says = "With all six pods, n1 is slower than with any other method."
    yield order_claim(table, load, says, list(ours), ours)
    for key in _DACS:
        delay_s = _by_worker(result, key, load)
        ours = {"n1": delay_s["n1"], "n2, n3": max(delay_s["n2"], delay_s["n3"])}
        says = "n1 is quicker than the slower of n2 and n3."
        yield order_claim(table, f"{load}, {label(key)}", says, list(ours), ours)


def _network(result: ScenarioResult) -> Iterator[Claim]:
    title = result.scenario.title
    table = f"{LABELS[title].figure}(d)"
    delay_s = {key: result.network_s(key) for key in (*_DACS, *_BASELINES)}
    ours = {"dacs": max(delay_s[key] for key in _DACS), "tsra": delay_s["tsra", ""]}
    says = "DACS has a lower network delay than TSRA, whatever alpha."
    yield order_claim(table, "all users", says, list(ours), ours)
    ours = {
        "tsra": delay_s["tsra", ""],
        "the others": min(delay_s[key] for key in _BASELINES if key[0] != "tsra"),
    }
    says = "TSRA has a lower network delay than the other four."
    yield order_claim(table, "all users", says, list(ours), ours, WHY_TSRA_IS_FAR)
    if title == "scenario 2":
        ours = {option: delay_s["dacs", option] for _, option in _DACS}
        says = "DACS' network delay is lowest with alpha 0.25."
        yield order_claim(table, "all users", says, list(ours), ours)


def _completion(result: ScenarioResult) -> Iterator[Claim]:
    title = result.scenario.title
    table = LABELS[title].table
    best = ("dacs", FASTEST[title][0])
    for at, load in enumerate(ITERATIONS):
        total_s = {key: result.completion_s(key, load) for key in (*_DACS, *_BASELINES)}
        ours = {label(key): total_s[key] for key in (best, *_BASELINES)}
        says = "The methods, the quickest first."
        yield order_claim(table, load, says, list(ours), ours, WHY_ORDER)
        ours = {option: total_s["dacs", option] for option in FASTEST[title]}
        says = "DACS' alphas, the quickest first."
        yield order_claim(table, load, says, list(ours), ours, WHY_ALPHAS[title])
        for name, gains in GAINS[title].items():
            gain = gain_percent(total_s[best], total_s[name, ""])
            says = f"{label(best)} takes less time than {name}."
            yield gain_claim(table, load, says, gains[at], gain, WHY_GAIN.get((load, name), ""))

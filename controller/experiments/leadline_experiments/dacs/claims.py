"""What the DACS paper says in words and numbers, beside what came out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from leadline_experiments.dacs.discrepancies import (
    WHY_ALPHAS,
    WHY_GAIN,
    WHY_ORDER,
    WHY_TSRA_IS_FAR,
)
from leadline_experiments.dacs.methods import Found, Key
from leadline_experiments.dacs.paper_values import (
    ALPHAS,
    BASELINES,
    COUNTS,
    GAINS,
    QUICKEST,
    Counts,
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


class Names(NamedTuple):
    """Where the paper shows a scenario."""

    figure: str
    table: str


NAMES: Mapping[str, Names] = {
    "scenario 1": Names("Fig. 3", "Table 6"),
    "scenario 2": Names("Fig. 4", "Table 7"),
}


def claims(found: Found) -> Iterator[Claim]:
    """Everything that the paper claims of a scenario."""
    yield from _counts(found)
    yield from _processing(found)
    yield from _network(found)
    yield from _completion(found)


def label(key: Key) -> str:
    """A method and its option, as one name."""
    return " ".join(part for part in key if part)


def shown_counts(found: Found, key: Key, printed: Counts) -> list[int]:
    """The counts of a method, those that the paper gives. All runs must agree on them; where
    they do not, those of a run that differs from the paper."""
    paper = [pods for pods in printed.pods if pods is not None]
    seen = {
        tuple(
            ours
            for ours, pods in zip(_arranged(run.counts, printed), printed.pods, strict=True)
            if pods is not None
        )
        for run in found.of(key)
    }
    return list(min(seen, key=lambda ours: (list(ours) == paper, ours)))


def _arranged(counts: Sequence[int], printed: Counts) -> Sequence[int]:
    return sorted(counts, reverse=True) if printed.any_node else counts


def _counts(found: Found) -> Iterator[Claim]:
    table = f"{NAMES[found.scenario.title].figure}(a)"
    for key, printed in COUNTS[found.scenario.title].items():
        nodes = [w for w, pods in zip(WORKERS, printed.pods, strict=True) if pods is not None]
        where = "whatever node has most" if printed.any_node else ", ".join(nodes)
        paper = [pods for pods in printed.pods if pods is not None]
        ours = shown_counts(found, key, printed)
        yield count_claim(table, label(key), f"Pods on {where}.", paper, ours)


def _processing(found: Found) -> Iterator[Claim]:
    figure = NAMES[found.scenario.title].figure
    tell = _processing_1 if figure == "Fig. 3" else _processing_2
    for load, part in zip(ITERATIONS, ("(b)", "(c)"), strict=True):
        yield from tell(found, f"{figure}{part}", load)


def _processing_1(found: Found, table: str, load: str) -> Iterator[Claim]:
    keys = {name: (name, "") for name in BASELINES}
    mean_s = {label(key): found.processing_s(key, load, None) for key in (*keys.values(), *_DACS)}
    balancing = [*map(label, _DACS), "elasticfog", "tsra"]
    both = {
        "dacs, elasticfog, tsra": max(mean_s[name] for name in balancing),
        "the others": min(mean_s[name] for name in ("kube-default", "nas", "kcss")),
    }
    says = "ElasticFog, TSRA and DACS have the lowest average processing delays."
    yield order_claim(table, load, says, list(both), both)
    kube = {w: found.processing_s(("kube-default", ""), load, w) for w in WORKERS}
    pair = {"n1, n2": max(kube["n1"], kube["n2"]), "n3": kube["n3"]}
    says = "n3, with half of the pods, is slowest."
    yield order_claim(table, f"{load}, kube-default", says, list(pair), pair)
    kcss = {w: found.processing_s(("kcss", ""), load, w) for w in WORKERS}
    says = "n2 is slower than n1, and n3 has nothing to do."
    yield order_claim(table, f"{load}, kcss", says, ["n3", "n1", "n2"], kcss)


def _processing_2(found: Found, table: str, load: str) -> Iterator[Claim]:
    for name in ("kube-default", "elasticfog"):
        ours = {worker: found.processing_s((name, ""), load, worker) for worker in WORKERS}
        for other in ("n2", "n3"):
            says = f"n1, with twice the CPU, has nearly half of {other}'s delay."
            gain = gain_percent(ours["n1"], ours[other])
            yield gain_claim(table, f"{load}, {name}", says, 50.0, gain)
    ours = {worker: found.processing_s(("tsra", ""), load, worker) for worker in WORKERS}
    pair = {"n2, n3": max(ours["n2"], ours["n3"]), "n1": ours["n1"]}
    yield order_claim(table, f"{load}, tsra", "n1, with four pods, is slowest.", list(pair), pair)
    alone = {
        label(("nas", "n1 preferred")): found.processing_s(("nas", "n1 preferred"), load, "n1")
    }
    rest = {
        "all others": max(
            found.processing_s(key, load, "n1")
            for key in found.runs
            if key[0] not in ("nas", "random")
        )
    }
    says = "With all six pods, n1 is slower than with any other method."
    yield order_claim(table, load, says, [*rest, *alone], {**alone, **rest})
    for key in _DACS:
        ours = {worker: found.processing_s(key, load, worker) for worker in WORKERS}
        pair = {"n1": ours["n1"], "n2, n3": max(ours["n2"], ours["n3"])}
        says = "n1 is quicker than the slower of n2 and n3."
        yield order_claim(table, f"{load}, {label(key)}", says, list(pair), pair)


def _network(found: Found) -> Iterator[Claim]:
    title = found.scenario.title
    table = f"{NAMES[title].figure}(d)"
    delay_s = {key: found.network_s(key) for key in (*_DACS, *((name, "") for name in BASELINES))}
    dacs = {"dacs": max(delay_s[key] for key in _DACS), "tsra": delay_s["tsra", ""]}
    says = "DACS has a lower network delay than TSRA, whatever alpha."
    yield order_claim(table, "all users", says, list(dacs), dacs)
    others = {
        "tsra": delay_s["tsra", ""],
        "the others": min(delay_s[name, ""] for name in BASELINES if name != "tsra"),
    }
    says = "TSRA has a lower network delay than the other four."
    yield order_claim(table, "all users", says, list(others), others, WHY_TSRA_IS_FAR)
    if title == "scenario 2":
        alphas = {option: delay_s["dacs", option] for _, option in _DACS}
        says = "DACS' network delay is lowest with alpha 0.25."
        yield order_claim(table, "all users", says, list(alphas), alphas)


def _completion(found: Found) -> Iterator[Claim]:
    title = found.scenario.title
    table = NAMES[title].table
    best = ("dacs", QUICKEST[title][0])
    for at, load in enumerate(ITERATIONS):
        total_s = {
            key: found.completion_s(key, load)
            for key in (*_DACS, *((name, "") for name in BASELINES))
        }
        ranked = {label(best): total_s[best], **{name: total_s[name, ""] for name in BASELINES}}
        says = "The methods, the quickest first."
        yield order_claim(table, load, says, list(ranked), ranked, WHY_ORDER)
        alphas = {option: total_s["dacs", option] for option in QUICKEST[title]}
        says = "DACS' alphas, the quickest first."
        yield order_claim(table, load, says, list(alphas), alphas, WHY_ALPHAS[title])
        for name, gains in GAINS[title].items():
            ours = gain_percent(total_s[best], total_s[name, ""])
            says = f"{label(best)} takes less time than {name}."
            yield gain_claim(table, load, says, gains[at], ours, WHY_GAIN.get((load, name), ""))

"""NetSched's experiments (Section IV-B): where 90, 110 and 130 pods go on four equal workers, where
pods go when three of the four are throttled (Fig. 5 to 8), and how long these take to send their
data (Fig. 9 and 10).

"Network-aware scheduler (NetSched) for containerized applications in an multilevel
edge/fog/cloud distributed environment". The test bed (Fig. 2) is four Raspberry Pi 3 workers and a
master that takes no pods. Of Fig. 3, which shows etcd's response times without numbers, remains
what the text concludes from it: that the pods are spread as the original spreads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, product
from random import Random
from typing import NamedTuple

import numpy as np
import simpy
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, Taint
from leadline_controller.framework.view import Floats, Ints, NodeMetrics
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched
from numpy.typing import ArrayLike

from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.network import Network
from leadline_experiments.result import (
    Claim,
    Figure,
    Kind,
    Progress,
    Result,
    Row,
    Series,
    Setting,
    count_claim,
    make_claim,
    order_claim,
)

MB = 10**6
FREE, *THROTTLED = WORKERS = ("pi-1", "pi-2", "pi-3", "pi-4")
MASTER = "master"
FREE_MBPS, MASTER_MBPS = 94.0, 940.0
THROTTLED_MBPS = 1.0
_BOARD = {CPU: 4000, MEMORY: 971 * MB, PODS: 110}
_MASTER = {CPU: 8000, MEMORY: 16_000 * MB, PODS: 110}
# What ran on each worker before: requested thousandths of a core and MB.
_BEFORE = {"pi-1": (6, 62), "pi-2": (0, 0), "pi-3": (3, 32), "pi-4": (1, 10)}
_IDLE_CPU_PERCENT, _IDLE_MEMORY_PERCENT = 6.0, 40.0
_IDLE_PACKETS_PER_S, _IDLE_DISK_BYTES_PER_S = 50.0, 2000.0
_POD_CPU_PERCENT, _POD_MEMORY_PERCENT = 0.1, 0.3
_DECISION_S, _READING_S = 0.005, 0.02
_MASTER_TAINT = Taint("node-role.kubernetes.io/master", "", "NoSchedule")


class Conditions(NamedTuple):
    """What the throttled workers' network is like, and how precise measurements are.

    cpu_percent, packets_per_s: the load of the network demand on each of them; packets each way.
    link_mbps: of their links. noise: the relative standard deviation of every measurement.
    """

    cpu_percent: float
    packets_per_s: float
    link_mbps: float = THROTTLED_MBPS
    noise: float = 0.0


CONGESTED = Conditions(cpu_percent=20.0, packets_per_s=400.0)
THROTTLED_ONLY = Conditions(0.0, 0.0)
UNCONGESTED = Conditions(0.0, 0.0, FREE_MBPS)
_NOISE = 0.02


class PodKind(NamedTuple):
    """A kind of pod and its requests, in thousandths of a core and MB."""

    name: str
    cpu_milli: int
    memory_mb: int

    def pods(self, count: int) -> list[Pod]:
        """`count` pods, each of its own deployment."""
        requests = {CPU: self.cpu_milli, MEMORY: self.memory_mb * MB, PODS: 1}
        return [Pod("default", f"{self.name}-{i}", requests=requests) for i in range(1, count + 1)]


PAUSE = PodKind("pause", 1, 10)
SENDER = PodKind("sender", 3, 30)

SETTINGS: Mapping[str, Setting] = {
    "workers": Setting(
        "4 with 4 cores and 971 MB allocatable, 110 pods at most: Raspberry Pi 3 Model B", "paper"
    ),
    "links of free workers": Setting(f"{FREE_MBPS:g} Mbit/s: 100 Mbit/s Ethernet", "chosen"),
    "link of the master": Setting(f"{MASTER_MBPS:g} Mbit/s: gigabit Ethernet", "chosen"),
    "links of throttled workers": Setting(
        f"{THROTTLED_MBPS:g} Mbit/s; the paper says: a minimum", "chosen"
    ),
    "demand on throttled workers": Setting(
        f"{CONGESTED.cpu_percent:g} % of their CPU and {CONGESTED.packets_per_s:g} packets/s each "
        "way; the paper says: a high demand for network resources",
        "chosen",
    ),
    "an idle worker": Setting(
        f"uses {_IDLE_CPU_PERCENT:g} % CPU, {_IDLE_MEMORY_PERCENT:g} % memory, "
        f"{_IDLE_PACKETS_PER_S:g} packets/s each way and {_IDLE_DISK_BYTES_PER_S / 1000:g} kB/s of "
        "disk input and output",
        "chosen",
    ),
    "a placed pod": Setting(
        f"adds {_POD_CPU_PERCENT:g} % CPU and {_POD_MEMORY_PERCENT:g} % memory", "chosen"
    ),
    "pod of Fig. 7": Setting(
        f"requests {PAUSE.cpu_milli} thousandth of a core and {PAUSE.memory_mb} MB, as in "
        "clusterloader2's density test",
        "chosen",
    ),
    "pod of Fig. 8": Setting(
        f"requests {SENDER.cpu_milli} thousandths of a core and {SENDER.memory_mb} MB, so that the "
        "original's 1/4/2/3 comes out",
        "fitted",
    ),
    "requested on workers 1 to 4 before": Setting(
        f"{', '.join(str(milli) for milli, _ in _BEFORE.values())} thousandths of a core and "
        f"{', '.join(str(mb) for _, mb in _BEFORE.values())} MB, so that the original's "
        "19/25/22/24 comes out",
        "fitted",
    ),
    "noise of measurements": Setting(
        f"none in Fig. 5 to 10; a standard deviation of {_NOISE:.0%} where it says so", "chosen"
    ),
    "time to assign a pod": Setting(
        f"{_DECISION_S:g} s, and {_READING_S:g} s for every value that the method reads of a "
        "worker; the paper's NetSched asks Prometheus for each pod, Leadline does not",
        "chosen",
    ),
}


class Placement(NamedTuple):
    """counts: pods on each worker, in the order of WORKERS. least_lead: the smallest lead of the
    free worker's total over the best other total, in any decision while it had room."""

    counts: Sequence[int]
    least_lead: float


def place(
    strategy: Strategy,
    pods: Sequence[Pod],
    random: Random,
    conditions: Conditions = CONGESTED,
    workers: Sequence[str] = WORKERS,
) -> Placement:
    """Place pods one after the other; each decision sees the usage of the pods before it. workers:
    in the order of their names. random: for ties and noise."""
    names = [*workers, MASTER]
    before = [*(_BEFORE[name] for name in workers), (0, 0)]
    cpu, memory = (np.array(column) for column in zip(*before, strict=True))
    view = view_of(
        [
            *(Node(name, _BOARD, tier="edge") for name in workers),
            Node(MASTER, _MASTER, taints=(_MASTER_TAINT,)),
        ],
        requested={CPU: cpu, MEMORY: memory * MB, PODS: np.zeros(len(names), dtype=np.int64)},
    )
    noise = np.random.default_rng(random.getrandbits(32))
    pods_on = np.zeros(len(names), dtype=np.int64)
    leads = []
    for pod in pods:
        view = replace(view, metrics=_metrics(names, pods_on, conditions, noise))
        decision = decide(view, pod, FILTERS, strategy, random)
        assert decision.node is not None, decision.why  # noqa: S101  # the boards hold them all
        node = view.table.index[decision.node]
        view = view.with_placement(pod, node, strategy.charge(view, pod, node))
        pods_on[node] += 1
        totals = {name: total or 0.0 for name, (total, _) in decision.scores().items()}
        if FREE in totals and len(totals) > 1:
            leads.append(totals.pop(FREE) - max(totals.values()))
    return Placement([int(pods_on[names.index(name)]) for name in WORKERS], min(leads))


def _metrics(
    names: Sequence[str], pods: Ints, conditions: Conditions, noise: np.random.Generator
) -> NodeMetrics:
    throttled = np.array([name in THROTTLED for name in names])

    def measured(exact: ArrayLike) -> Floats:
        return np.asarray(exact) * (1 + conditions.noise * noise.standard_normal(len(names)))

    packets = _IDLE_PACKETS_PER_S + throttled * conditions.packets_per_s
    cpu = _IDLE_CPU_PERCENT + pods * _POD_CPU_PERCENT + throttled * conditions.cpu_percent
    return NodeMetrics(
        cpu_percent=measured(cpu),
        memory_percent=measured(_IDLE_MEMORY_PERCENT + pods * _POD_MEMORY_PERCENT),
        packets_sent_per_s=measured(packets),
        packets_received_per_s=measured(packets),
        disk_bytes_per_s=measured(np.full(len(names), _IDLE_DISK_BYTES_PER_S)),
        bandwidth_mbps=measured(np.where(throttled, conditions.link_mbps, FREE_MBPS)),
    )


def delivery_s(counts: Sequence[int], size_mb: float) -> float:
    """Seconds until the last container has sent `size_mb` MB to the master; all start at once.

    counts: containers on each worker, in the order of WORKERS. The containers of a worker share
    its link, and all share the master's link, max-min fairly.
    """
    env = simpy.Environment()
    throttled_mbps = dict.fromkeys(THROTTLED, THROTTLED_MBPS)
    links_mbps = {FREE: FREE_MBPS, **throttled_mbps, MASTER: MASTER_MBPS}
    network = Network(env, links_mbps, {name: (name, MASTER) for name in WORKERS})
    for name, count in zip(WORKERS, counts, strict=True):
        for _ in range(count):
            network.download(name, size_mb)
    env.run()
    return float(env.now)


def best_delivery_s(count: int, size_mb: float) -> float:
    """The shortest delivery of any placement of `count` equal containers, by trying all."""
    # A placement is a split of the row of containers at the bars between the workers.
    bars = combinations_with_replacement(range(count + 1), len(WORKERS) - 1)
    placements = (tuple(b - a for a, b in pairwise((0, *bar, count))) for bar in bars)
    return min(delivery_s(counts, size_mb) for counts in placements)


_METHODS: Mapping[str, Strategy] = {"kube-default": KubeDefault(), "netsched": NetSched()}
_SENT_MB = 100
_DRAWS = 100
_NOISY_DRAWS = 20
_WHOLE_POINTS = KubeDefault(rounding="whole")
_LOADS = (90, 110, 130)  # pods of the three executions of Section IV-B
# A worker with more pods than this times the fullest one of the original's is overloaded, and
# workers whose CPU use differs by less than this factor have a similar use.
_MOST_OVER_ORIGINAL, _SIMILAR = 1.1, 1.5
_WHY_FIVE = (
    "Eq. 1-2 level what is asked for, and no load on the workers that is the same in all three "
    "runs gives all three of the paper's counts. Fig. 8's two columns together need worker 1 to "
    "start exactly two senders above worker 2, and worker 4 exactly one: a ratio of 2. Fig. 7 "
    "needs worker 1 at least 5 pods above worker 2, and worker 4 at most 2: a ratio of 2.5 or "
    "more. Most likely chance played a part: kube-scheduler rounds its scores to whole points, so "
    "that small pods tie. With such points (rounding=whole) {found} of {draws} draws give the "
    "paper's counts here, and in the lab kube-scheduler 1.36 itself puts five small pods on four "
    "equal, empty boards 3/2/0/0."
)


class _Trial(NamedTuple):
    """One test of the paper, and its pods on each worker by kube-default and by NetSched."""

    table: str
    case: str
    pods: Sequence[Pod]
    spread: Sequence[int]
    together: Sequence[int]

    @property
    def paper(self) -> Mapping[str, Sequence[int]]:
        """The pods on each worker by method."""
        return {"kube-default": self.spread, "netsched": self.together}


_TRIALS = (
    _Trial("Fig. 7", "90 pods", PAUSE.pods(90), (19, 25, 22, 24), (90, 0, 0, 0)),
    _Trial("Fig. 8", "5 pods, 500 MB", SENDER.pods(5), (1, 2, 1, 1), (5, 0, 0, 0)),
    _Trial("Fig. 8", "10 pods, 1 GB", SENDER.pods(10), (1, 4, 2, 3), (10, 0, 0, 0)),
)
_DURATIONS = (("Fig. 9", _TRIALS[1]), ("Fig. 10", _TRIALS[2]))
_SAYS = {
    "kube-default": "The original spreads the pods, whatever the network is like.",
    "netsched": "NetSched puts every pod on the worker whose link is free.",
}
_Counts = Mapping[tuple[str, str], Sequence[float]]  # pods on each worker, by case and method
_DurationsS = Mapping[tuple[str, str], float]  # by table and method


def run(seed: int, progress: Progress, strategy: Strategy | None = None) -> Result:
    """Run the whole experiment; see Experiment. The seed is for ties and for noise."""
    methods = {**({strategy.name: strategy} if strategy else {}), **_METHODS}
    counts = {
        (trial.case, name): place(method, trial.pods, Random(seed)).counts
        for trial in _TRIALS
        for name, method in methods.items()
    }
    progress(0.2)
    equal = _equal_workers(methods, seed, lambda share: progress(0.2 + share * 0.6))
    matches = {trial.case: _matching_draws(trial, seed) for trial in _TRIALS}
    # The time of Fig. 9 and 10: assign all pods, then send until the last one is done.
    durations_s = {
        (table, name): len(trial.pods) * _assign_s(method)
        + delivery_s([round(count) for count in counts[trial.case, name]], _SENT_MB)
        for table, trial in _DURATIONS
        for name, method in methods.items()
    }
    return Result(
        "netsched",
        "NetSched, Section IV-B",
        SETTINGS,
        [
            *_count_rows(methods, counts, matches),
            *_other_rows(methods, equal, seed),
            *_time_rows(methods, durations_s),
        ],
        [*_claims(counts, matches, durations_s), *_equal_claims(equal)],
        list(_figures(methods, counts, equal, durations_s)),
    )


def _equal_workers(methods: Mapping[str, Strategy], seed: int, progress: Progress) -> _Counts:
    """The pods on each of four equal workers, by case; with noise the means of _NOISY_DRAWS, in
    each draw the fullest worker first."""
    counts: dict[tuple[str, str], Sequence[float]] = {}
    for at, (load, (name, method)) in enumerate(product(_LOADS, methods.items())):
        pods = PAUSE.pods(load)
        counts[_exact(load), name] = place(method, pods, Random(seed), UNCONGESTED).counts
        noisy = UNCONGESTED._replace(noise=_NOISE)
        draws = [
            sorted(place(method, pods, Random(seed + n), noisy).counts, reverse=True)
            for n in range(_NOISY_DRAWS)
        ]
        counts[_noisy(load), name] = np.mean(draws, axis=0).tolist()
        progress((at + 1) / (len(_LOADS) * len(methods)))
    return counts


def _exact(load: int) -> str:
    return f"{load} pods, equal measurements"


def _noisy(load: int) -> str:
    return f"{load} pods, noise of {_NOISE:.0%}"


def _matching_draws(trial: _Trial, seed: int) -> int:
    """The number of draws out of _DRAWS in which the original has the paper's counts, with whole
    points as scores and ties broken at random."""
    draws = (place(_WHOLE_POINTS, trial.pods, Random(seed + n)) for n in range(_DRAWS))
    return sum(tuple(draw.counts) == trial.paper["kube-default"] for draw in draws)


def _assign_s(method: Strategy) -> float:
    """Per pod: the paper's NetSched reads every metric of every worker anew."""
    return _DECISION_S + _READING_S * len(method.needs) * len(WORKERS)


def _count_rows(
    methods: Mapping[str, Strategy], counts: _Counts, matches: Mapping[str, int]
) -> Iterator[Row]:
    for trial in _TRIALS:
        for name in methods:
            papers = trial.paper.get(name, (None,) * len(WORKERS))
            ours = counts[trial.case, name]
            for worker, paper, count in zip(WORKERS, papers, ours, strict=True):
                labels = (trial.table, trial.case, name, "", f"pods on {worker}")
                yield Row(*labels, paper, count, is_headline=trial is _TRIALS[0])
    metric = f"draws of {_DRAWS} with the paper's counts"
    for case, count in matches.items():
        yield Row("Fig. 7-8", case, "kube-default", "rounding=whole", metric, None, count)
    for name in methods:
        for worker, count in zip(WORKERS, counts[_TRIALS[0].case, name], strict=True):
            labels = ("Fig. 5-6", "90 pods", name, "", f"CPU added on {worker}, %")
            yield Row(*labels, None, count * _POD_CPU_PERCENT)


def _other_rows(methods: Mapping[str, Strategy], equal: _Counts, seed: int) -> Iterator[Row]:
    """Equal workers; more pods than the free worker holds; and how much Fig. 7 depends on the load
    of the throttled workers, since bandwidth is 2 of 10 points."""
    ranks = ("the fullest worker", "the second worker", "the third worker", "the fourth worker")
    for (case, name), counts in equal.items():
        places = WORKERS if case in map(_exact, _LOADS) else ranks
        for where, count in zip(places, counts, strict=True):
            yield Row("Section IV-B.1", case, name, "", f"pods on {where}", None, count)
    table = "Section IV-B.3"
    for load, (name, method) in product(_LOADS[1:], methods.items()):
        counts = place(method, PAUSE.pods(load), Random(seed)).counts
        for worker, count in zip(WORKERS, counts, strict=True):
            yield Row(table, f"{load} pods", name, "", f"pods on {worker}", None, count)
    last = (*THROTTLED, FREE)
    for case, conditions, workers in (
        ("90 pods", CONGESTED, WORKERS),
        ("90 pods, throttled but idle", THROTTLED_ONLY, WORKERS),
        ("90 pods, throttled but idle, the free worker's name is the last", THROTTLED_ONLY, last),
    ):
        placement = place(NetSched(), _TRIALS[0].pods, Random(seed), conditions, workers)
        yield Row(table, case, "netsched", "", "pods on pi-1", None, placement.counts[0])
        yield Row(table, case, "netsched", "", "least lead, points", None, placement.least_lead)


def _time_rows(methods: Mapping[str, Strategy], durations_s: _DurationsS) -> Iterator[Row]:
    for name, method in methods.items():
        yield Row("Fig. 4", "each pod", name, "", "time to assign, s", None, _assign_s(method))
    for table, trial in _DURATIONS:
        best_s = best_delivery_s(len(trial.pods), _SENT_MB)
        for name in methods:
            labels = (table, trial.case, name, "", "execution time, s")
            yield Row(*labels, None, durations_s[table, name], best_s, is_headline=True)


def _claims(
    counts: _Counts, matches: Mapping[str, int], durations_s: _DurationsS
) -> Iterator[Claim]:
    """The throttled workers are slower and busier by the set-up, so NetSched's choice and what
    follows from it is by construction; the original's counts are fitted."""
    for trial in _TRIALS:
        for name, kind in _KINDS.items():
            ours = [round(count) for count in counts[trial.case, name]]
            why = ""
            if (len(trial.pods), name) == (5, "kube-default"):
                why = _WHY_FIVE.format(found=matches[trial.case], draws=_DRAWS)
            case = f"{trial.case}, {name}"
            yield count_claim(trial.table, case, _SAYS[name], trial.paper[name], ours, why, kind)
    assign_s = {name: _assign_s(method) for name, method in _METHODS.items()}
    says = "The original assigns a pod faster."
    yield order_claim("Fig. 4", "each pod", says, assign_s, kind="by-construction")
    says = "The original uses the CPUs of all workers alike."
    spread = counts["90 pods", "kube-default"]
    texts = "similar", f"{max(spread) / min(spread):.2f} times"
    is_similar = max(spread) < _SIMILAR * min(spread)
    yield make_claim("Fig. 5", "90 pods", says, "order", texts, is_similar, kind="fitted")
    says = "With NetSched the CPU use of the unmodified worker rises, and of no other."
    together = counts["90 pods", "netsched"]
    texts = WORKERS[0], " ".join(w for w, n in zip(WORKERS, together, strict=True) if n)
    is_alone = texts[0] == texts[1]
    yield make_claim("Fig. 6", "90 pods", says, "exact", texts, is_alone, kind="by-construction")
    says = "All is sent earlier with NetSched, in spite of its latency."
    for table, trial in _DURATIONS:
        ours_s = {name: durations_s[table, name] for name in ("netsched", "kube-default")}
        yield order_claim(table, trial.case, says, ours_s, kind="by-construction")


_KINDS: Mapping[str, Kind] = {"kube-default": "fitted", "netsched": "by-construction"}


def _equal_claims(equal: _Counts) -> Iterator[Claim]:
    """Measurements are never equal on real boards, so the claims are on those with noise. With
    equal ones the first worker by name wins every tie; the rows have that."""
    for load in _LOADS:
        fullest = {name: max(equal[_noisy(load), name]) for name in _METHODS}
        holds = fullest["netsched"] <= _MOST_OVER_ORIGINAL * fullest["kube-default"]
        says = "NetSched spreads pods like the original, without overloading any node."
        texts = "similar", "{netsched:.1f} on the fullest, {kube-default:.1f}".format(**fullest)
        why = "It overloads a node."
        yield make_claim("Section IV-B.1", _noisy(load), says, "order", texts, holds, why)


def _figures(
    methods: Mapping[str, Strategy], counts: _Counts, equal: _Counts, durations_s: _DurationsS
) -> Iterator[Figure]:
    throttled = "three of four workers throttled"
    cpu = [
        Series(name, WORKERS, [n * _POD_CPU_PERCENT for n in counts["90 pods", name]])
        for name in methods
    ]
    title = f"Fig. 5 and 6: CPU use that 90 pods add, {throttled}"
    yield Figure("netsched-fig5-6", title, "worker", "CPU added (%)", "bars", cpu)
    for figure, title, trials in (
        ("fig7", f"Fig. 7: 90 pods, {throttled}", _TRIALS[:1]),
        ("fig8", f"Fig. 8: 5 and 10 pods, {throttled}", _TRIALS[1:]),
    ):
        bars = [
            Series(
                name if len(trials) == 1 else f"{name}, {len(trial.pods)} pods",
                WORKERS,
                counts[trial.case, name],
            )
            for trial in trials
            for name in methods
        ]
        yield Figure(f"netsched-{figure}", title, "worker", "pods", "bars", bars)
    ranks = [str(n + 1) for n in range(len(WORKERS))]
    spread = [Series(name, ranks, equal[_noisy(90), name]) for name in methods]
    title = "Section IV-B.1: 90 pods on four equal workers, the fullest first"
    yield Figure("netsched-equal", title, "worker", "pods", "bars", spread)
    cases = [f"{table}: {trial.case}" for table, trial in _DURATIONS]
    times = [
        Series(name, cases, [durations_s[table, name] for table, _ in _DURATIONS])
        for name in methods
    ]
    title = "Fig. 9 and 10: until the last pod has sent 100 MB"
    yield Figure("netsched-fig9-10", title, "", "execution time (s)", "bars", times)

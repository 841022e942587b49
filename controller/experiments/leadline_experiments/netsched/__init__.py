"""NetSched's experiments (Section IV-B): where 90, 5 and 10 pods go when three of four workers
are throttled (Fig. 7 and 8), and how long the pods take to send their data (Fig. 9 and 10).

"Network-aware scheduler (NetSched) for containerized applications in an multilevel
edge/fog/cloud distributed environment". Fig. 3, 5 and 6 are left out: they show the load of etcd
and of the workers' CPUs, without numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched

from leadline_experiments.netsched.simulation import (
    CALIBRATION,
    NO_DEMAND,
    PAUSE,
    SENDER,
    WORKERS,
    Placement,
    best_delivery_s,
    delivery_s,
    place,
)
from leadline_experiments.result import (
    Claim,
    Figure,
    Progress,
    Result,
    Row,
    Series,
    count_claim,
    order_claim,
)

_PAPER = "NetSched, Section IV-B"
_METHODS: Mapping[str, Strategy] = {"kube-default": KubeDefault(), "netsched": NetSched()}
_DECISION_S, _READING_S = 0.005, 0.02
_SENT_MB = 100
_DRAWS = 100
_WHOLE_POINTS = KubeDefault(rounding="whole")
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
_Placements = Mapping[tuple[str, str], Placement]  # by case and method
_DurationsS = Mapping[tuple[str, str], float]  # by table and method


def run(seed: int, progress: Progress) -> Result:
    """Run the whole experiment; see Experiment. The seed breaks ties: in the draws of the original
    with whole points, and on idle throttled workers."""
    placements = {}
    for number, trial in enumerate(_TRIALS, start=1):
        for name in _METHODS:
            placements[trial.case, name] = place(_METHODS[name], trial.pods, Random(seed))
        progress(number / (len(_TRIALS) + 1))
    idle = place(_METHODS["netsched"], _TRIALS[0].pods, Random(seed), NO_DEMAND)
    matches = {trial.case: _matching_draws(trial, seed) for trial in _TRIALS}
    # The time of Fig. 9 and 10: assign all pods, then send until the last one is done.
    durations_s = {
        (table, name): len(trial.pods) * _assign_s(name)
        + delivery_s(placements[trial.case, name].counts, _SENT_MB)
        for table, trial in _DURATIONS
        for name in _METHODS
    }
    return Result(
        "netsched",
        _PAPER,
        {
            **CALIBRATION,
            "time to assign a pod": (
                f"{_DECISION_S:g} s, and {_READING_S:g} s for every value that the method reads of "
                "a worker (the paper: NetSched asks Prometheus for each pod; Leadline does not)"
            ),
        },
        [*_count_rows(placements, matches, idle), *_time_rows(durations_s)],
        list(_claims(placements, matches, durations_s)),
        list(_figures(placements, durations_s)),
    )


def _matching_draws(trial: _Trial, seed: int) -> int:
    """The number of draws out of _DRAWS in which the original has the paper's counts, with whole
    points as scores and ties broken at random."""
    draws = (place(_WHOLE_POINTS, trial.pods, Random(seed + n)) for n in range(_DRAWS))
    return sum(tuple(draw.counts) == trial.paper["kube-default"] for draw in draws)


def _assign_s(name: str) -> float:
    """Per pod: the paper's NetSched reads every metric of every worker anew."""
    return _DECISION_S + _READING_S * len(_METHODS[name].needs) * len(WORKERS)


def _count_rows(
    placements: _Placements, matches: Mapping[str, int], idle: Placement
) -> Iterator[Row]:
    for trial in _TRIALS:
        for name in _METHODS:
            ours = placements[trial.case, name].counts
            for worker, paper, count in zip(WORKERS, trial.paper[name], ours, strict=True):
                yield Row(trial.table, trial.case, name, "", f"pods on {worker}", paper, count)
    metric = f"draws of {_DRAWS} with the paper's counts"
    for case, count in matches.items():
        yield Row("Fig. 7-8", case, "kube-default", "rounding=whole", metric, None, count)
    # How much the outcome depends on the busy workers' load: bandwidth is 2 of 10 points.
    metric, trial = "least lead, points", _TRIALS[0]
    lead = placements[trial.case, "netsched"].least_lead
    yield Row(trial.table, trial.case, "netsched", "", metric, None, lead)
    case = f"{trial.case}, throttled but idle"
    yield Row(trial.table, case, "netsched", "", metric, None, idle.least_lead)
    for worker, count in zip(WORKERS, idle.counts, strict=True):
        yield Row(trial.table, case, "netsched", "", f"pods on {worker}", None, count)


def _time_rows(durations_s: _DurationsS) -> Iterator[Row]:
    for name in _METHODS:
        yield Row("Fig. 4", "each pod", name, "", "time to assign, s", None, _assign_s(name))
    for table, trial in _DURATIONS:
        best_s = best_delivery_s(len(trial.pods), _SENT_MB)
        for name in _METHODS:
            ours_s = durations_s[table, name]
            yield Row(table, trial.case, name, "", "execution time, s", None, ours_s, best_s)


def _claims(
    placements: _Placements, matches: Mapping[str, int], durations_s: _DurationsS
) -> Iterator[Claim]:
    for trial in _TRIALS:
        for name in _METHODS:
            paper, ours = trial.paper[name], placements[trial.case, name].counts
            why = ""
            if (len(trial.pods), name) == (5, "kube-default"):
                why = _WHY_FIVE.format(found=matches[trial.case], draws=_DRAWS)
            case = f"{trial.case}, {name}"
            yield count_claim(trial.table, case, _SAYS[name], paper, ours, why)
    assign_s = {name: _assign_s(name) for name in ("kube-default", "netsched")}
    yield order_claim("Fig. 4", "each pod", "The original assigns a pod faster.", assign_s)
    says = "All is sent earlier with NetSched, in spite of its latency."
    for table, trial in _DURATIONS:
        ours_s = {name: durations_s[table, name] for name in ("netsched", "kube-default")}
        yield order_claim(table, trial.case, says, ours_s)


def _figures(placements: _Placements, durations_s: _DurationsS) -> Iterator[Figure]:
    throttled = "three of four workers throttled"
    for name, title, trials in (
        ("fig7", f"Fig. 7: 90 pods, {throttled}", _TRIALS[:1]),
        ("fig8", f"Fig. 8: 5 and 10 pods, {throttled}", _TRIALS[1:]),
    ):
        counts = [
            Series(
                method if len(trials) == 1 else f"{method}, {len(trial.pods)} pods",
                WORKERS,
                placements[trial.case, method].counts,
            )
            for trial in trials
            for method in _METHODS
        ]
        yield Figure(f"netsched-{name}", title, "worker", "pods", "bars", counts)
    cases = [f"{table}: {trial.case}" for table, trial in _DURATIONS]
    times = [
        Series(method, cases, [durations_s[table, method] for table, _ in _DURATIONS])
        for method in _METHODS
    ]
    title = "Fig. 9 and 10: until the last pod has sent 100 MB"
    yield Figure("netsched-fig9-10", title, "", "execution time (s)", "bars", times)

"""NetSched's experiments (Section IV-B): where 90, 5 and 10 pods go when three of four workers
are throttled (Fig. 7 and 8), and how long these then take to send their data (Fig. 9 and 10).

"Network-aware scheduler (NetSched) for containerized applications in an multilevel
edge/fog/cloud distributed environment". Fig. 3, 5 and 6 are left out: they show the load that
etcd and the workers' CPUs had, without numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched

from leadline_experiments.netsched.boards import (
    CALIBRATION,
    DEMAND,
    NO_DEMAND,
    PAUSE,
    SENDER,
    WORKERS,
    Kind,
    Load,
    Placed,
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
    """One test of the paper: so many pods, and what the paper counts on each worker."""

    table: str
    case: str
    kind: Kind
    pods: int
    paper: Mapping[str, Sequence[int]]


_TRIALS = (
    _Trial(
        "Fig. 7",
        "90 pods",
        PAUSE,
        90,
        {"kube-default": (19, 25, 22, 24), "netsched": (90, 0, 0, 0)},
    ),
    _Trial(
        "Fig. 8",
        "5 pods, 500 MB",
        SENDER,
        5,
        {"kube-default": (1, 2, 1, 1), "netsched": (5, 0, 0, 0)},
    ),
    _Trial(
        "Fig. 8",
        "10 pods, 1 GB",
        SENDER,
        10,
        {"kube-default": (1, 4, 2, 3), "netsched": (10, 0, 0, 0)},
    ),
)
_DURATIONS = (("Fig. 9", _TRIALS[1]), ("Fig. 10", _TRIALS[2]))
_SAYS = {
    "kube-default": "The original spreads the pods, whatever the network is like.",
    "netsched": "NetSched puts every pod on the worker whose link is free.",
}


def run(seed: int, progress: Progress) -> Result:
    """Run all of it; see Experiment. The seed plays a part only where totals tie: in the draws of
    the original with whole points, and where the throttled workers are idle."""
    placed = {}
    for number, trial in enumerate(_TRIALS, start=1):
        for name in _METHODS:
            placed[trial.case, name] = _place(trial, name, seed)
        progress(number / (len(_TRIALS) + 1))
    alone = _place(_TRIALS[0], "netsched", seed, NO_DEMAND)
    drawn = {trial.case: _drawn(trial, seed) for trial in _TRIALS}
    seconds = {
        (table, name): _duration_s(trial, name, placed[trial.case, name].counts)
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
        [
            *_count_rows(placed),
            *_chance_rows(drawn),
            *_sensitivity(placed, alone),
            *_time_rows(seconds),
        ],
        [*_count_claims(placed, drawn), *_time_claims(seconds)],
        _figures(placed, seconds),
    )


_Counts = Mapping[tuple[str, str], Placed]
_Seconds = Mapping[tuple[str, str], float]


def _place(trial: _Trial, name: str, seed: int, demand: Load = DEMAND) -> Placed:
    random = Random(seed)
    return place(_METHODS[name], trial.kind.pods(trial.pods), random, demand)


def _drawn(trial: _Trial, seed: int) -> int:
    """In how many of _DRAWS runs the original's counts are the paper's, if its scores are whole
    points and chance decides between equal ones."""
    draws = (
        place(_WHOLE_POINTS, trial.kind.pods(trial.pods), Random(seed + number))
        for number in range(_DRAWS)
    )
    return sum(tuple(drawn.counts) == trial.paper["kube-default"] for drawn in draws)


def _assign_s(name: str) -> float:
    """Per pod: the paper's NetSched reads every metric of every worker anew."""
    return _DECISION_S + _READING_S * len(_METHODS[name].needs) * len(WORKERS)


def _duration_s(trial: _Trial, name: str, counts: Sequence[int]) -> float:
    """What Fig. 9 and 10 show: assigning all pods, then sending until the last is through."""
    return trial.pods * _assign_s(name) + delivery_s(counts, _SENT_MB)


def _count_rows(placed: _Counts) -> Iterator[Row]:
    for trial in _TRIALS:
        for name in _METHODS:
            pairs = zip(WORKERS, trial.paper[name], placed[trial.case, name].counts, strict=True)
            for worker, paper, ours in pairs:
                yield Row(trial.table, trial.case, name, "", f"pods on {worker}", paper, ours)


def _chance_rows(drawn: Mapping[str, int]) -> Iterator[Row]:
    metric = f"draws of {_DRAWS} with the paper's counts"
    for case, found in drawn.items():
        yield Row("Fig. 7-8", case, "kube-default", "rounding=whole", metric, None, found)


def _sensitivity(placed: _Counts, alone: Placed) -> Iterator[Row]:
    """How much the outcome hangs on the busy workers' load: bandwidth is 2 of 10 points."""
    metric = "least lead, points"
    trial = _TRIALS[0]
    lead = placed[trial.case, "netsched"].least_lead
    yield Row(trial.table, trial.case, "netsched", "", metric, None, lead)
    case = f"{trial.case}, throttled but idle"
    yield Row(trial.table, case, "netsched", "", metric, None, alone.least_lead)
    for worker, ours in zip(WORKERS, alone.counts, strict=True):
        yield Row(trial.table, case, "netsched", "", f"pods on {worker}", None, ours)


def _time_rows(seconds: _Seconds) -> Iterator[Row]:
    for name in _METHODS:
        yield Row("Fig. 4", "each pod", name, "", "time to assign, s", None, _assign_s(name))
    for table, trial in _DURATIONS:
        best_s = best_delivery_s(trial.pods, _SENT_MB)
        for name in _METHODS:
            ours_s = seconds[table, name]
            yield Row(table, trial.case, name, "", "execution time, s", None, ours_s, best_s)


def _count_claims(placed: _Counts, drawn: Mapping[str, int]) -> Iterator[Claim]:
    for trial in _TRIALS:
        for name in _METHODS:
            paper, ours = trial.paper[name], placed[trial.case, name].counts
            case = f"{trial.case}, {name}"
            yield count_claim(trial.table, case, _SAYS[name], paper, ours, _why(trial, name, drawn))


def _why(trial: _Trial, name: str, drawn: Mapping[str, int]) -> str:
    if (trial.pods, name) != (5, "kube-default"):
        return ""
    return _WHY_FIVE.format(found=drawn[trial.case], draws=_DRAWS)


def _time_claims(seconds: _Seconds) -> Iterator[Claim]:
    assign_s = {name: _assign_s(name) for name in _METHODS}
    yield order_claim(
        *("Fig. 4", "each pod", "The original assigns a pod faster."),
        *(["kube-default", "netsched"], assign_s),
    )
    for table, trial in _DURATIONS:
        yield order_claim(
            *(table, trial.case, "All is sent earlier with NetSched, in spite of its latency."),
            *(["netsched", "kube-default"], {name: seconds[table, name] for name in _METHODS}),
        )


def _figures(placed: _Counts, seconds: _Seconds) -> Sequence[Figure]:
    counts = [
        Figure(
            *(f"netsched-{name}", title, "worker", "pods", "bars"),
            [
                Series(_label(trial, method), WORKERS, placed[trial.case, method].counts)
                for trial in trials
                for method in _METHODS
            ],
        )
        for name, title, trials in (
            ("fig7", "Fig. 7: 90 pods, three of four workers throttled", _TRIALS[:1]),
            ("fig8", "Fig. 8: 5 and 10 pods, three of four workers throttled", _TRIALS[1:]),
        )
    ]
    cases = [f"{table}: {trial.case}" for table, trial in _DURATIONS]
    times = [
        Series(method, cases, [seconds[table, method] for table, _ in _DURATIONS])
        for method in _METHODS
    ]
    title = "Fig. 9 and 10: until the last pod has sent 100 MB"
    return [*counts, Figure("netsched-fig9-10", title, "", "execution time (s)", "bars", times)]


def _label(trial: _Trial, method: str) -> str:
    return method if trial.pods == _TRIALS[0].pods else f"{method}, {trial.pods} pods"

"""All replays of the experiment: the methods that the paper compares, KubeDSM's variants and QoS
settings, each on the loads that its authors logged with it, and changes of one thing at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.view import Floats
from leadline_controller.strategies.cloud_first import CloudFirst
from leadline_controller.strategies.edge_first import BiggestEdgeFirst, SmallestEdgeFirst
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.decision import Quality

from leadline_experiments.kubedsm.logs import K8S_2024, Log, logs, mean_over_runs
from leadline_experiments.kubedsm.simulation import (
    OTHER_CORES,
    OTHER_GIB,
    SERVICES,
    EdgePreferred,
    Method,
    Outcome,
    Rules,
    best_possible,
    kubedsm,
    replay,
)
from leadline_experiments.result import Progress

BY_LOAD = tuple(f"{load}_0.4" for load in (1.1, 1.2, 1.3, 1.4, 1.5, 1.6))  # Fig. 4
BY_SPREAD = tuple(f"1.5_{spread}" for spread in (0.1, 0.2, 0.3, 0.4, 0.5))  # Fig. 5
ALL = (*BY_LOAD, *BY_SPREAD)  # the eleven workloads; 1.5_0.4 is in both figures
VARIED = "1.4_0.4"  # the workload of Fig. 10 and 11
LOGGED_VARIED = ("1.3_0.4", VARIED)
# Draws of chance, of methods that never move a pod: they depend on it most, and Fig. 10 has but one
# workload.
AVERAGED, AVERAGED_VARIED = 3, 11

K8S, KUBEDSM, CF = "kube-default", "kubedsm", "cloud-first"
BASELINES = (K8S, "sef", "bef", CF)
JOINING = "joining"

# The authors' program does not see the other pods, so it keeps that much less free.
_KEPT = {"keep_cores": 1 - OTHER_CORES, "keep_gib": 1 - OTHER_GIB}
METHODS: Mapping[str, Method] = {
    KUBEDSM: kubedsm(),
    K8S: Method(EdgePreferred()),
    "sef": Method(SmallestEdgeFirst(**_KEPT)),
    "bef": Method(BiggestEdgeFirst(**_KEPT)),
    CF: Method(CloudFirst(**_KEPT)),
}
# Fig. 10: M_C2E and M_ER.
LIMITS: Mapping[str, tuple[int, int]] = {
    "Original": (5, 3),
    "MidMig": (2, 1),
    "NoCloudOffload": (0, 3),
    "NoEdgeMig": (5, 0),
    "NoMig": (0, 0),
}
# Fig. 11.
TARGETS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    "AllEqual": dict.fromkeys("ABCD", 0.5),
    "CA": {"A": 0.5, "B": 0.1, "C": 1.0, "D": 0.1},
    "RespectD": {"A": 0.1, "B": 0.1, "C": 0.1, "D": 0.5},
}
_SAME_AS = {"Original": KUBEDSM, "default": KUBEDSM}
LOGGED_VARIANTS = tuple(name for name in (*LIMITS, *TARGETS) if name not in _SAME_AS)


def logged_loads(name: str) -> Sequence[str]:
    """The workloads on which a variant or setting is replayed."""
    return LOGGED_VARIED if name in LIMITS else (VARIED,)


class Change(NamedTuple):
    """A replay with one thing changed."""

    method: str  # whose logged loads it has
    changed: Method
    workloads: Sequence[str]
    rules: Rules = Rules()


CAPACITY, PROGRAM, NO_REORDER = "room=capacity", "qos=program last_replica=stays", "m_er=0"
MIDMIG_AS_ORIGINAL, ORIGINAL_AS_MIDMIG = "MidMig as Original", "Original as MidMig"
BY_EXACT_AGE = "scale-down by exact age"
# What the lab measures with real kubelets (python -m tests.system.kubedsm_live --kubelets): the
# median of 24 moves by eviction, and of 8 pulls of 20 MB over 100 Mbit/s. Containers that end and
# start at once; SLOW_S is for those that take longer.
MOVE_S, PULL_S, SLOW_S = 1.8, 2.4, 10.0
WORST_FIRST, AGES_KEPT = "worst replica first", "ages kept"
MOVES_COST, MOVES_SLOW = f"moves take {MOVE_S:g} s", f"moves take {SLOW_S:g} s"
COST_WORST_FIRST = f"{MOVES_COST}, {WORST_FIRST}"
RULES: Mapping[str, Rules] = {
    AGES_KEPT: Rules(keeps_ages=True),
    WORST_FIRST: Rules(worst_first=True),
    MOVES_COST: Rules(away_s=MOVE_S, pull_s=PULL_S),
    COST_WORST_FIRST: Rules(away_s=MOVE_S, pull_s=PULL_S, worst_first=True),
    MOVES_SLOW: Rules(away_s=SLOW_S, pull_s=PULL_S),
}


def with_rules(name: str, rules: str) -> str:
    """The name in CHANGES of a variant with one of RULES."""
    return f"{name}, {rules}"


_THREE = ("Original", "MidMig", "NoCloudOffload")
VARIANTS_RULES = [
    *((name, WORST_FIRST) for name in LIMITS),
    *((name, rules) for rules in (AGES_KEPT, MOVES_COST, COST_WORST_FIRST) for name in _THREE),
    *((name, MOVES_SLOW) for name in _THREE[:2]),
]
CHANGES: Mapping[str, Change] = {
    CAPACITY: Change(KUBEDSM, kubedsm(room="capacity"), (VARIED,)),
    PROGRAM: Change(KUBEDSM, kubedsm(qos="program", last_replica="stays"), (VARIED,)),
    NO_REORDER: Change(KUBEDSM, kubedsm(5, 0), BY_LOAD),
    ORIGINAL_AS_MIDMIG: Change(KUBEDSM, kubedsm(2, 1), (VARIED,)),
    MIDMIG_AS_ORIGINAL: Change("MidMig", kubedsm(), (VARIED,)),
    **{
        with_rules(name, rules): Change(
            _SAME_AS.get(name, name),
            kubedsm(*LIMITS[name]),
            LOGGED_VARIED if (name, rules) == ("NoCloudOffload", AGES_KEPT) else (VARIED,),
            RULES[rules],
        )
        for name, rules in VARIANTS_RULES
    },
    with_rules(ORIGINAL_AS_MIDMIG, MOVES_SLOW): Change(
        KUBEDSM, kubedsm(2, 1), (VARIED,), RULES[MOVES_SLOW]
    ),
    with_rules(MIDMIG_AS_ORIGINAL, MOVES_SLOW): Change(
        "MidMig", kubedsm(), (VARIED,), RULES[MOVES_SLOW]
    ),
    **{
        f"{name} as default": Change(name, kubedsm(), (VARIED,))
        for name in TARGETS
        if name not in _SAME_AS
    },
    **{
        f"{name} {NO_REORDER}": Change(name, kubedsm(5, 0, targets), (VARIED,))
        for name, targets in TARGETS.items()
        if name not in _SAME_AS
    },
    BY_EXACT_AGE: Change(K8S, METHODS[K8S], BY_LOAD, Rules(by_exact_age=True)),
}


class Runs:
    """Ratios in percent by workload and by name: one of METHODS, LIMITS, TARGETS or CHANGES,
    K8S_2024, or JOINING.

    Each is averaged as the authors do, over the ten runs of each sample and then over time.
    """

    def __init__(self, seed: int, progress: Progress, joining: Strategy | None = None) -> None:
        variants = {name: kubedsm(*limits) for name, limits in LIMITS.items()}
        variants |= {name: kubedsm(targets=targets) for name, targets in TARGETS.items()}
        every = tuple(dict.fromkeys(ALL))
        wanted = {name: Change(name, method, every) for name, method in METHODS.items()}
        wanted[K8S_2024] = Change(K8S_2024, METHODS[K8S], every)
        for name in LOGGED_VARIANTS:
            wanted[name] = Change(name, variants[name], logged_loads(name))
        wanted |= CHANGES
        if joining is not None:
            moving = joining if isinstance(joining, BatchStrategy) else None
            wanted[JOINING] = Change(KUBEDSM, Method(joining, moving), every)
        self._wanted, self._seed = wanted, seed
        self._outcomes: dict[tuple[str, str], Sequence[Sequence[Outcome]]] = {}  # draws, runs
        self._logs: dict[tuple[str, str], Sequence[Log]] = {}
        pairs = [(name, load) for name, each in wanted.items() for load in each.workloads]
        for done, (name, load) in enumerate(pairs):
            progress(done / len(pairs))
            self._logs[name, load] = logs()[wanted[name].method][load]
            averaged = AVERAGED_VARIED if load == VARIED else AVERAGED
            draws = 1 if wanted[name].changed.migration else averaged
            self._outcomes[name, load] = [self._replayed(name, load, draw) for draw in range(draws)]
        progress(1.0)

    def _replayed(self, name: str, load: str, draw: int) -> Sequence[Outcome]:
        _, changed, _, rules = self._wanted[name]
        return [
            replay(log, changed, Random(f"{self._seed} {draw} {load} {number}"), rules)
            for number, log in enumerate(self._logs[name, load])
        ]

    def draws(self, load: str, name: str) -> Floats:
        """The edge ratio in each draw of chance, %, shape (draws,)."""
        shares = (self._shares_of(runs, load, name) for runs in self._outcomes[name, load])
        return np.array([float(mean_over_runs(each).mean()) * 100 for each in shares])

    def _shares_of(self, runs: Sequence[Outcome], load: str, name: str) -> Sequence[Floats]:
        pairs = zip(runs, self._logs[name, load], strict=True)
        return [run.on_edge / log.pods for run, log in pairs]

    def _shares(self, load: str, name: str) -> Sequence[Floats]:
        """The mean over the draws, for each run."""
        key = _SAME_AS.get(name, name), load
        draws = [self._shares_of(runs, load, key[0]) for runs in self._outcomes[key]]
        return [np.mean(each, axis=0) for each in zip(*draws, strict=True)]

    def logged_shares(self, load: str, name: str) -> Sequence[Floats]:
        """The shares of the services on the edge in each logged run, shape (samples, services)."""
        return [log.shares for log in self._logs[_SAME_AS.get(name, name), load]]

    def by_service(self, load: str, name: str) -> dict[str, float]:
        """The edge ratio of each service, %."""
        return _by_service(self._shares(load, name))

    def logged_by_service(self, load: str, name: str) -> dict[str, float]:
        """The logged edge ratio of each service, %."""
        return _by_service(self.logged_shares(load, name))

    def ratio(self, loads: Iterable[str], name: str) -> float:
        """The edge ratio over services and workloads, %."""
        return float(np.mean([[*self.by_service(load, name).values()] for load in loads]))

    def logged_ratio(self, loads: Iterable[str], name: str) -> float:
        """The logged edge ratio over services and workloads, %."""
        return float(np.mean([[*self.logged_by_service(load, name).values()] for load in loads]))

    def best_ratio(self, loads: Iterable[str], name: str) -> float:
        """The highest edge ratio of any placement for the same pods, %."""
        keys = [(_SAME_AS.get(name, name), load) for load in loads]
        best = [[_best_ratios(log) for log in self._logs[key]] for key in keys]
        return float(np.mean([mean_over_runs(runs) for runs in best]) * 100)

    def deviation(self, load: str, name: str) -> float:
        """The population standard deviation of the services' edge ratios, percentage points."""
        return float(np.std([*self.by_service(load, name).values()]))

    def logged_deviation(self, load: str, name: str) -> float:
        """The same of the logs."""
        return float(np.std([*self.logged_by_service(load, name).values()]))

    def run_differences(self, loads: Iterable[str], name: str) -> Floats:
        """Replayed less logged edge ratio of every single run, percentage points, shape (runs,)."""
        pairs = [
            (ours.mean() * 100, logged.mean() * 100)
            for load in loads
            for ours, logged in zip(
                self._shares(load, name), self.logged_shares(load, name), strict=True
            )
        ]
        return np.array([ours - logged for ours, logged in pairs])

    def migrations(self, load: str, name: str) -> float:
        """The moves in a run, on average."""
        key = _SAME_AS.get(name, name), load
        return float(np.mean([run.migrations for runs in self._outcomes[key] for run in runs]))

    def qualities(self, load: str, name: str) -> tuple[float, float]:
        """QoS (Eq. 1, targets of 1) over all samples: the mean, and the mean of the optimum."""
        key = _SAME_AS.get(name, name), load
        ours, best = [], []
        for runs in self._outcomes[key]:
            for run, log in zip(runs, self._logs[key], strict=True):
                for pods, on_edge in zip(log.pods, run.on_edge, strict=True):
                    ours.append(float(_quality(tuple(pods.tolist())).of(on_edge)))
                    best.append(_best_quality(tuple(pods.tolist())))
        return float(np.mean(ours)), float(np.mean(best))


def _by_service(runs: Sequence[Floats]) -> dict[str, float]:
    return dict(zip(SERVICES, (mean_over_runs(runs) * 100).tolist(), strict=True))


def _best_ratios(log: Log) -> Floats:
    """The highest edge ratio at each sample, shape (samples,)."""
    return np.array([_best_ratio(tuple(pods)) for pods in log.pods.tolist()])


@cache
def _best_ratio(pods: tuple[int, ...]) -> float:
    return best_possible(np.array(pods))


@cache
def _quality(pods: tuple[int, ...]) -> Quality:
    default = KubeDsm()
    targets = np.full(len(pods), default.qos_target)
    return Quality(np.array(pods), targets, default.a, default.b, default.gamma)


@cache
def _best_quality(pods: tuple[int, ...]) -> float:
    return best_possible(np.array(pods), _quality(pods))

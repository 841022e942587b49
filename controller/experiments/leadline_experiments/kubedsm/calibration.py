"""The values chosen for what the KubeDSM paper leaves open, the same for every method."""

from collections.abc import Mapping, Sequence

from leadline_experiments.kubedsm.methods import KUBEDSM
from leadline_experiments.kubedsm.runs import AS_REPLICA_SET, REPLICATES, Runs
from leadline_experiments.kubedsm.scenario_run import INTERVAL_S, MIGRATION_S
from leadline_experiments.kubedsm.setting import BY_LOAD, CYCLES, ROUNDED_UP, Scenario
from leadline_experiments.kubedsm.tables import (
    BASELINES,
    LIKE_REPLICA_SET,
    PODS_ROUNDED_UP,
)
from leadline_experiments.result import gain_percent


def calibration(runs: Runs) -> Mapping[str, str]:
    """Every choice; for those that decide the outcome, also the results of the alternatives."""
    replica_set, most = _gains(runs, BY_LOAD, AS_REPLICA_SET)
    rounded_up, _ = _gains(runs, ROUNDED_UP, "")
    return {
        "load 1.0": "14 GB, the edge's memory, as it is scarcer than its cores; a quarter for each "
        "service, in whole pods (rounded down), at least one",
        "scale-down": "any pod of the service, each as likely",
        "chosen for what comes out": "the load's unit, its rounding and which pod leaves (any, the "
        "newest, the oldest, and as Kubernetes does, of the node with most of them the newest, "
        "were tried) were chosen after comparing outcomes with the paper's. As Kubernetes does "
        f"(rows '{LIKE_REPLICA_SET}') KubeDSM gains {replica_set:.1f} % over the best baseline of "
        f"Fig. 4 and no placement could gain more than {most:.1f} %, where the paper has 13.4 %; "
        f"rounded up (rows '{PODS_ROUNDED_UP}') it gains {rounded_up:.1f} %",
        "suggestions": f"one every {INTERVAL_S:g} s of a cycle of 90 s; edge ratios are means over "
        "the time",
        "migration": f"{MIGRATION_S:g} s, the paper's 'couple of seconds', in which the pod is not "
        "on the edge; the longer it takes, the further MidMig is ahead of Original",
        "a pod that fits nowhere": "counts as one that is not on the edge",
        "runs": f"{REPLICATES} of {CYCLES} cycles for each scenario, where the paper has one",
        "MidMig": "M_C2E = 3 pods, M_ER = 1 pod",
        "a, b, gamma": "1, 0.1 and 10, without unit",
        "Fig. 11": "the six scenarios of Fig. 4 together",
    }


def _gains(runs: Runs, scenarios: Sequence[Scenario], suffix: str) -> tuple[float, float]:
    """The gain of KubeDSM over the best baseline, and the gain of the optimum, %."""
    baseline = max(runs.ratio_percent(scenarios, name + suffix) for name in BASELINES)
    ours, best = runs.ratio_percent(scenarios, KUBEDSM + suffix), runs.best_ratio_percent(scenarios)
    return -gain_percent(ours, baseline), -gain_percent(best, baseline)

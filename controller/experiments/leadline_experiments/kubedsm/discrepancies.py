"""The reasons why claims of the KubeDSM paper do not hold, with the figures of this run."""

from leadline_controller.framework.view import Floats

from leadline_experiments.kubedsm.methods import K8S, KUBEDSM
from leadline_experiments.kubedsm.runs import ALL, REPLICATES, Runs
from leadline_experiments.kubedsm.setting import BY_LOAD, CYCLES, ROUNDED_UP
from leadline_experiments.kubedsm.tables import shares

FEW_RUNS = f"{REPLICATES} runs of {CYCLES} cycles are few, of which the paper has one"


def few_runs(values: Floats) -> str:
    """The runs differ. values: of the claim's quantity, one per run."""
    return f"{FEW_RUNS}; it is {values.min():.1f} to {values.max():.1f} in them"


def k8s_spreads(runs: Runs) -> str:
    """K8S falls behind BEF and SEF."""
    k8s, bef = (shares(runs, ALL, name) for name in (K8S, "bef"))
    return (
        "K8S spreads small pods over all edge nodes, and what is left on each is too small for B "
        "and D, which need two units of 950 MiB; BEF and SEF fill node after node. On the edge "
        f"are {k8s['B']:.0f} % of B and {k8s['D']:.0f} % of D with K8S, {bef['B']:.0f} % and "
        f"{bef['D']:.0f} % with BEF"
    )


def cf_deviates_least(least: int) -> str:
    """CF deviates less than KubeDSM. least: the number of workloads where it deviates least."""
    return (
        f"CF deviates least in {least} of {len(ALL)} workloads: with so little on the edge there "
        "is little to deviate"
    )


def reordered_too_early(differences: Floats) -> str:
    """Reordering alone does not help. differences: of the edge ratio, one per run."""
    return (
        "reordering comes between the batches, and when the next one is matched, pods have left at "
        "random since; memory is taken in units of 950 MiB, so that up to 3 moves seldom open a "
        f"gap. The difference is {differences.min():.1f} to {differences.max():.1f} points in "
        f"{REPLICATES} runs"
    )


def d_is_cheap(runs: Runs) -> str:
    """D is not given up."""
    up = shares(runs, ROUNDED_UP, KUBEDSM)
    ratios = ", ".join(f"{service} {ratio:.0f} %" for service, ratio in up.items())
    return (
        "the load comes in whole pods, and rounding down leaves B and D, of two units of 950 MiB a "
        "pod, less to ask for than A and C, so that their targets cost least to reach; rounded "
        f"up, the edge ratios over Fig. 4's loads are {ratios}"
    )


def d_is_high_by_default(runs: Runs, differences: Floats) -> str:
    """D does not follow its target. differences: of its edge ratio, one per run."""
    ratio = shares(runs, BY_LOAD, "default")["D"]
    return (
        f"D has {ratio:.1f} % on the edge by default already, as Fig. 6's claim says why, and its "
        f"target makes little difference: {differences.min():.1f} to {differences.max():.1f} "
        f"points in {REPLICATES} runs"
    )

"""Why claims on KubeDSM's figures miss, as found, with what this run has to show for it."""

from leadline_controller.framework.view import Floats

from leadline_experiments.kubedsm.methods import K8S, KUBEDSM
from leadline_experiments.kubedsm.runs import ALL, REPLICATES, Runs
from leadline_experiments.kubedsm.setting import BY_LOAD, CYCLES, ROUNDED_UP
from leadline_experiments.kubedsm.tables import shares

FEW_RUNS = f"{REPLICATES} runs of {CYCLES} cycles are few, of which the paper has one"


def noise(runs: Floats) -> str:
    """The same quantity in each run."""
    return f"{FEW_RUNS}; it is {runs.min():.1f} to {runs.max():.1f} in them"


def spreads(runs: Runs) -> str:
    """K8S falls behind."""
    k8s, bef = (shares(runs, ALL, name) for name in (K8S, "bef"))
    return (
        "K8S spreads small pods over all edge nodes, and what is left on each is too small for B "
        "and D, which need two units of 950 MiB; BEF and SEF fill node after node. On the edge "
        f"are {k8s['B']:.0f} % of B and {k8s['D']:.0f} % of D with K8S, {bef['B']:.0f} % and "
        f"{bef['D']:.0f} % with BEF"
    )


def little(least: int) -> str:
    """CF deviates less than KubeDSM. least: workloads in which it deviates least of all."""
    return (
        f"CF deviates least in {least} of {len(ALL)} workloads: with so little on the edge there "
        "is little to deviate"
    )


def tidied_too_early(differences: Floats) -> str:
    """Reordering alone does not help. differences: in edge ratio, of each run."""
    return (
        "reordering comes between the batches, and when the next one is matched, pods have left at "
        "random since; memory is taken in units of 950 MiB, so that up to 3 moves seldom open a "
        f"gap. The difference is {differences.min():.1f} to {differences.max():.1f} points in "
        f"{REPLICATES} runs"
    )


def fares_well(runs: Runs) -> str:
    """D is not given up."""
    up = shares(runs, ROUNDED_UP, KUBEDSM)
    told = ", ".join(f"{service} {ratio:.0f} %" for service, ratio in up.items())
    return (
        "the load comes in whole pods, and rounding down leaves B and D, of two units of 950 MiB a "
        "pod, less to ask for than A and C, so that their targets cost least to reach; rounded "
        f"up, the edge ratios over Fig. 4's loads are {told}"
    )


def high_already(runs: Runs, differences: Floats) -> str:
    """D does not go where its target should send it. differences: in its edge ratio, of each
    run."""
    ratio = shares(runs, BY_LOAD, "default")["D"]
    return (
        f"D has {ratio:.1f} % on the edge by default already, as Fig. 6's claim says why, and its "
        f"target makes little difference: {differences.min():.1f} to {differences.max():.1f} "
        f"points in {REPLICATES} runs"
    )

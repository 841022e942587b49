"""KubeDSM's experiments run again: edge ratios over load and spread (Fig. 4-5), their deviation
over the services (Fig. 8-9), the variants (Fig. 10) and the QoS settings (Fig. 11).

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6.
"""

from leadline_controller.experiments.kubedsm import distance
from leadline_controller.experiments.kubedsm.claims import claims
from leadline_controller.experiments.kubedsm.course import Moment as Moment
from leadline_controller.experiments.kubedsm.course import moments as moments
from leadline_controller.experiments.kubedsm.runs import REPLICATES, Runs
from leadline_controller.experiments.kubedsm.setting import BY_LOAD as BY_LOAD
from leadline_controller.experiments.kubedsm.setting import BY_SPREAD as BY_SPREAD
from leadline_controller.experiments.kubedsm.tables import figures, rows
from leadline_controller.experiments.optimum import study
from leadline_controller.experiments.result import Progress, Result

CALIBRATION = {
    "load 1.0": "14 GB, the edge's memory, as it is scarcer than its cores; a quarter for each "
    "service, in whole pods (rounded down), at least one",
    "scale-down": "any pod of the service, each as likely. With Kubernetes' own order (of the node "
    "with most of them the newest) mostly cloud pods go and the edge stays full by itself: rows "
    "'as a ReplicaSet', where KubeDSM gains 3 % over the best baseline and the best possible "
    "placement 5 %, less than the paper's 13.4 %",
    "suggestions": "one every 15 s of a cycle of 90 s; edge ratios are means over the time",
    "migration": "2 s, the paper's 'couple of seconds', in which the pod is not on the edge",
    "runs": f"{REPLICATES} of 12 cycles for each scenario, where the paper has one",
    "MidMig": "M_C2E = 3 pods, M_ER = 1 pod",
    "a, b, gamma": "1, 0.1 and 10, without unit",
    "Fig. 11": "the six scenarios of Fig. 4 together",
}


def run(seed: int, progress: Progress) -> Result:
    """All of it."""
    runs = Runs(seed, lambda share: progress(share * 0.75))
    distances = [
        *distance.rows(seed),
        *study.kubedsm_rows(seed, lambda share: progress(0.8 + share / 5)),
    ]
    return Result(
        "kubedsm",
        "KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted "
        "Edge Clusters",
        CALIBRATION,
        [*rows(runs), *distances],
        claims(runs),
        figures(runs),
    )

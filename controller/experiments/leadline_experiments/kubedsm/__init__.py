"""KubeDSM's experiments: edge ratios over load and spread (Fig. 4-5), their deviation
over the services (Fig. 8-9), the variants (Fig. 10) and the QoS settings (Fig. 11).

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Section 6.
"""

from leadline_experiments.kubedsm import optimality_gap
from leadline_experiments.kubedsm.calibration import calibration
from leadline_experiments.kubedsm.claims import claims
from leadline_experiments.kubedsm.runs import Runs
from leadline_experiments.kubedsm.tables import figures, rows
from leadline_experiments.optimum import study
from leadline_experiments.result import Progress, Result


def run(seed: int, progress: Progress) -> Result:
    """Run the whole experiment; see Experiment."""
    runs = Runs(seed, lambda share: progress(share * 0.75))
    gaps = [
        *optimality_gap.rows(seed),
        *study.kubedsm_rows(seed, lambda share: progress(0.8 + share / 5)),
    ]
    return Result(
        "kubedsm",
        "KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted "
        "Edge Clusters",
        calibration(runs),
        [*rows(runs), *gaps],
        claims(runs),
        figures(runs),
    )

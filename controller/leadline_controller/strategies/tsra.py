"""tsra: task scheduling and resource allocation, the node that finishes first.

Yin, Luo, Luo, "Tasks Scheduling and Resource Allocation in Fog Computing Based on Containers
for Smart Manufacturing", as the DACS paper describes it: Lai, Wang, Wei, "Delay-Aware Container
Scheduling in Kubernetes", Sections 3.3 and 7.2.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.delays import transfer_s

_MIN_CORES = 0.001  # on a full node, so that times are finite


@dataclass(frozen=True, slots=True)
class Tsra(Strategy):
    """Execution time plus the time to send image and data, in seconds; the shortest wins, because
    it meets the most deadlines.

    Decided here, because the description does not say it: a task runs on all free cores of the
    node (with a share or a limit, equal pods would see no difference between nodes, and in the
    paper TSRA prefers the node with more left). Data comes from the user's node, so a pod there
    does not wait for it. A scheduler cannot refuse a task, so a task that meets its deadline
    nowhere goes to the node that finishes first.

    Unknown: a pod without `data-mb` counts as having `data_mb`. A link of unknown bandwidth counts
    as the slowest known one; if none is known, sending is left out for all nodes. Without a user
    node every node waits for the data; without a deadline every node is in time.
    """

    name = "tsra"
    better = "lower"
    paper = "DACS, Sections 3.3 and 7.2 (TSRA)"
    needs = ("bandwidth_mbps",)

    rate: float = option(
        1.0, unit="MB/s", minimum=1e-9, maximum=1e9, help="data one core handles a second"
    )
    image_s: float = option(0.0, unit="s", maximum=1e6, help="time to send the image")
    data_mb: float = option(1.0, unit="MB", maximum=1e12, help="data of a pod without data-mb")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Time until each candidate finishes, seconds."""
        volume_mb = self.data_mb if pod.annotations.data_mb is None else pod.annotations.data_mb
        cores = np.maximum(view.free(CPU)[candidates] / 1000, _MIN_CORES)
        execution_s = volume_mb / (cores * self.rate)
        data_s = transfer_s(view, pod, volume_mb, candidates)
        if pod.annotations.user_node is not None:
            data_s[candidates == view.table.index[pod.annotations.user_node]] = 0.0
        sending_s = self.image_s + data_s
        total = execution_s + sending_s
        deadline_s = pod.annotations.deadline_s

        def why(at: int) -> str:
            text = (
                f"done in {total[at]:.3f} s (execution {execution_s[at]:.3f}, "
                f"sending {sending_s[at]:.3f})"
            )
            if deadline_s is None:
                return text
            met = "in time for" if total[at] <= deadline_s else "too late for"
            return f"{text}, {met} its deadline of {deadline_s:g} s"

        parts = {"execution_s": execution_s, "sending_s": sending_s}
        return Scores(candidates, total, best(total, self.better), why, parts)

"""tsra: task scheduling and resource allocation, the node that finishes first.

Yin, Luo, Luo, "Tasks Scheduling and Resource Allocation in Fog Computing Based on Containers
for Smart Manufacturing", as the DACS paper describes it: Lai, Wang, Wei, "Delay-Aware Container
Scheduling in Kubernetes", Sections 3.3 and 7.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import transfer_s
from leadline_controller.strategies.shared.unknowns import Filled, unknown_option

_MIN_CORES = 0.001  # on a full node, so that times are finite
_NEARLY_S = 0.05  # DACS' lambda: delays this close are equal (Algorithm 2)


@dataclass(frozen=True, slots=True)
class Tsra(Strategy):
    """The node on which the pod finishes first, image and data sent.

    Execution time plus the time to send image and data, in seconds; the shortest wins. As many
    tasks as possible are to meet their deadlines: a pod with a deadline is charged the CPU that it
    needs to meet it, so that the tasks after it go where they do not make it late.

    Decided here, because the description does not say it: a task runs on all free cores of the
    node (with a share or a limit, equal pods would see no difference between nodes, and in the
    paper TSRA prefers the node with more left). Data comes from the user's node, so a pod there
    does not wait for it. A task that meets its deadline nowhere goes to the node that finishes
    first and is charged what it requests. Filters count requests alone, so what tasks are charged
    refuses no other one. Where a deadline is met on several nodes the first to finish wins, too: it
    leaves about as many tasks in time as the node with the most CPU to spare, and far more where
    nobody keeps the charge. Without a deadline, nodes that finish first within the error of their
    bandwidth are as good.

    Unknown: a pod without `data-mb` counts as having `data_mb`. A link of unknown bandwidth counts
    as those of boards like it (strategies/shared/unknowns.py), or with `unknown=worst` as the
    slowest known one; if none is known, sending is left out for all nodes. Without a user node
    every node waits for the data.
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
    unknown: str = unknown_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Time until each candidate finishes, seconds."""
        cores = np.maximum(view.free(CPU)[candidates] / 1000, _MIN_CORES)
        execution_s = self._volume_mb(pod) / (cores * self.rate)
        sending_s, bandwidth = self._sending_s(view, pod, candidates)
        total = execution_s + sending_s
        deadline_s = pod.annotations.deadline_s

        def why(at: int) -> str:
            text = (
                f"done in {total[at]:.3f} s (execution {execution_s[at]:.3f}, "
                f"sending {sending_s[at]:.3f})"
            )
            if deadline_s is None:
                return text + bandwidth.note(at)
            met = "in time for" if total[at] <= deadline_s else "too late for"
            return f"{text}, {met} its deadline of {deadline_s:g} s{bandwidth.note(at)}"

        parts = {"execution_s": execution_s, "sending_s": sending_s}
        # Neither a preference nor the error of a bandwidth must make a task late.
        tolerance, margin_s = _NEARLY_S, sending_s * _error_share(view, candidates)
        if deadline_s is not None:
            tolerance, margin_s = 0.0, np.zeros(candidates.size)
        finalists = best(total, self.better, margin_s)
        return Scores(candidates, total, finalists, why, parts, Leeway(tolerance))

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:
        """The requests; and if the pod can meet its deadline, at least the CPU that this takes."""
        if pod.annotations.deadline_s is None:
            return pod.requests
        sending_s, _ = self._sending_s(view, pod, np.array([node]))
        left_s = pod.annotations.deadline_s - float(sending_s[0])
        # Rounded up, but a rounding error must not add a thousandth.
        needed = (
            ceil(1000 * self._volume_mb(pod) / (left_s * self.rate) - 1e-6) if left_s > 0 else 0
        )
        if needed > view.free(CPU)[node]:
            return pod.requests
        return {**pod.requests, CPU: max(needed, pod.requests.get(CPU, 0))}

    def _sending_s(self, view: ClusterView, pod: Pod, nodes: Ints) -> tuple[Floats, Filled]:
        """For image and data; no data goes to the user's own node."""
        data_s, bandwidth = transfer_s(view, pod, self._volume_mb(pod), nodes, self.unknown)
        if (user_node := view.user_node(pod)) is not None:
            data_s[nodes == user_node] = 0.0
        return self.image_s + data_s, bandwidth

    def _volume_mb(self, pod: Pod) -> float:
        return self.data_mb if pod.annotations.data_mb is None else pod.annotations.data_mb


def _error_share(view: ClusterView, nodes: Ints) -> Floats:
    """How far the bandwidth of each may be off, as a share (NodeMetrics.margins_of); 0 where it is
    stated or not known."""
    margins = view.metrics.margins_of(Tsra.needs, nodes)
    if margins is None:
        return np.zeros(nodes.size)
    measured = np.isnan(view.table.bandwidth_mbps[nodes])
    share = margins[0] / np.maximum(view.measured.bandwidth_mbps[nodes], MIN_MBPS)
    return np.where(measured & np.isfinite(share), share, 0.0)

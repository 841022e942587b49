"""NodeResourcesFit: what the pod asks for must be free (DACS Algorithm 1, lines 6-8, for CPU
and memory; the number of pods and extended resources as Kubernetes has them)."""

import numpy as np

from leadline_controller.core.cycle import Verdict
from leadline_controller.core.model import Pod
from leadline_controller.core.quantity import format_shortage
from leadline_controller.core.view import ClusterView


def node_resources_fit(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes where every resource that the pod asks for is free."""
    wanted = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    passes = np.ones(len(view), dtype=np.bool_)
    for resource, amount in wanted.items():
        passes &= view.free(resource) >= amount

    def reason(i: int) -> str:
        short = [
            f"insufficient {resource}: "
            f"{format_shortage(resource, amount, int(view.free(resource)[i]))}"
            for resource, amount in wanted.items()
            if view.free(resource)[i] < amount
        ]
        return "; ".join(short)

    return Verdict(passes, reason)

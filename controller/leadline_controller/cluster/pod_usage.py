"""What the running pods of a workload use, of what the metrics API says of each pod."""

from collections.abc import Iterable, Mapping
from statistics import median

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodUsage
from leadline_controller.framework.services import Service

_OLD_S = 120.0  # of a kubelet that metrics-server does not reach any more


def usage_by_workload(
    found: Iterable[PodUsage], pods: Iterable[Pod]
) -> Mapping[Service, tuple[float, float]]:
    """Workload -> cores and bytes of memory that one of its pods uses: the medians over those that
    are ready, so that a pod with another part to play, as a database's first, counts little.

    A measurement that is two minutes older than the newest counts for nothing; the clocks are those
    of the boards, not ours.
    """
    measured = {(each.namespace, each.name): each for each in found}
    newest_s = max((each.measured_s for each in measured.values()), default=0.0)
    by_workload: dict[Service, list[PodUsage]] = {}
    for pod in pods:
        usage = measured.get((pod.namespace, pod.name))
        if usage is None or not pod.ready or pod.terminating or pod.finished:
            continue
        if newest_s - usage.measured_s <= _OLD_S:
            by_workload.setdefault(workload_of(pod), []).append(usage)
    return {
        workload: (median(u.cpu_cores for u in each), median(u.memory_bytes for u in each))
        for workload, each in by_workload.items()
    }

"""What the watch tells of the pods that were decided about: it has the last word on what came of
a decision, also of one whose answer was lost and of one of an earlier run."""

from leadline_controller.decisions.log import BOUND, GONE, PENDING, DecisionLog, DecisionRecord
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted


def learn(decisions: DecisionLog, change: ClusterChange) -> None:
    """Settle the decisions that this change tells the outcome of."""
    match change:
        case Relisted(pods=pods):
            there = {pod.uid: pod for pod in pods}
            for record in decisions.all():
                _settle(decisions, record, there.get(record.decision.pod.uid))
        case PodChanged(pod) | PodDeleted(pod):
            about = decisions.get(pod.key)
            if about is not None and about.decision.pod.uid == pod.uid:
                _settle(decisions, about, pod if isinstance(change, PodChanged) else None)
        case _:
            pass


def _settle(decisions: DecisionLog, record: DecisionRecord, pod: Pod | None) -> None:
    """pod: as the watch shows it, None when it is gone."""
    key, decided = record.decision.pod.key, record.decision.node
    if pod is not None and pod.node_name is not None and pod.node_name == decided:
        decisions.settle(key, BOUND)
    elif record.outcome == PENDING and pod is None:
        decisions.settle(key, GONE)
    elif record.outcome == PENDING and pod is not None and pod.node_name is not None:
        decisions.settle(key, f"failed: the pod is on {pod.node_name}")

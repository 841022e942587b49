"""Estimates of the memory that changes take while they wait for the database.

Measuring it would take longer than deciding. The figures are those of all filters over views that
share nothing (measured: 11 to 13 kB, and 240 to 400 bytes a node), so many decisions about an
unchanged cluster take less than the estimate.
"""

from leadline_controller.decisions.record import DecisionRecord, OutcomeChange
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod

_DECISION_BYTES = 16 * 1024
_NODE_BYTES = 480
_DEMAND_BYTES = 400
_RECORD_BYTES = 800


def weight_of_decision(decision: Decision) -> int:
    """Bytes of a decision with its view and its pod."""
    view = decision.basis()[0]
    nodes = 0 if view is None else len(view)
    return _DECISION_BYTES + nodes * _NODE_BYTES + _demands(decision.pod) * _DEMAND_BYTES


def weight_of_change(change: DecisionRecord | OutcomeChange) -> int:
    """Bytes of a record without its decision and explanation, or of an outcome."""
    why = change.why if isinstance(change, DecisionRecord) else ""
    return _RECORD_BYTES + len(change.pod) + len(change.outcome) + len(why)


def _demands(pod: Pod) -> int:
    """The number of small objects in the pod."""
    others = (*pod.affinity, *pod.anti_affinity)
    selectors = (
        *(pod.required_affinity or ()),
        *(each.selector or () for each in others),
        *(each.selector or () for each in pod.spread),
        *(each.namespace_selector or () for each in others),
    )
    columns = (
        *(pod.labels, pod.node_selector, pod.tolerations, pod.host_ports, pod.claims, pod.disks),
        *(pod.images, pod.features, pod.annotations.profile_ms, selectors),
    )
    values = (1 + len(each.values) for selector in selectors for each in selector)
    return sum(map(len, columns)) + sum(values)

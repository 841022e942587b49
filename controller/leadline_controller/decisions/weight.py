"""What a decision that waits for the disk holds in memory, by rule of thumb.

Asking Python for it would take longer than deciding. The figures are those of all filters over
views that share nothing (measured: 11 to 13 kB, and 240 to 400 bytes a node), so that many
decisions about an unchanged cluster weigh less than this says.
"""

from leadline_controller.decisions.rows import Row, Settled
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod

_DECISION_BYTES = 16 * 1024
_NODE_BYTES = 480
_DEMAND_BYTES = 400
_ROW_BYTES = 800


def weight_of_decision(decision: Decision) -> int:
    """Bytes of a decision with the view that it was made from, and its pod."""
    view = decision.basis()[0]
    nodes = 0 if view is None else len(view)
    return _DECISION_BYTES + nodes * _NODE_BYTES + _demands(decision.pod) * _DEMAND_BYTES


def weight_of_row(row: Row | Settled) -> int:
    """Bytes of a row without its account, or of an outcome."""
    return _ROW_BYTES + len(row.pod) + len(row.outcome) + len(getattr(row, "why", ""))


def _demands(pod: Pod) -> int:
    """How many small objects the pod consists of."""
    others = (*pod.affinity, *pod.anti_affinity)
    selectors = (
        *(pod.required_affinity or ()),
        *(each.selector or () for each in others),
        *(each.selector or () for each in pod.spread),
        *(each.namespace_selector or () for each in others),
    )
    columns = (
        *(pod.labels, pod.node_selector, pod.tolerations, pod.host_ports, pod.claims, pod.disks),
        *(pod.images, pod.features, pod.hints.profile_ms, selectors),
    )
    values = (1 + len(each.values) for selector in selectors for each in selector)
    return sum(map(len, columns)) + sum(values)

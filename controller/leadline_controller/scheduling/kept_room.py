"""Decisions about pods for which room is kept. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.cycle import Decision, FilterResult, Rule, decide, filtered
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView


def decide_in_room(
    view: ClusterView,
    pod: Pod,
    rule: Rule,
    kept: Reservation | None,
    nominated: str | None,
    results: Mapping[str, FilterResult] | None = None,
) -> Decision:
    """Decide on a pod for which room may be kept, or made on the node `nominated`. results: of the
    rule's filters, if they ran already.

    The replacement of a moved pod goes where room is reserved for it; if it does not fit there any
    more, anywhere but where it came from; and back only if nothing else is left. A pod for which
    others were preempted goes where that was, if it fits there.
    """
    if kept is None and nominated is None:
        return decide(view, pod, rule, results)
    if results is None:
        results = filtered(view, pod, rule.filters)
    if kept is not None:
        allowed = [_named(view, kept.node)]
        if kept.source is not None:
            allowed.append(~_named(view, kept.source))
        for nodes in allowed:
            only = FilterResult(nodes, lambda _: "room is reserved on another node")
            decision = decide(view, pod, rule, {**results, "Reservation": only})
            if decision.node is not None:
                came = f"moved from {kept.source}: " if kept.source else ""
                more = "" if decision.why in kept.why else f"; {decision.why}"
                return replace(decision, why=f"{came}{kept.why}{more}")
    if nominated is not None:
        only = FilterResult(_named(view, nominated), lambda _: "nominated for another node")
        decision = decide(view, pod, rule, {**results, "NominatedNode": only})
        if decision.node is not None:
            return replace(decision, why=f"it is nominated for this node; {decision.why}")
    return decide(view, pod, rule, results)


def _named(view: ClusterView, node: str) -> Bools:
    """The node of this name, shape (n,)."""
    mask = view.table.none()
    if node in view.table.index:
        mask[view.table.index[node]] = True
    return mask

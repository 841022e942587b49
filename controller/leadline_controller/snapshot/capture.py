"""The cluster as a controller sees it now, as a snapshot.

It reads the state in the event loop; writing the snapshot may then take its time in a thread.
"""

from dataclasses import replace

import numpy as np

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cluster_objects import PodSelectors
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.options import values_of
from leadline_controller.framework.preferences import PreferenceRule
from leadline_controller.snapshot.snapshot import Snapshot
from leadline_controller.snapshot.stated import StatedRule
from leadline_controller.telemetry.state import TelemetryState


def capture(
    state: ClusterState,
    telemetry: TelemetryState,
    now_s: float,
    rule: Rule,
    scheduler_name: str | None = None,
) -> Snapshot:
    """The cluster, the rule, and the pending pods of this scheduler, None for those of all, in the
    order in which a scheduler takes them."""
    view = state.unreserved_view(telemetry, now_s)
    if state.run.is_over(now_s):
        view = replace(view, placed_in_run=np.zeros_like(view.placed_in_run), charged_in_run={})
    index = view.table.index
    running = tuple(
        (pod, index[node])
        for pod, node in state.pods()
        if node is not None and node in index and not pod.finished
    )
    pending = [
        pod
        for pod, node in state.pods()
        if node is None
        and not (pod.finished or pod.terminating)
        and scheduler_name in (None, pod.scheduler_name)
    ]
    pending.sort(key=lambda pod: (-pod.priority, pod.created_s or 0.0, pod.key))
    return Snapshot(
        # What the watch shows meanwhile must not change it.
        view=replace(view, pod_selectors=PodSelectors(view.pod_selectors)),
        pods=tuple(pending),
        running=running,
        reservations=state.reservations.free(),
        rule=stated_rule(rule, assumes_load=view.assumed is not None),
        now_s=now_s,
    )


def stated_rule(rule: Rule, *, assumes_load: bool) -> StatedRule:
    """The rule as the file states it."""
    preferences: str | float = "off"
    if isinstance(rule.prefer, PreferenceRule):
        preferences = "on" if rule.prefer.tolerance is None else rule.prefer.tolerance
    return StatedRule(
        strategy=rule.strategy.name,
        options=values_of(rule.strategy),
        preferences=preferences,
        letter=rule.letter,
        assumed_load=assumes_load,
        seed=rule.seed,
    )

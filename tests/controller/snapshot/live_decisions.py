"""Decisions about the pods of a random live state, by the controller and from its snapshot."""

from __future__ import annotations

import json
from typing import Any

from leadline_controller.framework.batch import decides_together, plan_batch
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import build
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.snapshot.capture import capture
from leadline_controller.snapshot.score import rule_of, start_scoring
from leadline_controller.snapshot.snapshot import Snapshot
from leadline_controller.snapshot.writing import write_snapshot
from leadline_controller.strategies import STRATEGIES

from tests.controller.snapshot.live_states import LiveState


def document_of(live: LiveState, *, anonymous: bool = False) -> dict[str, Any]:
    """As it comes out of a file."""
    taken = capture(live.state, live.telemetry, live.clock.now_s(), live.rule())
    text = json.dumps(write_snapshot(taken, anonymous=anonymous), allow_nan=False)
    read: dict[str, Any] = json.loads(text)
    return read


def decided_live(live: LiveState, pod: Pod) -> Decision:
    """By the controller, with its seed at the beginning."""
    rule = live.rule()
    if not decides_together(rule.strategy):
        step = DecisionStep(live.state, live.telemetry, live.step.decisions, rule, live.clock)
        return step.decide(step.view(pod), pod)
    view = live.step.view()
    staying = live.state.staying(view)
    _, _, decisions = plan_batch(view, [pod], staying, rule)
    return next(iter(decisions))[0]


def decided_offline(snapshot: Snapshot, pod: Pod) -> Decision:
    """By the path of `leadline score`."""
    assert snapshot.rule is not None
    assert snapshot.rule.strategy is not None
    strategy = build(STRATEGIES[snapshot.rule.strategy], snapshot.rule.options)
    scoring = start_scoring(
        snapshot,
        rule_of(snapshot.rule, strategy),
        [pod],
        assumes_load=snapshot.rule.assumed_load,
    )
    return next(scoring.decisions)


def totals(decision: Decision) -> dict[str, float | None]:
    return {node: total for node, (total, _) in decision.scores().items()}


def reasons(decision: Decision) -> dict[str, list[str]]:
    """Why nodes do not fit; which of several resources is named first means nothing."""
    return {
        node: sorted(part for each in why for part in each.replace(": ", "; ").split("; "))
        for node, why in decision.rejected().items()
    }

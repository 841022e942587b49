"""The recorded decisions made again: does a replay know what the controller knew?

A recorded decision is made again on the view that the entries before it give. What was decided
then counts for what follows, so that one difference does not lead to others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leadline_controller.framework.cycle import Decision
from leadline_controller.history.recorded import Began, Decided, Entry

from leadline_lab.replay.states import (
    ESTIMATE_EVERY_S,
    States,
    began_of,
    recorded_strategy,
    rule_of,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A pod on which the replay decides otherwise. A node of None: it fits nowhere."""

    pod: str  # namespace/name
    at_s: float  # since the recording began
    recorded: str | None
    replayed: str | None
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How many of the recorded decisions come out again."""

    decisions: int
    differences: tuple[Difference, ...] = ()

    @property
    def share(self) -> float:
        """Of the decisions that are the same, 0 to 1; 1 without any."""
        return 1.0 - len(self.differences) / self.decisions if self.decisions else 1.0


def faithful(entries: Sequence[Entry], estimate_every_s: float = ESTIMATE_EVERY_S) -> Fidelity:
    """Make each recorded decision again. estimate_every_s: see States. Raises ReplayError,
    OptionError and PluginError."""
    began_of(entries)
    first_s, count = entries[0].at_s, 0
    differences: list[Difference] = []
    for entry in entries:
        match entry.what:
            case Began() as began:
                states = States(began, entry.at_s, estimate_every_s)
                rule = rule_of(recorded_strategy(began), began)
                step = states.step(rule, began.seed)
            case Decided(uid, key, node):
                states.advance(entry.at_s)
                cluster, pod = states.cluster, states.cluster.pod(uid)
                count += 1
                if pod is None:
                    why = "the recording does not show the pod before it was decided on"
                    differences.append(Difference(key, entry.at_s - first_s, node, None, why))
                    continue
                if cluster.is_assumed(uid):  # its binding failed, at a time that is not recorded
                    cluster.forget(pod)
                view = step.view_in_run(pod)
                decision = step.decide(view, pod)
                if decision.node != node:
                    why = _why(decision, node)
                    at_s = entry.at_s - first_s
                    differences.append(Difference(key, at_s, node, decision.node, why))
                if node is not None and node in view.table.index:
                    taken = replace(decision, node=node)
                    charge = step.charge(view, pod, node)
                    cluster.assume(pod, node, taken.volumes(), charge)
            case _:
                states.apply(entry)
    return Fidelity(count, tuple(differences))


def _why(decision: Decision, recorded: str | None) -> str:
    """Why not as recorded, as far as this decision shows."""
    if recorded is None:
        return f"nothing fitted then; here {decision.node} does: {decision.why}"
    if refusals := decision.rejected().get(recorded):
        return f"{recorded} does not fit here: {'; '.join(refusals)}"
    scores = decision.scores()
    if recorded not in scores or decision.node is None:
        return f"{recorded} is not a node here: {decision.why}"
    there, here = scores[recorded][0], scores[decision.node][0]
    if there == here:
        return f"both nodes have the same total {here}, and chance decided"
    return f"here {decision.node} has the total {here} and {recorded} has {there} ({decision.why})"

"""What a controller knows, made again of recorded entries on a clock that stands still between
them, as wiring/controller.py and loops.py make it of what comes in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cycle import Rule, Strategy
from leadline_controller.framework.options import OptionError, build, value_of_text
from leadline_controller.framework.queueing_hints import NO_EVENT, ClusterEvent
from leadline_controller.framework.traffic import Traffic
from leadline_controller.history.log import DecisionLog
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Counted,
    Entry,
    Learnt,
    Pulled,
    Recorded,
    Used,
)
from leadline_controller.preferences import rule as preference_rule
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.coordinates import RttEstimates
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from leadline_lab.replay.kube_scheduler import KubeScheduler

# As the controller's loops have it.
LOOK_EVERY_S, ESTIMATE_EVERY_S = 1.0, 10.0


class ReplayClock:
    """The time of the entry that is being replayed, s."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        """See Clock."""
        return self._now_s

    def set(self, now_s: float) -> None:
        """Time passes until then."""
        self._now_s = max(self._now_s, now_s)

    async def sleep(self, duration_s: float) -> None:  # noqa: ARG002  # of the port
        """Nothing waits in a replay."""
        raise RuntimeError("the clock of a replay goes on with its entries alone")


class ReplayError(Exception):
    """A recording that cannot be replayed. str() is one line for people."""


class States:
    """All that decisions read, of one controller. estimate_every_s: between estimates of round
    trips, as the recorded controller had it. estimates: by their time; a later replay of the same
    measurements takes those that an earlier one has made."""

    def __init__(
        self,
        began: Began,
        at_s: float,
        estimate_every_s: float = ESTIMATE_EVERY_S,
        estimates: dict[float, RttEstimates | None] | None = None,
    ) -> None:
        self.began, self.clock = began, ReplayClock()
        self.clock.set(at_s)
        self.unix_offset_s = None if began.unix_s is None else began.unix_s - at_s
        self.cluster = ClusterState(
            assumes_load=began.assumed_load,
            unix_offset_s=lambda: self.unix_offset_s,
            now_s=self.clock.now_s,
        )
        self.telemetry = TelemetryState(TimesToLive(**began.ttl), is_passive=began.is_passive)
        self._estimate_every_s = estimate_every_s
        self._look_s = LOOK_EVERY_S * (floor(at_s / LOOK_EVERY_S) + 1)
        self._estimate_s = at_s
        self._estimates = {} if estimates is None else estimates
        self._is_new = self._is_pinged = False  # since the last look, and the last estimate

    def step(self, rule: Rule, seed: int) -> DecisionStep:
        """What decides by this rule."""
        log = DecisionLog(limit=1, detailed=1)
        by = replace(rule, seed=seed)
        return DecisionStep(self.cluster, self.telemetry, log, by, self.clock)

    def advance(self, to_s: float) -> None:
        """Let time pass until then: what the controller does again and again is done."""
        while (at_s := min(self._look_s, self._estimate_s)) <= to_s:
            self.clock.set(at_s)
            if at_s == self._look_s:
                self._look_s += LOOK_EVERY_S
                nodes = self.cluster.nodes() if self.cluster.listed else None
                self.telemetry.set_members(None if nodes is None else nodes.keys(), at_s)
                if self._is_new:  # else there is nothing to see
                    self._is_new = False
                    self.cluster.look(self.telemetry, at_s)
            if at_s == self._estimate_s:
                self._estimate_s += self._estimate_every_s
                if self._is_pinged:  # else the estimates stay as good as they are
                    self._is_pinged = False
                    found = self.telemetry.estimate_rtts(at_s, self._estimates.get(at_s))
                    if at_s not in self._estimates:
                        self._estimates[at_s] = found and found.without_pairs()
        self.clock.set(to_s)

    def apply(self, entry: Entry) -> ClusterEvent:
        """Apply an entry at its time. Returns the events that may make an unschedulable pod
        schedulable."""
        self.advance(entry.at_s)
        self._is_new |= isinstance(entry.what, Changed | Reported | Used)
        telemetry, event, before = self.telemetry, NO_EVENT, self.telemetry.bandwidth_changes
        match entry.what:
            case Changed(change):
                event = self.cluster.apply(change)
            case Born() | Reported() | Pinged() | Tested():
                self._is_pinged |= isinstance(entry.what, Pinged)
                telemetry.take(entry.what)
            case Pulled(pull):
                if (mbps := self.cluster.images.observe(pull)) is not None:
                    telemetry.pulled(pull.node, mbps, entry.at_s)
            case _:
                self._learn(entry.what)
        return event if telemetry.bandwidth_changes == before else event | ClusterEvent.BANDWIDTH

    def _learn(self, what: Recorded) -> None:
        """Take in what is neither a change of the cluster nor a measurement of one board."""
        match what:
            case Learnt(image, digest, layers):
                self.cluster.images.learn(image, digest, layers)
            case Used(usage):
                self.cluster.recent.use_usage(usage)
            case Counted(peers, entries, flowing_mbps):
                self.cluster.use_traffic(Traffic(peers, entries, flowing_mbps))
            case _:
                pass


def strategy_named(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set, among them this package's baseline
    `kube-scheduler`. Raises OptionError, PluginError."""
    if name == KubeScheduler.name:
        found: Strategy = build(KubeScheduler, options)
    elif name in STRATEGIES:
        found = build(STRATEGIES[name], options)
    else:
        known = ", ".join((KubeScheduler.name, *STRATEGIES))
        raise OptionError(f"strategy {name!r}: unknown; known: {known}")
    return found


def recorded_strategy(began: Began) -> Strategy:
    """The strategy that the recorded controller had."""
    options = {name: value_of_text(text) for name, text in began.options.items()}
    return strategy_named(began.strategy, options)


def rule_of(strategy: Strategy, began: Began) -> Rule:
    """By what a controller with the recorded settings decides with this strategy."""
    chance = Random(0)  # noqa: S311  # breaks ties, no secret
    if isinstance(strategy, KubeScheduler):
        own = {name: each for name, each in FILTERS.items() if name not in EXTENDER_FILTERS}
        return Rule(strategy, own, chance)
    return Rule(
        strategy,
        FILTERS,
        chance,
        preference_rule(began.preferences),
        letter=began.letter,
    )


def began_of(entries: Sequence[Entry]) -> Began:
    """With what the recording begins. Raises ReplayError."""
    if not entries or not isinstance(entries[0].what, Began):
        raise ReplayError("the recording does not say how its controller began; record it again")
    return entries[0].what

"""Strategies that decide about each pod, too, without effect, so that an owner can see which one
would suit the cluster before it is switched.

A thread decides with the same cycle on the view of the real decision, after that is recorded. It
works within a share of a core, so in a burst it leaves decisions out, and counts them: a binding
never waits for it. Views are large, so only a few wait.
"""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from leadline_controller.framework.assumed_load import BoardSize, Expectations
from leadline_controller.framework.cycle import (
    Decision,
    FilteringStrategy,
    FilterResult,
    Rule,
    Scores,
    Strategy,
    decide,
    feasible_nodes,
    filtered,
)
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import workload_name
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.record import bounded_text
from leadline_controller.history.shadowed import ShadowDecision
from leadline_controller.history.times import Moment
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.settings import setting

log = logging.getLogger(__name__)

SAME, TIED, DIFFERENT, SKIPPED, FAILED = "same", "tied", "different", "skipped", "failed"
_WAITING = 4
_LONGEST_REST_S = 60.0  # also after work for which the machine was asleep
_JOIN_S = 2.0


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """Which strategies decide without effect, and what that may cost."""

    strategies: tuple[str, ...] = setting(
        (),
        'strategies that decide about each pod, too, without effect, such as `["netsched"]`; see '
        "[choosing.md](choosing.md#try-a-strategy-as-a-shadow)",
    )
    share: float = setting(0.1, "how much of a core they may take together", least=0.001, most=0.5)
    options: Mapping[str, object] = setting(
        {}, "their options, a table for each, for example `{dacs = {alpha = 0.25}}`"
    )


class Shadow:
    """Decides as these strategies would. `put` and `counts` are for the event loop.

    rule: the real one, whose preferences and letter hold for all. tell: takes what was found, on
    the thread of the shadow. now: dates decisions. share: of a core, beyond 0. timer, rest: the
    thread's clock, and its waiting for so many seconds, which ends early at the end; for tests.
    """

    def __init__(
        self,
        strategies: Sequence[Strategy],
        rule: Rule,
        tell: Callable[[Sequence[ShadowDecision]], None],
        now: Callable[[], Moment],
        share: float = 0.1,
        *,
        timer: Callable[[], float] = time.monotonic,
        rest: Callable[[float], object] | None = None,
    ) -> None:
        self._rules = {
            each.name: Rule(each, {}, prefer=rule.prefer, letter=rule.letter) for each in strategies
        }
        real = rule.strategy
        self._own = frozenset(real.filters() if isinstance(real, FilteringStrategy) else ())
        self._tell, self._now, self._share, self._timer = tell, now, share, timer
        self._waiting: queue.Queue[tuple[Decision, Moment, int] | None] = queue.Queue(_WAITING)
        self._ending = threading.Event()
        self._rest = rest or self._ending.wait
        self._missed = 0  # since the last decision that is looked at
        self._skipped = 0
        # By strategy and result; written by the thread alone.
        self._found: Counter[tuple[str, str]] = Counter()
        # By strategy: decisions since its last one that it did not see, as it failed.
        self._lost: Counter[str] = Counter()
        self._errors = {name: ErrorLog(log) for name in self._rules}
        self._thread: threading.Thread | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies."""
        return tuple(self._rules)

    def counts(self) -> dict[tuple[str, str], int]:
        """How many decisions there were, by strategy and result."""
        skipped = {(name, SKIPPED): self._skipped for name in self._rules}
        results = (SAME, TIED, DIFFERENT, FAILED)
        return skipped | {(name, x): self._found[name, x] for name in self._rules for x in results}

    def put(self, decision: Decision) -> None:
        """Look at this decision later, unless too many wait. One for a single node, which was no
        choice, does not count."""
        scores = decision.basis()[2]
        if decision.node is None or scores is None:
            return
        if scores.candidates.size < 2 and not self._own:
            return
        try:
            self._waiting.put_nowait((decision, self._now(), self._missed))
        except queue.Full:
            self._missed += 1
            self._skipped += 1
        else:
            self._missed = 0

    def start(self) -> None:
        """Start the thread."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and what waits with it. It blocks, two seconds if a strategy hangs."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            self._thread = None

    # In the thread.

    def _run(self) -> None:
        while not self._ending.is_set():
            self.work()

    def work(self) -> None:
        """Look at the next decision, waiting for it, and rest."""
        waited = self._waiting.get()
        if waited is None or self._ending.is_set():
            return
        begun_s = self._timer()
        self._look(*waited)
        del waited  # the view, which must not be kept while there is nothing to do
        took_s = max(0.0, self._timer() - begun_s)
        self._rest(min(rest_s(took_s, self._share), _LONGEST_REST_S))

    def _look(self, decision: Decision, at: Moment, missed: int) -> None:
        view, results, _ = decision.basis()
        if view is None:
            return
        view = view.for_another_thread()
        common = {name: each for name, each in results.items() if name not in self._own}
        if feasible_nodes(view, common).size < 2:
            for name in self._rules:
                self._lost[name] += missed
            return
        found = []
        for name, rule in self._rules.items():
            try:
                made = _decided(view, decision, rule, common, at, missed + self._lost[name])
            except Exception as error:  # noqa: BLE001  # a fault of one strategy is its own
                self._found[name, FAILED] += 1
                self._lost[name] += missed + 1
                self._errors[name].failed(error, "the shadow strategy %s failed: %s", name)
                continue
            self._errors[name].succeeded()
            del self._lost[name]
            self._found[name, result_of(made)] += 1
            found.append(made)
        try:
            self._tell(found)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the thread
            log.error("shadow decisions are not kept: %r; please report it", error)


def rest_s(took_s: float, share: float) -> float:
    """How long to rest after work that took so long, seconds, so that work has this share."""
    return took_s * (1 - share) / share


def result_of(decision: ShadowDecision) -> str:
    """SAME, TIED or DIFFERENT."""
    if decision.choice == decision.node:
        return SAME
    return TIED if decision.tied else DIFFERENT


def _decided(
    view: ClusterView,
    real: Decision,
    rule: Rule,
    common: Mapping[str, FilterResult],
    at: Moment,
    missed: int,
) -> ShadowDecision:
    """What the rule would have chosen. common: the filters' results that hold for every
    strategy."""
    pod, name = real.pod, rule.strategy.name
    results = {**common, **filtered(view, pod, rule.filters)}
    # Chance depends on nothing but the pod, so what was left out changes no other choice.
    rule = replace(rule, random=Random(f"{name} {pod.uid}"))  # noqa: S311  # no secret
    made = decide(view, pod, rule, results)
    scores = made.basis()[2]
    candidates = 0 if scores is None else scores.candidates.size
    real_at = view.table.index[real.node or ""]
    own_total = real_total = rank = None
    tied = False
    if scores is not None and made.node is not None:
        own_total = _total(scores, view.table.index[made.node])
        real_total = _total(scores, real_at)
        tied = real_at in scores.candidates[scores.finalists]
        rank = _rank(scores, real_total, lower=made.better == "lower", tied=tied)
    return ShadowDecision(
        at=at,
        strategy=name,
        pod=bounded_text(pod.key),
        uid=bounded_text(pod.uid),
        workload=bounded_text(workload_name(pod)),
        decided_by=real.strategy,
        node=real.node or "",
        choice=made.node,
        better=made.better,
        candidates=candidates,
        total=own_total,
        total_of_node=real_total,
        rank=rank,
        tied=tied,
        missed=missed,
        user=bounded_text(pod.annotations.user_node or ""),
        pod_cpu_percent=_cpu_percent(view, pod, real_at),
    )


def _total(scores: Scores, node: int) -> float | None:
    """The total of the node with this index; None if it is unknown or no candidate."""
    for total in scores.total[scores.candidates == node]:
        return None if np.isnan(total) else float(total)
    return None


def _rank(scores: Scores, total: float | None, *, lower: bool, tied: bool) -> int | None:
    """Which place a node with this total has; a finalist has the first."""
    if tied:
        return 1
    if total is None:
        return None
    with np.errstate(invalid="ignore"):
        ahead = np.count_nonzero(scores.total < total if lower else scores.total > total)
    return max(2, 1 + int(ahead))


def _cpu_percent(view: ClusterView, pod: Pod, node: int) -> float:
    """How much of the node's CPU the pod is expected to use, percent."""
    expected = view.assumed.expected if view.assumed is not None else Expectations()
    return float(BoardSize.of(view.table, node).added_by(expected.of(pod))[0])

"""Plans are made in threads, and the watch goes on meanwhile."""

from itertools import count
from random import Random

import numpy as np
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.cycle import FilterResult, Rule, Strategy
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.ports import ObjectChanged, PodChanged, Relisted
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView
from leadline_controller.keda.scaler import ScalerService, Trigger
from leadline_controller.preferences import rule
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.rescheduling.suggestions import Suggestions
from leadline_controller.scheduling.batches import BatchPlanner, NoMoves
from leadline_controller.settings import Settings
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.wiring import Controller

from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

NODES = [Node(name, {CPU: 4000, PODS: 9}) for name in ("n1", "n2")]


def pod(name: str, node: str | None = "n1", app: str = "web") -> Pod:
    owner = Owner("ReplicaSet", app, f"uid-{app}")
    return Pod(
        "default",
        name,
        name,
        {CPU: 100, PODS: 1},
        labels={"app": app},
        node_name=node,
        owner=owner,
        ready=True,
        created_s=1.0,
    )


class Busy:
    """A cluster in which a pod of a new kind comes while a filter reads the kinds of the view."""

    def __init__(self, strategy: Strategy) -> None:
        self.clock = ManualClock(1000.0)
        settings = Settings(rescheduling=ReschedulingSettings("automatic", cooldown_s=0.0))
        filters = {**FILTERS, "Busy": self._busy}
        self.rule = Rule(strategy, filters, Random(1), rule("on"))
        self.controller = Controller(settings, MemoryCluster(NODES), self.rule, clock=self.clock)
        self.state: ClusterState = self.controller.state
        self.state.apply(Relisted(tuple(NODES), (pod("a"), pod("b", "n2"))))
        self.came = 0
        self._numbers = count()

    def _busy(self, view: ClusterView, _: Pod) -> FilterResult:
        kinds = view.assigned_pods.kinds
        reading = [np.frombuffer(each, dtype=np.int64) for each in kinds.by_namespace.values()]
        name = f"new-{next(self._numbers)}"
        self.state.apply(PodChanged(pod(name, app=name)))
        selector = (Requirement("app", "In", ("web",)),)
        self.state.apply(ObjectChanged(PodSelector("Service", "default", name, selector)))
        assert [len(each) for each in reading] == [len(kinds)]
        self.came += 1
        return FilterResult.all_pass(view)


async def test_a_plan_of_moves() -> None:
    here = Busy(Dacs())
    await here.controller.rescheduler.plan()
    assert here.came


async def test_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Busy(KubeDsm())
    monkeypatch.setattr(Suggestions, "_why_not", lambda _: "")
    assert here.controller.suggestions is not None
    await here.controller.suggestions.suggest()
    assert here.came


async def test_a_batch() -> None:
    here = Busy(KubeDsm())
    waiting = pod("c", None)
    here.state.apply(PodChanged(waiting))
    view = here.state.view(here.controller.telemetry, 1000.0)
    await BatchPlanner(here.state, here.rule, NoMoves()).plan(view, [waiting])
    assert here.came


async def test_the_replicas_that_keda_is_told() -> None:
    here = Busy(Dacs())
    service = ScalerService(here.controller.step, lambda _counter, _client: 1.0)
    trigger = Trigger("default", {"app": "web"}, "request-rate", "requests_total")
    assert await service.value(trigger) == 1.0
    assert here.came

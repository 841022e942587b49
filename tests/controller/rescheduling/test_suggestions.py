"""Where running pods may go by the plans of a batch strategy."""

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.ports import Relisted
from leadline_controller.rescheduling.rescheduler import Mode, Rescheduler, ReschedulingSettings
from leadline_controller.rescheduling.suggestions import Suggestions
from leadline_controller.settings import Settings
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.leadline import Leadline
from leadline_controller.wiring import Controller

from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

NODES = [Node(name, {CPU: 4000, PODS: 9}) for name in ("n1", "n2", "n3")]
OWNER = Owner("ReplicaSet", "web", "uid-web")
WEB = Pod(
    *("default", "web-0", "uid-0", {CPU: 100, PODS: 1}),
    node_name="n1",
    owner=OWNER,
    ready=True,
    created_s=1.0,
)
BARE = Pod(*("default", "bare", "uid-1", {CPU: 100, PODS: 1}), node_name="n1", ready=True)


def goes(strategy: BatchStrategy, pod: Pod, mode: Mode = "automatic") -> list[bool]:
    """Whether the pod may go to each of the nodes, of which nothing was measured."""
    settings = Settings(rescheduling=ReschedulingSettings(mode, cooldown_s=0.0))
    controller = Controller(
        settings, MemoryCluster(NODES), Rule(strategy, FILTERS), clock=ManualClock(1000.0)
    )
    controller.state.apply(Relisted(tuple(NODES), (WEB, BARE)))
    assert controller.suggestions is not None
    view = controller.state.view(controller.telemetry, 1000.0)
    found: list[bool] = controller.suggestions.may_go(view)(pod).tolist()
    return found


def test_nothing_moves_unless_rescheduling_is_automatic() -> None:
    assert goes(KubeDsm(), WEB, "manual") == [False] * 3


def test_a_pod_goes_only_where_all_that_the_strategy_needs_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Suggestions, "_why_not", lambda _: "")
    assert goes(KubeDsm(), WEB) == [True] * 3, "it needs nothing measured"
    assert goes(Leadline(), WEB) == [False] * 3

    def unless_n3(_pod: Pod, source: str, target: str) -> str:
        return "" if (source, target) == ("n1", "n3") else "old"

    monkeypatch.setattr(Rescheduler, "why_unreliable", lambda _self, _view: unless_n3)
    assert goes(Leadline(), WEB) == [False, False, True]


def test_a_pod_that_nobody_would_make_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suggestions, "_why_not", lambda _: "")
    assert goes(KubeDsm(), BARE) == [False] * 3

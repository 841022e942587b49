from leadline_controller.core.cycle import Decision
from leadline_controller.core.model import Pod
from leadline_controller.state.decisions import BOUND, PENDING, DecisionLog


def decision(name: str, node: str | None = "n1") -> Decision:
    return Decision(Pod("default", name, uid=f"uid-{name}"), node, "because", "netsched", "higher")


def test_the_oldest_decisions_make_room() -> None:
    log = DecisionLog(limit=3)
    for i in range(5):
        log.add(decision(f"p{i}"), float(i), PENDING, {})
    assert [record.decision.pod.name for record in log.all()] == ["p2", "p3", "p4"]
    assert log.get("default/p1") is None


def test_the_newest_decision_about_a_pod_is_the_one_that_is_kept() -> None:
    log = DecisionLog(limit=3)
    log.add(decision("a", None), 1.0, PENDING, {})
    log.add(decision("b"), 2.0, PENDING, {})
    log.add(decision("a", "n2"), 3.0, PENDING, {"alpha": 0.5})
    assert [record.decision.pod.name for record in log.all()] == ["b", "a"]
    record = log.get("default/a")
    assert record is not None
    assert (record.decision.node, record.at_s, record.options) == ("n2", 3.0, {"alpha": 0.5})


def test_numbers_grow_with_every_change_and_only_then() -> None:
    log = DecisionLog()
    log.add(decision("a"), 1.0, PENDING, {})
    log.add(decision("b"), 1.0, PENDING, {})
    before = {record.decision.pod.name: record.number for record in log.all()}
    log.settle("default/a", BOUND)
    settled = log.get("default/a")
    assert settled is not None
    assert settled.outcome == BOUND
    assert settled.number > max(before.values())
    log.settle("default/a", BOUND)
    assert log.get("default/a") == settled


def test_settling_what_is_forgotten_does_nothing() -> None:
    log = DecisionLog(limit=1)
    log.settle("default/a", BOUND)
    assert list(log.all()) == []

from leadline_controller.history.log import BOUND, PENDING, DecisionLog
from leadline_controller.history.record import Change, OutcomeChange

from tests.controller.history.decision_builder import decision, name_of


def test_the_oldest_decisions_are_evicted() -> None:
    log = DecisionLog(limit=3)
    for i in range(5):
        log.add(decision(f"p{i}"), float(i), BOUND, {})
    assert [name_of(record) for record in log.all()] == ["p2", "p3", "p4"]
    assert log.get("default/p1") is None


def test_pending_decisions_stay_until_they_have_an_outcome() -> None:
    changes: list[Change] = []
    log = DecisionLog(limit=2, sink=changes.append)
    for i in range(4):
        log.add(decision(f"p{i}"), float(i), PENDING, {})
    log.set_outcome("default/p0", BOUND)
    assert changes[4:] == [OutcomeChange("default/p0", "uid-p0", BOUND)]
    assert [name_of(each) for each in log.all()] == ["p1", "p0", "p2", "p3"]
    log.add(decision("p1", "n2"), 5.0, PENDING, {})
    assert [name_of(each) for each in log.all()] == ["p2", "p3", "p1"]
    assert log.get("default/p0") is None


def test_the_number_of_pending_decisions_is_bounded() -> None:
    log = DecisionLog(limit=1)
    for i in range(5000):
        log.add(decision(f"p{i}"), float(i), PENDING, {})
    assert len(list(log.all())) == 1 + 4096
    assert log.get("default/p902") is None
    assert log.get("default/p903") is not None


def test_a_new_decision_replaces_the_old_one_about_the_pod() -> None:
    log = DecisionLog(limit=3)
    log.add(decision("a", None), 1.0, PENDING, {})
    log.add(decision("b"), 2.0, PENDING, {})
    log.add(decision("a", "n2"), 3.0, PENDING, {"alpha": 0.5})
    assert [name_of(record) for record in log.all()] == ["b", "a"]
    record = log.get("default/a")
    assert record is not None
    assert (record.node, record.decided_s, record.options) == ("n2", 3.0, {"alpha": 0.5})


def test_numbers_grow_with_every_change_and_only_then() -> None:
    log = DecisionLog()
    log.add(decision("a"), 1.0, PENDING, {})
    log.add(decision("b"), 1.0, PENDING, {})
    before = {name_of(record): record.number for record in log.all()}
    log.set_outcome("default/a", BOUND)
    settled = log.get("default/a")
    assert settled is not None
    assert settled.outcome == BOUND
    assert settled.number > max(before.values())
    log.set_outcome("default/a", BOUND)
    assert log.get("default/a") == settled


def test_the_outcome_of_an_unknown_decision_is_ignored() -> None:
    log = DecisionLog(limit=1)
    log.set_outcome("default/a", BOUND)
    assert list(log.all()) == []

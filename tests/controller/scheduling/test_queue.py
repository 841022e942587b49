from typing import Any

from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.scheduling.queue import QueueStatus, SchedulingQueue


def pod(name: str, **fields: Any) -> Pod:
    return Pod("default", name, uid=name, **fields)


def queue(*pods: Pod) -> SchedulingQueue:
    filled = SchedulingQueue()
    for one in pods:
        filled.put(one)
    return filled


def popped(pending: SchedulingQueue, now_s: float = 0.0) -> list[str]:
    """The names of all pods that are ready, in their order."""
    names = []
    while (one := pending.pop(now_s)) is not None:
        names.append(one.name)
    return names


def test_priority_goes_first_then_age() -> None:
    pending = queue(pod("old"), pod("young"), pod("urgent", priority=5), pod("low", priority=-1))
    assert popped(pending) == ["urgent", "old", "young", "low"]


def test_a_pod_in_progress_is_not_popped_again() -> None:
    pending = queue(one := pod("a"))
    assert popped(pending) == ["a"]
    pending.put(one)
    pending.move_to_active_or_backoff(0.0)
    pending.put(pod("a", labels={"x": "y"}))
    assert popped(pending, 1000.0) == []
    assert len(pending) == 1


def test_back_off_doubles_up_to_ten_seconds() -> None:
    pending = queue(pod("a"))
    now_s, waits_s = 0.0, []
    for _ in range(7):
        assert popped(pending, now_s) == ["a"]
        assert pending.failed("a", now_s)
        due_s = pending.next_due_s()
        assert due_s is not None
        assert popped(pending, due_s - 0.001) == []
        waits_s.append(due_s - now_s)
        now_s = due_s
    assert waits_s == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_failed_pod_keeps_its_age() -> None:
    pending = queue(pod("old"), pod("young"))
    assert popped(pending) == ["old", "young"]
    pending.failed("young", 0.0)
    pending.failed("old", 0.0)
    assert popped(pending, 1.0) == ["old", "young"]


def test_an_unschedulable_pod_is_active_after_a_minute() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.mark_unschedulable("a", 0.0)
    assert pending.next_due_s() == 60.0
    assert popped(pending, 59.9) == []
    assert popped(pending, 60.0) == ["a"]


def test_an_event_makes_an_unschedulable_pod_active_after_its_back_off() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.mark_unschedulable("a", 0.0)
    pending.move_to_active_or_backoff(0.25)
    assert popped(pending, 0.9) == []
    assert popped(pending, 1.0) == ["a"]
    pending.mark_unschedulable("a", 1.0)
    pending.move_to_active_or_backoff(30.0)  # it has waited long enough
    assert popped(pending, 30.0) == ["a"]


def test_an_event_moves_the_pods_with_a_hint_for_it() -> None:
    hopes = {
        "a": ClusterEvent.RESOURCES_FREED,
        "b": ClusterEvent.LABELS | ClusterEvent.RESOURCES_FREED,
        "c": NO_EVENT,
        "d": ANY_EVENT,
    }
    pending = queue(*(pod(name) for name in hopes))
    popped(pending)
    for name, requeue_on in hopes.items():
        pending.mark_unschedulable(name, 0.0, requeue_on)
    pending.move_to_active_or_backoff(5.0, NO_EVENT)
    assert popped(pending, 5.0) == []
    pending.move_to_active_or_backoff(5.0, ClusterEvent.LABELS | ClusterEvent.NODES)
    assert popped(pending, 5.0) == ["b", "d"]
    pending.move_to_active_or_backoff(6.0, ClusterEvent.RESOURCES_FREED)
    assert popped(pending, 6.0) == ["a"]
    pending.move_to_active_or_backoff(7.0, ANY_EVENT)
    assert popped(pending, 59.0) == []
    assert popped(pending, 60.0) == ["c"]


def test_the_hints_of_an_earlier_attempt_do_not_count() -> None:
    pending = queue(pod("a"))
    for now_s, requeue_on in (
        (0.0, ClusterEvent.RESOURCES_FREED),
        (60.0, ClusterEvent.PORTS_FREED),
    ):
        popped(pending, now_s)
        pending.mark_unschedulable("a", now_s, requeue_on)
    pending.move_to_active_or_backoff(70.0, ClusterEvent.RESOURCES_FREED)
    assert popped(pending, 70.0) == []
    pending.move_to_active_or_backoff(70.0, ClusterEvent.PORTS_FREED)
    assert popped(pending, 70.0) == ["a"]


def test_an_event_does_not_shorten_the_back_off_of_a_failed_binding() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.failed("a", 0.0)
    pending.move_to_active_or_backoff(0.5)
    assert pending.next_due_s() == 1.0


def test_a_second_event_changes_nothing() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.mark_unschedulable("a", 0.0)
    pending.move_to_active_or_backoff(0.5)
    pending.move_to_active_or_backoff(0.7)
    assert popped(pending, 5.0) == ["a"]
    assert popped(pending, 5.0) == []
    assert pending.next_due_s() is None


def test_a_changed_unschedulable_pod_is_active_at_once() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.mark_unschedulable("a", 0.0)
    pending.put(pod("a"))
    assert popped(pending, 0.1) == []
    pending.put(changed := pod("a", labels={"x": "y"}))
    assert pending.pop(0.1) == changed


def test_a_pod_that_changed_in_progress_is_popped_in_its_new_version() -> None:
    pending = queue(pod("a"))
    popped(pending)
    pending.put(changed := pod("a", labels={"x": "y"}))
    assert pending.failed("a", 0.0)
    assert pending.pop(1.0) == changed


def test_a_pod_removed_in_progress_does_not_come_back() -> None:
    pending = queue(pod("a"), pod("b"))
    popped(pending)
    pending.remove("a")
    assert "b" in pending
    pending.keep_only({"x"})
    assert not pending.failed("a", 0.0)
    pending.mark_unschedulable("b", 0.0)
    assert len(pending) == 0
    assert "a" not in pending
    assert pending.next_due_s() is None
    assert popped(pending, 1000.0) == []


def test_a_pod_removed_during_back_off_does_not_come_back() -> None:
    pending = queue(pod("ready"), pod("failed"), pod("parked"))
    while (one := pending.pop(0.0)) is not None:
        if one.name == "failed":
            pending.failed("failed", 0.0)
        elif one.name == "parked":
            pending.mark_unschedulable("parked", 0.0)
    pending.keep_only(set())
    assert pending.next_due_s() is None
    assert popped(pending, 1000.0) == []


def test_a_pod_added_again_has_no_back_off() -> None:
    pending = queue(pod("a"))
    for now_s in (0.0, 100.0, 200.0):
        popped(pending, now_s)
        pending.failed("a", now_s)
    pending.remove("a")
    pending.put(pod("a"))
    assert popped(pending, 200.0) == ["a"]
    pending.failed("a", 200.0)
    assert pending.next_due_s() == 201.0


def test_without_waiting_pods_nothing_is_due() -> None:
    pending = queue()
    assert pending.next_due_s() is None
    assert pending.pop(0.0) is None


def test_a_reading_counts_the_pods_in_each_state() -> None:
    pending = queue(*(pod(name) for name in ("placed", "failed", "stuck", "held", "waits", "a")))
    assert pending.status() == QueueStatus(active=6)
    for name in ("placed", "failed", "stuck", "held"):
        taken = pending.pop(0.0)
        assert taken is not None
        assert taken.name == name
    pending.failed("failed", 0.0)
    pending.mark_unschedulable("stuck", 0.0)
    pending.hold("held")
    expected = QueueStatus(
        active=2,
        in_progress=1,
        backoff=1,
        unschedulable=1,
        held=1,
        unschedulable_pods=("default/stuck",),
    )
    assert pending.status() == expected
    pending.move_to_active_or_backoff(0.0)
    pending.remove("placed")
    assert pending.status() == QueueStatus(active=2, backoff=2, held=1)
    pending.end_hold("held")
    assert popped(pending, 1000.0) == ["failed", "stuck", "held", "waits", "a"]
    assert pending.status() == QueueStatus(in_progress=5)


def test_a_reading_names_only_some_of_many_pods() -> None:
    pending = queue(*(pod(f"p{at}") for at in range(300)))
    for name in popped(pending):
        pending.mark_unschedulable(name, 0.0)
    status = pending.status(named=3)
    assert status.unschedulable == 300
    assert status.unschedulable_pods == ("default/p0", "default/p1", "default/p2")


def test_a_pod_has_waited_since_it_was_active() -> None:
    pending = SchedulingQueue()
    for name in "abcdef":
        pending.put(pod(name), 10.0)
    for at, name in enumerate("abcd"):
        taken = pending.pop(12.0 + at)
        assert taken is not None
        assert taken.name == name
        assert pending.waited_s(name) == 2.0 + at
    pending.failed("a", 12.0)
    pending.mark_unschedulable("b", 13.0)
    pending.hold("c")
    assert popped(pending, 20.0) == ["a", "e", "f"]
    assert pending.waited_s("a") == 7.0  # since its back-off of one second
    assert pending.waited_s("b") == 0.0

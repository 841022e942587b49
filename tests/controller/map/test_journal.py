"""Which pod was where: the journal of placements against a plain record of every state."""

from random import Random

import pytest
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged, PodDeleted, Relisted
from leadline_controller.map import journal as module
from leadline_controller.map.journal import BoardJournal, PlacementJournal, by_node
from leadline_wire.v1 import control_pb2 as pb

from tests.controller.inspect.harness import node, pod


def test_every_earlier_state_is_the_one_that_was() -> None:
    random, now_s = Random(1), [0.0]
    journal = PlacementJournal(lambda: now_s[0], "leadline")
    assert journal.at(0.0) is None
    pods: dict[str, Pod] = {}
    states = []
    for at in range(300):
        now_s[0] = float(at)
        name = f"p{random.randrange(12)}"
        changed = pod(name, node_name=random.choice([None, "n1", "n2"]))
        match random.randrange(10):
            case 0:
                journal.observe(PodDeleted(changed))
                pods.pop(name, None)
            case 1:
                journal.observe(Relisted((node("n1"),), (changed,)))
                pods = {name: changed}
            case _ if at:
                journal.observe(PodChanged(changed))
                pods[name] = changed
            case _:
                journal.observe(Relisted((), ()))
        here = {f"uid-{x}": each.node_name for x, each in pods.items() if each.node_name}
        states.append(here)
        if at == 0:
            assert journal.since_s == 0.0
    for at, expected in enumerate(states):
        found = journal.at(at + 0.5)
        assert found is not None
        assert {uid: placed.node for uid, placed in found().items()} == expected


def test_what_is_forgotten_is_said() -> None:
    now_s = [0.0]
    journal = PlacementJournal(lambda: now_s[0], "leadline")
    journal.observe(Relisted((), ()))
    for at in range(module._MOST_MOVES + 10):
        now_s[0] = float(at)
        journal.observe(PodChanged(pod("p", node_name=f"n{at}")))
    assert journal.at(5.0) is None
    found = journal.at(20.5)
    assert found is not None
    assert found()["uid-p"].node == "n20"


def test_pods_are_listed_by_node_in_order() -> None:
    journal = PlacementJournal(lambda: 0.0, "leadline")
    names = ("b", "a")
    journal.observe(Relisted((), tuple(pod(name, node_name="n1") for name in names)))
    assert [each["name"] for each in by_node(journal.now())["n1"]] == ["a", "b"]


def status(name: str, *notes: str) -> pb.NodeStatus:
    return pb.NodeStatus(name=name, agent="online", in_cluster=True, schedulable=True, notes=notes)


def test_a_board_whose_notes_change_all_the_time_costs_the_others_nothing() -> None:
    now_s = [0.0]
    journal = BoardJournal(lambda: now_s[0])
    for at in range(500):
        now_s[0] = float(at)
        quiet = status("quiet", "throttled", f"{at} messages lost")
        journal.look((quiet, status("loud", *(f"no {at} {'x' * 999}" for _ in range(99)))))
    first, middle, last = (journal.at(at_s) or {} for at_s in (0.5, 250.5, 499.5))
    assert [each["quiet"].notes for each in (first, middle, last)] == [("throttled",)] * 3
    assert ["loud" in each for each in (first, middle, last)] == [False, False, True]
    assert len(journal._states["loud"]) == 64
    assert len("".join(last["loud"].notes)) <= 8 * 80


def test_boards_that_come_and_go_take_a_bounded_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BOARDS", 10)
    now_s = [0.0]
    journal = BoardJournal(lambda: now_s[0])
    for at in range(100):
        now_s[0] = float(at)
        journal.look((status("stays"), status(f"b{at}")))
    assert len(journal._states) <= 11
    states = journal.at(50.0)
    assert states is not None
    assert "stays" in states

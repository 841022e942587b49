"""Each beginning and each end is told once, never too often, and never again by the next leader."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.notifications.settings import NotifySettings
from leadline_controller.notifications.told import (
    END_FACTOR,
    HOUR_S,
    Message,
    State,
    decoded,
    encoded,
    step,
)
from leadline_wire.v1 import status_pb2 as pb

from tests.controller.notifications.harness import problem

AFTER_S, PER_HOUR = 60.0, 4
SETTINGS = NotifySettings(per_hour=PER_HOUR, after_s=AFTER_S)
BOARDS = [f"n{at}" for at in range(6)]


@dataclass
class People:
    """What people read, and what was really there: kept apart from the state that is tested."""

    state: State = field(default_factory=State)
    now_s: float = 0.0
    offset_s: float = 0.0  # of the leader's clock
    begun: set[str] = field(default_factory=set)
    read_s: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    # When each was first seen as it is now.
    there_s: dict[str, float] = field(default_factory=dict)
    away_s: dict[str, float] = field(default_factory=dict)

    def look(self, there: set[str], *, arrives: bool = True) -> None:
        self.there_s = {name: self.there_s.get(name, self.now_s) for name in sorted(there)}
        gone = set(BOARDS) - there
        self.away_s = {name: self.away_s.get(name, self.now_s) for name in gone}
        problems = [problem("board-offline", sorted(there))] if there else []
        local_s = self.now_s - self.offset_s
        self.state, message = step(self.state, problems, local_s, SETTINGS, "home")
        if message is not None and arrives:
            self.state = self.state.sent(message, local_s)
            self.read(message)

    def read(self, message: Message) -> None:
        self.read_s.append(self.now_s)
        self.texts.append(message.text)
        for line in message.text.splitlines():
            begins = line.startswith("warning: ")
            for name in BOARDS:
                if name not in line:
                    continue
                assert begins == (name not in self.begun), "told twice"
                since_s = (self.there_s if begins else self.away_s)[name]
                assert self.now_s - since_s >= (AFTER_S if begins else END_FACTOR * AFTER_S)
                self.begun ^= {name}
        last_hour = [at for at in self.read_s if self.now_s - at < HOUR_S]
        assert len(last_hour) <= PER_HOUR

    def fail_over(self, offset_s: float) -> None:
        note = encoded(self.state, self.offset_s)
        self.offset_s = offset_s
        self.state = decoded(note, offset_s)


ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([10.0, 50.0, 100.0, 400.0, 2000.0]),
        st.sets(st.sampled_from(BOARDS)),
        st.booleans(),  # whether the receiver is there
        st.none() | st.floats(-1e5, 1e5),  # the clock of a new leader
    ),
    max_size=40,
)


@given(ROUNDS)
def test_people_know_in_the_end_and_are_told_each_change_once(
    rounds: list[tuple[float, set[str], bool, float | None]],
) -> None:
    people = People()
    there: set[str] = set()
    for pause_s, there, arrives, offset_s in rounds:
        if offset_s is not None:
            people.fail_over(offset_s)
        people.look(there, arrives=arrives)
        people.now_s += pause_s
    for _ in range(200):
        people.look(there)
        people.now_s += 30.0
    assert people.begun == there
    told = len(people.read_s)
    people.fail_over(123.0)
    for _ in range(200):
        people.look(there)
        people.now_s += 30.0
    assert len(people.read_s) == told, "told again after a failover"


def looks(people: People, there: set[str], count: int, *, arrives: bool = True) -> None:
    for _ in range(count):
        people.look(there, arrives=arrives)
        people.now_s += 10.0


def test_a_problem_that_comes_and_goes_is_told_once() -> None:
    people = People()
    looks(people, {"n1"}, 10)
    for _ in range(50):
        looks(people, set(), 20)
        looks(people, {"n1"}, 10)
    looks(people, set(), 40)
    assert len(people.texts) == 2


def test_an_hour_has_a_bound_and_what_waited_is_told_together() -> None:
    """Each 130 s another one begins, so each would be a message of its own."""
    people = People()
    for at in range(len(BOARDS)):
        looks(people, set(BOARDS[: at + 1]), 13)
        people.fail_over(1e5 * at)  # the next leader has the same bound
    assert len(people.texts) == PER_HOUR
    looks(people, set(BOARDS), 360)
    assert people.begun == set(BOARDS)
    assert len(people.texts) == PER_HOUR + 1


def test_what_was_left_out_is_counted_in_the_next_one() -> None:
    people = People()
    looks(people, {"n1"}, 10, arrives=False)
    looks(people, set(), 10)
    looks(people, {"n2"}, 10)
    (text,) = people.texts
    assert text.splitlines()[1] == "1 more came and went since the last message"
    looks(people, set(), 40)
    assert people.texts[1:] == ["over: n2: board offline"]


def loses(there: Sequence[pb.Problem], each_s: float = 10.0) -> list[Message]:
    """What is told of problems, of which one more is there at each look."""
    state, messages = State(), []
    for at in range(len(there) + 40):
        now_s = each_s * at
        found = there[: at + 1][-1:]
        state, message = step(state, found, now_s, SETTINGS, "home")
        if message is not None:
            messages.append(message)
            state = state.sent(message, now_s)
    return messages


def test_a_hundred_of_four_hundred_boards_are_one_message_with_some_names() -> None:
    """A switch loses power: the broker notices board by board."""
    boards = [f"pi-{at:03}" for at in range(100)]
    (message,) = loses([problem("board-offline", boards[:count]) for count in (20, 45, 80, 100)])
    names = ", ".join(boards[:8])
    assert message.title == "Leadline home: board offline (100)"
    assert message.text == (
        f"warning: boards {names} and 92 more: the agent is offline; see whether it is on"
    )
    assert message.severity == "warning"


def test_one_more_board_is_told_alone_and_a_silent_one_is_as_an_offline_one() -> None:
    boards = [f"n{at}" for at in range(20)]
    kinds = ["board-silent"] * 20 + ["board-offline"] * 20
    there = [problem(kind, boards) for kind in kinds]
    first, second = loses([*there, problem("board-offline", [*boards, "late"])])
    assert first.title == "Leadline home: board silent (20)"
    assert second.text == "warning: late: the agent is offline; see whether it is on"


def test_the_end_of_what_is_unknown_is_not_told() -> None:
    people = People()
    looks(people, {"n1"}, 10)
    now_s, state = people.now_s, people.state
    for at in range(100):
        state, message = step(state, [], now_s + 10 * at, SETTINGS, "home", lambda _: False)
        assert message is None


def test_notes_and_a_lost_notification_are_not_told() -> None:
    there = [problem("board-without-agent", ["n1"], "note"), problem("notification-lost", ["x"])]
    assert not [each for kind in there for each in loses([kind])]


@given(st.lists(st.text(max_size=2000), min_size=1, max_size=300, unique=True))
def test_a_message_has_a_bound(names: list[str]) -> None:
    messages = loses([problem("board-offline", names, "error")])
    for message in messages:
        assert len(message.title.encode()) <= 120
        assert len(message.text.encode()) <= 3500


@pytest.mark.parametrize(
    "note",
    [
        *("", "{", "3", "[]", "[" * 100_000, " " * 800_000),
        *('{"told": 3}', '{"told": {"a": 3}}', '{"told": {"a": [3]}}'),
        *('{"sent_s": 3}', '{"sent_s": ["x"]}', '{"sent_s": [{}]}'),
    ],
)
def test_a_note_that_cannot_be_read_is_as_none(note: str) -> None:
    assert decoded(note, 0.0) == State()


def test_a_note_is_bounded() -> None:
    note = {"told": {"board-offline": [str(at) for at in range(20_000)]}, "sent_s": [1.0] * 9000}
    state = decoded(json.dumps(note), 0.0)
    assert (len(state.told), len(state.sent_s)) == (5000, 60)

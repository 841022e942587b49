"""The loop of one or two controllers over one cluster, with receivers that come and go."""

import logging
from dataclasses import dataclass, field

import pytest
from leadline_controller.framework.ports import UnavailableError
from leadline_controller.notifications.loop import NOTE, Notifications
from leadline_controller.notifications.receivers import NotSentError, Receiver
from leadline_controller.notifications.settings import NotifySettings
from leadline_controller.notifications.told import END_FACTOR, Message
from leadline_wire.v1 import status_pb2 as pb

from tests.controller.notifications.harness import problem
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.tasks import running

SETTINGS = NotifySettings(url="http://localhost/")
OVER_S = END_FACTOR * SETTINGS.after_s


class Phone(Receiver):
    """Where messages arrive, unless a test says that they do not."""

    def __init__(self) -> None:
        super().__init__(SETTINGS, "http://localhost/")
        self.texts: list[str] = []
        self.problem = ""
        self.asked = 0

    async def send(self, message: Message, limit_s: float) -> None:
        self.asked += 1
        assert limit_s > 0
        if self.problem:
            raise NotSentError(self.problem)
        self.texts.append(message.text)


class FlakyCluster(MemoryCluster):
    """Its notes cannot be had while a test says so."""

    away = False

    async def read_notes(self) -> dict[str, str]:
        if self.away:
            raise UnavailableError("no answer")
        return dict(await super().read_notes())

    async def write_note(self, key: str, text: str | None) -> None:
        if self.away:
            raise UnavailableError("no answer")
        await super().write_note(key, text)


@dataclass
class Scene:
    """What both controllers see."""

    clock: ManualClock = field(default_factory=ManualClock)
    cluster: FlakyCluster = field(default_factory=FlakyCluster)
    phone: Phone = field(default_factory=Phone)
    status: pb.GetStatusResponse = field(default_factory=pb.GetStatusResponse)
    unix_s: float | None = 1.8e9

    async def look(self) -> pb.GetStatusResponse:
        return self.status

    def now_unix_s(self) -> float | None:
        return None if self.unix_s is None else self.unix_s + self.clock.now_s()

    def controller(self, turn: Leads) -> Notifications:
        parts = self.cluster, turn, self.clock, self.now_unix_s
        return Notifications(SETTINGS, "home", self.phone, *parts)

    def has(self, *boards: str) -> None:
        there = [problem("board-offline", boards)] if boards else []
        self.status = pb.GetStatusResponse(problems=there)


async def test_of_two_controllers_one_tells_and_the_next_leader_repeats_nothing() -> None:
    scene, first, second = Scene(), Leads(), Leads(live=False)
    one, other = scene.controller(first), scene.controller(second)
    async with running(one.run(scene.look)), running(other.run(scene.look)):
        scene.has("n1")
        await scene.clock.advance(300)
        assert len(scene.phone.texts) == 1
        assert (one.delivery.since_s, other.delivery.since_s) == (60.0, None)
        first.live = False
        await scene.clock.advance(20)
        second.live = True
        await scene.clock.advance(1000)
        assert len(scene.phone.texts) == 1
        scene.has()
        await scene.clock.advance(OVER_S + 20)
        assert scene.phone.texts[1:] == ["over: n1: board offline"]
        first.live, second.live = True, False
        await scene.clock.advance(1000)
    assert len(scene.phone.texts) == 2


async def test_a_receiver_that_is_away_is_said_and_tried_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    scene = Scene()
    scene.phone.problem = "it answered with HTTP status 500"
    told = scene.controller(Leads())
    scene.has("n1")
    async with running(told.run(scene.look)):
        await scene.clock.advance(7200)
        assert scene.phone.asked < 20
        assert told.delivery.problem == scene.phone.problem
        assert told.delivery.since_s == 60.0
        assert dict(await scene.cluster.read_notes()) == {}
        scene.phone.problem = ""
        await scene.clock.advance(700)
    assert len(scene.phone.texts) == 1
    assert told.delivery.problem == ""
    assert len([each for each in caplog.messages if "HTTP status 500" in each]) == 1


async def test_nothing_is_told_before_the_note_is_read_and_a_note_is_written_later() -> None:
    scene = Scene()
    scene.has("n1")
    scene.cluster.away = True
    async with running(scene.controller(Leads()).run(scene.look)):
        await scene.clock.advance(600)
        assert scene.phone.texts == []
        scene.cluster.away = False
        await scene.clock.advance(20)
        scene.cluster.away = True
        await scene.clock.advance(600)
        assert len(scene.phone.texts) == 1
        scene.cluster.away = False
        await scene.clock.advance(20)
    assert "n1" in dict(await scene.cluster.read_notes())[NOTE]


async def test_nothing_is_told_while_the_clock_is_not_set_or_the_leadership_ends() -> None:
    scene, turn = Scene(unix_s=None), Leads()
    scene.has("n1")
    async with running(scene.controller(turn).run(scene.look)):
        await scene.clock.advance(600)
        assert scene.phone.texts == []
        scene.unix_s = 1.8e9
        await scene.clock.advance(30)
        turn.live = False
        await scene.clock.advance(600)
    assert scene.phone.texts == []


async def test_boards_are_not_over_while_the_broker_is_away() -> None:
    scene = Scene()
    scene.has("n1")
    async with running(scene.controller(Leads()).run(scene.look)):
        await scene.clock.advance(100)
        scene.status = pb.GetStatusResponse(
            broker=pb.BrokerCondition(answers=False),
            problems=[problem("broker-away", ["broker b:1"], "error")],
        )
        await scene.clock.advance(1000)
        assert [each.split(":")[0] for each in scene.phone.texts] == ["warning", "error"]
        scene.has()
        await scene.clock.advance(OVER_S + 20)
    assert scene.phone.texts[2:] == ["over: n1: board offline\nover: broker b:1: broker away"]


async def test_an_error_of_the_diagnosis_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()

    async def fails() -> pb.GetStatusResponse:
        if scene.clock.now_s() < 100:
            raise RuntimeError("a bug")
        return scene.status

    scene.has("n1")
    async with running(scene.controller(Leads()).run(fails)):
        await scene.clock.advance(300)
    assert len(scene.phone.texts) == 1
    assert len([each for each in caplog.messages if "a bug" in each]) == 1

"""A cluster whose controllers publish for Home Assistant."""

import json
from typing import Any

from leadline_controller.framework.ports import Relisted
from leadline_controller.homeassistant.messages import PublishSettings, Topics
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading

from tests.controller.homeassistant.state_brokers import CLUSTER, RunningController, StateBroker
from tests.controller.inspect.harness import ControllerHarness, node

ON = PublishSettings(home_assistant=True)


TOPICS = Topics(CLUSTER)
ROOT = f"leadline/state/{CLUSTER}"
ENTITIES = 6


class Home:
    """A cluster with its broker, and a clock that moves with each tick."""

    def __init__(self, broker: StateBroker, *names: str) -> None:
        self.broker = broker
        self.world = ControllerHarness()
        self.world.cluster.apply(Relisted(tuple(node(name) for name in names), ()))

    def start(self, settings: PublishSettings = ON) -> RunningController:
        return self.broker.start(settings, self.world.cluster, self.world.telemetry)

    def run(self, *controllers: RunningController, for_s: float = 5.0) -> None:
        end_s = self.world.now_s + for_s
        while self.world.now_s < end_s:
            self.world.now_s += 1.0
            for controller in controllers:
                controller.tick(self.world.now_s)

    def report(self, name: str, celsius: float, **flags: bool) -> None:
        reading = BoardReading({"cpu_celsius": celsius}, flags=flags)
        self.world.telemetry.report(name, self.world.stamp(name), reading)

    def hear(self, name: str, version: str = "0.1.0") -> None:
        agent = Agent(name, version=version, hardware_model="Pi 4")
        self.world.telemetry.birth(agent, self.world.stamp(name))

    def discovered(self, name: str = "") -> dict[str, Any]:
        """The discovery messages at the broker, of a board or of all."""
        of_board = set(TOPICS.of_board(name)) if name else None
        return {
            topic: json.loads(payload)
            for topic, payload in dict(self.broker.retained).items()
            if (topic in of_board if of_board is not None else topic.endswith("/config"))
        }

    def state(self, name: str) -> dict[str, Any]:
        """The board's state at the broker; without keys while there is none."""
        state: dict[str, Any] = json.loads(self.broker.retained.get(f"{ROOT}/boards/{name}", b"{}"))
        return state

    def said_of_controller(self) -> bytes | None:
        return self.broker.retained.get(f"{ROOT}/controller")

    def wait_retained(self, controller: RunningController, count: int) -> None:
        """Wait until a controller has what the broker retained."""
        self.broker.wait(lambda: len(controller.publisher._kept) == count, "all has come")

    def wait_discovered(self, name: str, count: int = ENTITIES) -> None:
        self.broker.wait(
            lambda: len(self.discovered(name)) == count, f"{name} has {count} discovery messages"
        )

"""Home Assistant's own MQTT integration reads what a controller publishes, through a mosquitto with
the listener and the ACL of the role `broker`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.ports import NodeDeleted, PodChanged
from leadline_controller.homeassistant.messages import PublishSettings
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.session import BrokerTls

from tests.controller.homeassistant.home import Home
from tests.controller.homeassistant.state_brokers import (
    CLUSTER,
    MosquittoBroker,
    MosquittoController,
    observed,
)
from tests.controller.inspect.harness import pod
from tests.home_assistant.instance import HomeAssistant, home_assistant
from tests.support.broker_role import controller_of, role_broker
from tests.support.certificates import Authority
from tests.system.daemons import eventually

pytestmark = pytest.mark.home_assistant
READER, OBSERVER = "home-assistant:leadline", "home-assistant:observer"
SETTINGS = PublishSettings(home_assistant=True, interval_s=1.0)
# As its user interface writes them when the integration is added.
BIRTH = {"topic": "homeassistant/status", "payload": "online", "qos": 0, "retain": False}
BOARDS = ("pi-1", "pi-2.lan", "pi-3")
NOTHING_YET = ("unknown", "unavailable")
KINDS = {"binary_sensor": ("online", "throttled", "under_voltage")} | {
    "sensor": ("temperature", "bandwidth", "pods")
}


@dataclass
class Scene:
    """A home with its controller, and Home Assistant."""

    home: Home
    controller: MosquittoController
    instance: HomeAssistant

    def wait(self, is_right: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Run the controller until Home Assistant shows what is expected, and return all of it."""

        def look() -> dict[str, Any]:
            self.home.run(self.controller, for_s=1)
            return self.instance.look()

        seen = eventually(look, lambda seen: is_right(seen["entities"]), what, every_s=0.3)
        assert seen["complaints"] == []
        entities: dict[str, Any] = seen["entities"]
        return entities


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("home-assistant")
    authority = Authority(folder / "ca")
    reader, observer = (
        authority.client(name.replace(":", "-"), common_name=name) for name in (READER, OBSERVER)
    )
    own = authority.client("controller", common_name=controller_of("a"))
    tls = BrokerTls(own.ca_file, own.cert_file, own.key_file)
    settings = {
        "broker": "localhost",
        "discovery": True,
        "discovery_prefix": "homeassistant",
        "birth_message": BIRTH,
        "will_message": BIRTH | {"payload": "offline"},
        "certificate": reader.ca_file.read_text(),
        "client_cert": reader.cert_file.read_text(),
        "client_key": reader.key_file.read_text(),
    }
    with (
        role_broker(folder, authority, CLUSTER, (), ["a"], [READER, OBSERVER]) as broker,
        observed(MosquittoBroker("localhost", broker.port, observer, tls)) as published,
        home_assistant(folder / "config", settings | {"port": broker.port}) as instance,
    ):
        home = Home(published, *BOARDS)
        home.hear("pi-1")
        home.report("pi-1", 48.31, throttled=False, under_voltage=False)
        hostile = Agent("pi-3", version="{{ 1/0 }}", hardware_model='"}{{ states }}\n\0')
        home.world.telemetry.birth(hostile, home.world.stamp("pi-3"))
        home.world.cluster.apply(PodChanged(pod("web", node_name="pi-1")))
        controller = published.start(SETTINGS, home.world.cluster, home.world.telemetry)
        yield Scene(home, controller, instance)


def test_each_board_is_a_device_with_its_entities(scene: Scene) -> None:
    entities = scene.wait(
        lambda seen: (
            len(seen) == 18
            and not any(
                seen[f"{kind}.pi_1_{name}"]["state"] in NOTHING_YET
                for kind, names in KINDS.items()
                for name in names
                if name != "bandwidth"  # which stays unknown
            )
            and seen["sensor.pi_1_bandwidth"]["state"] != "unavailable"
        ),
        "all boards are discovered",
    )
    assert entities.keys() == {
        f"{kind}.{board}_{name}"
        for kind, names in KINDS.items()
        for board in ("pi_1", "pi_2_lan", "pi_3")
        for name in names
    }
    assert {entity["device"]["name"] for entity in entities.values()} == set(BOARDS)
    assert {name: entities[f"{name}"]["state"] for name in entities if ".pi_1_" in name} == {
        "binary_sensor.pi_1_online": "on",
        "binary_sensor.pi_1_throttled": "off",
        "binary_sensor.pi_1_under_voltage": "off",
        "sensor.pi_1_temperature": "48.3",
        "sensor.pi_1_bandwidth": "unknown",
        "sensor.pi_1_pods": "1",
    }
    temperature = entities["sensor.pi_1_temperature"]
    assert temperature["attributes"]["unit_of_measurement"] == "°C"
    assert temperature["attributes"]["device_class"] == "temperature"
    assert temperature["attributes"]["friendly_name"] == "pi-1 Temperature"
    assert temperature["device"] == {"name": "pi-1", "model": "Pi 4", "version": "0.1.0"}
    assert entities["sensor.pi_3_pods"]["device"]["version"] == "{{ 1/0 }}"


def test_what_is_not_known_is_unknown_and_never_zero(scene: Scene) -> None:
    entities = scene.wait(
        lambda seen: (
            seen.get("sensor.pi_2_lan_pods", {"state": "unknown"})["state"] not in NOTHING_YET
        ),
        "its state is there",
    )
    unknown = {name: seen["state"] for name, seen in entities.items() if ".pi_2_lan_" in name}
    assert unknown.pop("sensor.pi_2_lan_pods") == "0"
    assert set(unknown.values()) == {"unknown"}


def test_an_under_voltage_and_a_bandwidth_are_shown(scene: Scene) -> None:
    home = scene.home
    home.report("pi-1", 51.0, throttled=True, under_voltage=True)
    home.hear("pi-3")
    home.world.telemetry.bandwidth(BandwidthTest("pi-1", "pi-3", 93.12, 0.0001, home.world.now_s))
    entities = scene.wait(
        lambda seen: (
            seen["binary_sensor.pi_1_under_voltage"]["state"] == "on"
            and seen["sensor.pi_1_bandwidth"]["state"] != "unknown"
        ),
        "the new state",
    )
    assert entities["binary_sensor.pi_1_throttled"]["state"] == "on"
    bandwidth = entities["sensor.pi_1_bandwidth"]
    assert float(bandwidth["state"]) == home.state("pi-1")["bandwidth_mbps"] > 0
    assert bandwidth["attributes"]["lower_bound"] is True
    assert bandwidth["attributes"]["unit_of_measurement"] == "Mbit/s"


def test_a_board_that_falls_silent_is_disconnected_and_its_values_are_unavailable(
    scene: Scene,
) -> None:
    scene.home.run(scene.controller, for_s=70)
    entities = scene.wait(
        lambda seen: seen["binary_sensor.pi_1_online"]["state"] == "off", "its reports ended"
    )
    assert entities["sensor.pi_1_temperature"]["state"] == "unavailable"
    assert entities["binary_sensor.pi_1_under_voltage"]["state"] == "unavailable"
    assert entities["sensor.pi_1_pods"]["state"] == "1"


def test_without_a_controller_all_is_unavailable_and_comes_back(scene: Scene) -> None:
    scene.controller.leads = False
    scene.controller.reconnect()  # its old session leaves the will
    scene.wait(
        lambda seen: {entity["state"] for entity in seen.values()} == {"unavailable"}, "its will"
    )
    scene.controller.leads = True
    scene.home.report("pi-1", 40.0, throttled=False, under_voltage=False)
    scene.wait(lambda seen: seen["sensor.pi_1_temperature"]["state"] == "40.0", "it leads again")


def test_a_board_that_left_is_removed(scene: Scene) -> None:
    scene.home.world.cluster.apply(NodeDeleted("pi-2.lan"))
    scene.home.run(scene.controller, for_s=700)
    entities = scene.wait(lambda seen: len(seen) == 12, "its entities are removed")
    assert not [name for name in entities if "pi_2" in name]


def test_switched_off_all_is_removed(scene: Scene, tmp_path: Path) -> None:
    scene.controller.end()
    off = PublishSettings(interval_s=1.0)
    published = scene.home.broker
    scene.controller = published.start(  # type: ignore[assignment]
        off, scene.home.world.cluster, scene.home.world.telemetry
    )
    scene.wait(lambda seen: not seen, "no entity is left")

"""A reading of a board, and the messages that Home Assistant and others read of it."""

import json
import re
from typing import Any

import pytest
from leadline_controller.homeassistant.messages import BoardState, Topics

TOPICS = Topics("home.lab")
STATE = "leadline/state/home.lab/boards/pi-1.lan"
CONTROLLER = "leadline/state/home.lab/controller"
# What Home Assistant takes in a discovery topic.
TOPIC = re.compile(
    r"homeassistant/(?P<component>\w+)/(?P<node_id>[a-zA-Z0-9_-]+)/(?P<object_id>[a-zA-Z0-9_-]+)/config"
)
# The fields that are used of those that Home Assistant takes; it refuses any other. Its schemas of
# 2024.3 and of today agree in these, and `make test-home-assistant` asks the former.
COMMON: dict[str, object] = {
    **dict.fromkeys(("name", "unique_id", "state_topic", "value_template"), str),
    **dict.fromkeys(("json_attributes_topic", "json_attributes_template", "icon"), str),
    "availability_mode": ("all", "any", "latest"),
    "availability": [{"topic": str, "value_template": str}],
    "expire_after": int,
    "entity_category": ("config", "diagnostic"),
    "device": {"identifiers": [str], "name": str, "model": str, "sw_version": str},
    "origin": {"name": str},
}
SCHEMAS: dict[str, dict[str, object]] = {
    "binary_sensor": {
        **COMMON,
        "device_class": ("connectivity", "problem"),
        "payload_on": str,
        "payload_off": str,
    },
    "sensor": {
        **COMMON,
        "device_class": ("temperature", "data_rate"),
        "state_class": ("measurement",),
        "unit_of_measurement": ("°C", "Mbit/s", "pods"),
        "suggested_display_precision": int,
    },
}
REQUIRED = {"unique_id", "state_topic", "value_template", "device", "availability", "expire_after"}


def check(value: Any, schema: object) -> None:
    """A type, a choice of values, a list of what is alike, or an object of these."""
    if isinstance(schema, type):
        assert isinstance(value, schema), value
        assert value, "empty"
    elif isinstance(schema, tuple):
        assert value in schema
    elif isinstance(schema, list):
        assert value
        for each in value:
            check(each, schema[0])
    else:
        assert isinstance(schema, dict)
        for name, each in value.items():
            assert name in schema
            check(each, schema[name])


def discovery(
    board: str = "pi-1.lan", model: str = "Raspberry Pi 4 Model B Rev 1.4", version: str = "0.1.0"
) -> dict[str, dict[str, Any]]:
    """Object id -> the message, checked."""
    found = {}
    for topic, payload in TOPICS.discovery(board, model, version, 30.0):
        matched = TOPIC.fullmatch(topic)
        assert matched, topic
        config = json.loads(payload)
        check(config, SCHEMAS[matched["component"]])
        assert config.keys() >= REQUIRED
        assert matched["node_id"] == "leadline_home_lab"
        found[matched["object_id"]] = config
    return found


def test_each_entity_says_what_it_is() -> None:
    found = discovery()
    assert {name: config["name"] for name, config in found.items()} == {
        "pi-1_lan_online": "Online",
        "pi-1_lan_throttled": "Throttled",
        "pi-1_lan_under_voltage": "Under-voltage",
        "pi-1_lan_temperature_celsius": "Temperature",
        "pi-1_lan_bandwidth_mbps": "Bandwidth",
        "pi-1_lan_pods": "Pods",
    }
    assert found["pi-1_lan_temperature_celsius"] == {
        "name": "Temperature",
        "unique_id": "leadline:home.lab:pi-1.lan:temperature_celsius",
        "state_topic": STATE,
        "value_template": "{{ value_json.temperature_celsius }}",
        "availability_mode": "all",
        "availability": [
            {"topic": CONTROLLER},
            {
                "topic": STATE,
                "value_template": "{{ 'offline' if value_json.online == false else 'online' }}",
            },
        ],
        "expire_after": 300,
        "device": {
            "identifiers": ["leadline:home.lab:pi-1.lan"],
            "name": "pi-1.lan",
            "model": "Raspberry Pi 4 Model B Rev 1.4",
            "sw_version": "0.1.0",
        },
        "origin": {"name": "Leadline"},
        "device_class": "temperature",
        "state_class": "measurement",
        "unit_of_measurement": "°C",
        "suggested_display_precision": 1,
    }


def test_what_is_known_without_the_agent_depends_on_the_controller_only() -> None:
    without_agent = {
        name
        for name, config in discovery().items()
        if config["availability"] == [{"topic": CONTROLLER}]
    }
    assert without_agent == {"pi-1_lan_online", "pi-1_lan_pods"}


def test_every_template_names_a_field_of_the_state() -> None:
    state = json.loads(BoardState("online", None, None, None, None, None, 0).payload())
    for config in discovery().values():
        named = re.findall(r"value_json\.(\w+)", json.dumps(config))
        assert named
        assert set(named) <= state.keys()


@pytest.mark.parametrize(
    ("agent", "online"),
    [("online", True), ("offline", False), ("silent", False), ("unknown", None)],
)
def test_a_state_is_json_with_null_for_what_is_unknown(agent: str, online: bool | None) -> None:
    state = BoardState(agent, None, None, None, None, None, 3)
    assert json.loads(state.payload()) == {
        "online": online,
        "agent": agent,
        "temperature_celsius": None,
        "throttled": None,
        "under_voltage": None,
        "bandwidth_mbps": None,
        "bandwidth_is_lower_bound": None,
        "pods": 3,
    }


def test_topics_and_ids_of_boards_differ() -> None:
    """Also where one name is a part of another, and where only the dot differs."""
    clusters = ["a", "a.b", "leadline"]
    boards = ["b", "b.c", "b-c", "pods", "b.pods", "B", "online", "under.voltage", "under"]
    topics: list[str] = []
    unique_ids: list[str] = []
    for cluster in clusters:
        for board in boards:
            for topic, payload in Topics(cluster).discovery(board, "", "", 30.0):
                topics.append(topic)
                unique_ids.append(json.loads(payload)["unique_id"])
    assert (
        len(set(topics)) == len(set(unique_ids)) == len(topics) == len(clusters) * len(boards) * 6
    )


@pytest.mark.parametrize(
    "text", ["{{ 1/0 }}", '"},"x":{"', "a\nb\0c\x1b[31m", "ü" * 1000, "\ud800"]
)
def test_what_a_board_says_of_itself_stays_one_short_text(text: str) -> None:
    for config in discovery(model=text, version=text).values():
        model = config["device"].get("model", "")
        assert len(model) <= 100
        assert model.isprintable()
        assert text not in config["value_template"]


def test_what_a_board_does_not_say_is_left_out() -> None:
    assert set(discovery(model="", version=" ")["pi-1_lan_pods"]["device"]) == {
        "identifiers",
        "name",
    }


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a+", "a\0b", "$x", "ä", "a b", "x" * 300])
def test_a_name_that_is_no_level_gets_no_topic(name: str) -> None:
    with pytest.raises(ValueError, match="expected letters"):
        TOPICS.state(name)
    with pytest.raises(ValueError, match="expected letters"):
        list(TOPICS.of_board(name))
    with pytest.raises(ValueError, match="expected letters"):
        Topics(name)


def test_only_this_clusters_discovery_messages_are_its_own() -> None:
    topics = Topics("home.lab", "ha/x")
    (own, *_) = topics.of_board("pi-1")
    assert own == "ha/x/binary_sensor/leadline_home_lab/pi-1_online/config"
    assert topics.is_discovery(own)
    for other in (
        own.replace("home", "attic"),
        own.removeprefix("ha/x/"),
        own.removesuffix("/config"),
        f"{own}/config",
        "",
        CONTROLLER,
    ):
        assert not topics.is_discovery(other), other

"""The boards' states as JSON for Home Assistant and other MQTT clients, and Home Assistant's
discovery messages. docs/home-assistant.md has the topics.

There is one discovery message for each entity. Home Assistant 2024.11 also takes one for a whole
device, but earlier versions don't, and later ones still take those of entities.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from leadline_wire import topics

from leadline_controller.parsing.settings import setting

_ROOT = "leadline/state"
DEFAULT_PREFIX = "homeassistant"
ONLINE, OFFLINE = b"online", b"offline"
# A state that does not change is published again after four intervals, and is unknown after ten.
REFRESHED_AFTER, EXPIRES_AFTER = 4, 10
# What a board says of itself, in Home Assistant: a Pi's model has 30 characters.
_MOST_TEXT = 100
_LEVEL = re.compile(r"[-_a-zA-Z0-9.]+")
_COMPONENTS = ("binary_sensor", "sensor")


def _topic_levels(text: str) -> str:
    levels = text.split("/")
    if levels[0] == "leadline" or not all(_LEVEL.fullmatch(level) for level in levels):
        raise ValueError(
            "expected topic levels such as homeassistant, without + and #, and not leadline"
        )
    return text


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """Whether and how states are published."""

    home_assistant: bool = setting(
        False,
        "true: the leader publishes each board's state at the broker, for "
        "[Home Assistant](home-assistant.md) and other MQTT clients. false, in a section "
        "`[publish]`: it takes back what it published",
    )
    discovery_prefix: str = setting(
        DEFAULT_PREFIX,
        "the discovery prefix of Home Assistant's MQTT integration",
        read=_topic_levels,
    )
    interval_s: float = setting(
        30.0,
        "the shortest time between two states of a board; one that does not change is "
        "repeated every 4 intervals, and ends after 10",
        least=1,
        most=3600,
    )


@dataclass(frozen=True, slots=True)
class BoardState:
    """What is published of a board. Unknown values are None."""

    agent: str  # online, offline, silent or unknown
    temperature_celsius: float | None
    throttled: bool | None
    under_voltage: bool | None
    bandwidth_mbps: float | None
    bandwidth_is_lower_bound: bool | None  # whether the link can do more, nobody knows how much
    pods: int

    def payload(self) -> bytes:
        """As JSON."""
        online = None if self.agent == "unknown" else self.agent == "online"
        return _json({"online": online, **asdict(self)})


@dataclass(frozen=True, slots=True)
class _Entity:
    """An entity of each board."""

    component: str
    key: str
    name: str
    config: Mapping[str, object]
    outlives: bool = False  # whether it is known without the board's agent


# The template makes "True", "False" or "None" of JSON's values; "None" is unknown.
_FLAG = {"payload_on": "True", "payload_off": "False"}
_ENTITIES: Sequence[_Entity] = (
    _Entity(
        "binary_sensor",
        "online",
        "Online",
        {**_FLAG, "device_class": "connectivity", "entity_category": "diagnostic"},
        outlives=True,
    ),
    _Entity("binary_sensor", "throttled", "Throttled", {**_FLAG, "device_class": "problem"}),
    _Entity(
        "binary_sensor", "under_voltage", "Under-voltage", {**_FLAG, "device_class": "problem"}
    ),
    _Entity(
        "sensor",
        "temperature_celsius",
        "Temperature",
        {
            "device_class": "temperature",
            "state_class": "measurement",
            "unit_of_measurement": "°C",
            "suggested_display_precision": 1,
        },
    ),
    _Entity(
        "sensor",
        "bandwidth_mbps",
        "Bandwidth",
        {
            "device_class": "data_rate",
            "state_class": "measurement",
            "unit_of_measurement": "Mbit/s",
            "suggested_display_precision": 1,
        },
    ),
    _Entity(
        "sensor",
        "pods",
        "Pods",
        {"state_class": "measurement", "unit_of_measurement": "pods", "icon": "mdi:kubernetes"},
        outlives=True,
    ),
)
_LOWER_BOUND = "{{ {'lower_bound': value_json.bandwidth_is_lower_bound} | tojson }}"
_AVAILABLE = "{{ 'offline' if value_json.online == false else 'online' }}"


class Topics:
    """The topics of one cluster. Raises ValueError for a cluster or board that can't be a level."""

    def __init__(self, cluster: str, prefix: str = DEFAULT_PREFIX) -> None:
        self.cluster = topics.check_level(cluster, "cluster")
        self._prefix = prefix
        self._of_cluster = f"leadline_{_as_id(cluster)}"
        self.controller = f"{_ROOT}/{cluster}/controller"
        self.home_assistant = f"{prefix}/status"
        self.discoveries = [f"{prefix}/{each}/{self._of_cluster}/+/config" for each in _COMPONENTS]

    def state(self, board: str) -> str:
        """Where the board's state is."""
        return f"{_ROOT}/{self.cluster}/boards/{topics.check_level(board, 'node')}"

    def is_discovery(self, topic: str) -> bool:
        """Whether Home Assistant discovers something of this cluster by it."""
        own, _, rest = topic.partition(f"/{self._of_cluster}/")
        parents = [f"{self._prefix}/{component}" for component in _COMPONENTS]
        return own in parents and rest.count("/") == 1 and rest.endswith("/config")

    def of_board(self, board: str) -> Iterator[str]:
        """Where the discovery messages of a board are."""
        for entity in _ENTITIES:
            yield self._discovery(entity, board)

    def _discovery(self, entity: _Entity, board: str) -> str:
        name = f"{_as_id(topics.check_level(board, 'node'))}_{entity.key}"
        return f"{self._prefix}/{entity.component}/{self._of_cluster}/{name}/config"

    def discovery(
        self, board: str, model: str, agent_version: str, interval_s: float
    ) -> Iterator[tuple[str, bytes]]:
        """The discovery messages of a board: topic and JSON. model, agent_version: as the board
        says; "" is unknown. interval_s: the shortest time between its states."""
        device = {
            "identifiers": [self._unique_id(board)],
            "name": board,
            "model": _short(model),
            "sw_version": _short(agent_version),
        }
        of_controller: dict[str, object] = {"topic": self.controller}
        of_board = {"topic": self.state(board), "value_template": _AVAILABLE}
        for entity in _ENTITIES:
            config: dict[str, object] = {
                "name": entity.name,
                "unique_id": self._unique_id(board, entity.key),
                "state_topic": self.state(board),
                "value_template": f"{{{{ value_json.{entity.key} }}}}",
                # An earlier version of Home Assistant takes the newest of all by default.
                "availability_mode": "all",
                "availability": [of_controller] if entity.outlives else [of_controller, of_board],
                "expire_after": round(EXPIRES_AFTER * interval_s),
                "device": {key: value for key, value in device.items() if value},
                "origin": {"name": "Leadline"},
                **entity.config,
            }
            if entity.key == "bandwidth_mbps":
                config["json_attributes_topic"] = self.state(board)
                config["json_attributes_template"] = _LOWER_BOUND
            yield self._discovery(entity, board), _json(config)

    def _unique_id(self, *names: str) -> str:
        # No name has a colon, so that no two entities have the same id.
        return ":".join(("leadline", self.cluster, *names))


def is_board(name: str) -> bool:
    """Whether a node's name can be a level of a topic."""
    try:
        topics.check_level(name, "node")
    except ValueError:
        return False
    return True


def _as_id(level: str) -> str:
    """A level in the characters that Home Assistant allows in a discovery topic: all but the dot.
    No level has an underscore of its own."""
    return level.replace(".", "_")


def _short(text: str) -> str:
    """What a board says of itself, as one line."""
    return "".join(c if c.isprintable() else " " for c in text[:_MOST_TEXT]).strip()


def _json(data: Mapping[str, object]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

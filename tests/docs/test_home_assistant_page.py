"""docs/home-assistant.md has the topics, fields, entities, rules and numbers of the code."""

import json
import re
from pathlib import Path

import yaml
from leadline_controller.homeassistant import publisher
from leadline_controller.homeassistant.messages import (
    EXPIRES_AFTER,
    REFRESHED_AFTER,
    BoardState,
    PublishSettings,
    Topics,
)

from tests.support.broker_role import acl, controller_of

PAGE = (Path(__file__).parents[2] / "docs/home-assistant.md").read_text()
TOPICS = Topics("home")


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a line that begins so."""
    table = PAGE.split(f"\n{heading}")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_entities_are_those_that_are_discovered() -> None:
    configs = [json.loads(payload) for _, payload in TOPICS.discovery("pi-1", "", "", 30.0)]
    assert [(row[0], row[2]) for row in rows("| entity |")] == [
        (config["name"], config.get("unit_of_measurement", "")) for config in configs
    ]


def test_the_fields_are_those_of_a_state() -> None:
    state = json.loads(BoardState("online", None, None, None, None, None, 7).payload())
    named = [name for row in rows("| field |") for name in re.findall(r"`(\w+)`", row[0])]
    assert named == list(state)
    (shown,) = re.findall(r"^leadline/state/home/boards/pi-1 (.*)$", PAGE, re.MULTILINE)
    assert list(json.loads(shown)) == list(state)
    assert f"{TOPICS.state('pi-1')} " in PAGE


def test_the_rules_are_those_of_the_role(tmp_path: Path) -> None:
    rules = acl(
        tmp_path, "home", controllers=["server"], home_assistants=["home-assistant:leadline"]
    )
    of_role = rules.read_text().split("\n\n")
    for block in re.findall(r"^user .*(?:\n(?:topic .*))+", PAGE, re.MULTILINE):
        user, *lines = block.splitlines()
        (own,) = (each for each in of_role if each.startswith(f"{user}\n"))
        theirs = [line for line in own.strip().splitlines()[1:] if "leadline/v1" not in line]
        assert lines == theirs, user
    assert f"user {controller_of('server')}\n" in PAGE


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    interval_s = PublishSettings().interval_s
    assert f"`publish.interval_s` ({interval_s:g} s)" in text
    assert f"otherwise every {REFRESHED_AFTER} intervals" in text
    assert f"not repeated for {EXPIRES_AFTER} intervals" in text
    assert f"unavailable {EXPIRES_AFTER} intervals" in text
    assert f"told at {publisher._MOST_DISCOVERIES} a second" in text
    assert f"{10_000 / interval_s:.0f} messages a second" in text
    assert publisher._GONE_AFTER_S == 600


def test_the_examples_entities_are_those_of_home_assistant() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (automation,) = yaml.safe_load(example)["automation"]
    (trigger,) = automation["triggers"]
    assert [trigger["from"], trigger["to"]] == ["off", "on"]
    for entity_id in trigger["entity_id"]:
        # Home Assistant makes it of the names of device and entity.
        assert re.fullmatch(r"binary_sensor\.pi_[12]_under_voltage", entity_id)

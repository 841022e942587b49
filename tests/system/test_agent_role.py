"""The role `agent` accepts the settings of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_agent.config import ConfigError, load

from tests.system.test_controller_role import paths

ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "agent"
# Variables of their own, and the files that the unit hands over.
OF_THE_ROLE = {"node", "cluster", "interval_s", "broker.host", "broker.port", "probe.address"}
OF_THE_ROLE |= {"textfile.path"}


def fields(folder: Path) -> set[str]:
    """Every setting of the agent, from its error about an unknown one."""
    wrong = folder / "wrong.toml"
    wrong.write_text("nothing = 1\n")
    with pytest.raises(ConfigError) as raised:
        load(wrong, {})
    return set(str(raised.value).partition("one of ")[2].split(", "))


def test_a_setting_that_the_agent_does_not_know_is_refused(tmp_path: Path) -> None:
    specs: dict[str, Any] = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    named = paths(specs["argument_specs"]["main"]["options"]["agent_settings"]["options"])
    theirs = {path for path in fields(tmp_path) if not path.startswith("broker.tls.")}
    assert named == theirs - OF_THE_ROLE

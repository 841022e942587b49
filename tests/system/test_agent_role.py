"""The role `agent` accepts the settings of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_agent.config import ConfigError, load

ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "agent"
# Variables of their own, and the files that the unit hands over.
OF_THE_ROLE = {"node", "cluster", "interval_s", "broker.host", "broker.port", "probe.address"}
OF_THE_ROLE |= {"textfile.path", "flows.path"}


def fields(folder: Path) -> set[str]:
    """Every setting of the agent, from its error about an unknown one."""
    wrong = folder / "wrong.toml"
    wrong.write_text("nothing = 1\n")
    with pytest.raises(ConfigError) as raised:
        load(wrong, {})
    return set(str(raised.value).partition("one of ")[2].split(", "))


def paths(options: dict[str, Any], prefix: str = "") -> set[str]:
    """The settings that an argument spec names, as `table.field`."""
    found: set[str] = set()
    for name, spec in options.items():
        inner = spec.get("options") if spec["type"] == "dict" else None
        found |= paths(inner, f"{prefix}{name}.") if inner else {prefix + name}
    return found


def test_a_setting_that_the_agent_does_not_know_is_refused(tmp_path: Path) -> None:
    specs: dict[str, Any] = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    named = paths(specs["argument_specs"]["main"]["options"]["agent_settings"]["options"])
    theirs = {path for path in fields(tmp_path) if not path.startswith("broker.tls.")}
    assert named == theirs - OF_THE_ROLE

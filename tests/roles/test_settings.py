"""controller.toml and agent.toml as the roles write them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from leadline_flows import __main__ as flows_program

ROLES = Path(__file__).parents[2] / "ansible/roles"
TEMPLATE = (ROLES / "controller/templates/controller.toml.j2").read_text()


def rendered(template: str, **variables: object) -> dict[str, Any]:
    """What a template of a role says with these variables."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, autoescape=False)  # noqa: S701  # as Ansible's; TOML
    environment.filters |= {
        "to_json": json.dumps,
        "bool": bool,
        "combine": lambda first, *others: {
            k: v for each in (first, *others) for k, v in each.items()
        },
        "dict2items": lambda table: [{"key": k, "value": v} for k, v in table.items()],
        "items2dict": lambda items: {each["key"]: each["value"] for each in items},
    }
    return tomllib.loads(environment.from_string(template).render(**variables))


@pytest.mark.parametrize("section", ["extender", "keda", "metrics", "web"])
def test_an_empty_section_is_written(section: str) -> None:
    settings = {"cluster": "lab", section: {}, "probe": {"interval_s": 60}}
    assert rendered(TEMPLATE, controller_all=settings) == settings


@pytest.mark.parametrize("flows", [True, False])
def test_the_agent_reads_what_its_board_counts_if_the_board_counts(flows: bool) -> None:
    template = (ROLES / "agent/templates/agent.toml.j2").read_text()
    variables = {
        "agent_node": "pi-1",
        "agent_cluster": "home",
        "agent_interval_s": 10,
        "agent_broker_host": "10.0.0.5",
        "agent_broker_port": 8883,
        "agent_probe_address": "",
        "agent_textfile_dir": "",
        "agent_settings": {"buffer": {"max_bytes": 8192}},
    }
    written = rendered(template, agent_flows=flows, **variables)
    assert written["buffer"] == {"max_bytes": 8192}
    assert written.get("flows") == ({"path": flows_program.DEFAULT_FILE} if flows else None)

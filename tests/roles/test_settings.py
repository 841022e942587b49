"""controller.toml as the role writes it: a section without fields switches its part on, too."""

import json
import tomllib
from pathlib import Path

import pytest

TEMPLATE = (
    Path(__file__).parents[2] / "ansible/roles/controller/templates/controller.toml.j2"
).read_text()


@pytest.mark.parametrize("section", ["extender", "keda", "metrics", "web"])
def test_an_empty_section_is_written(section: str) -> None:
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, autoescape=False)  # noqa: S701  # as Ansible's; TOML
    environment.filters["to_json"] = json.dumps
    settings = {"cluster": "lab", section: {}, "probe": {"interval_s": 60}}
    written = environment.from_string(TEMPLATE).render(controller_all=settings)
    assert tomllib.loads(written) == settings

"""The chart and the kustomize base say what the rest of the project says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from leadline_bundle import image
from leadline_controller import config
from leadline_controller.api.settings import DEFAULT_HEALTH_ADDRESS

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "controller" / "deploy"
CHART = DEPLOY / "helm" / "leadline"
BASE = DEPLOY / "kustomize" / "base"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def schema() -> dict[str, Any]:
    return dict(json.loads((CHART / "values.schema.json").read_text()))


def paths(table: dict[str, Any], prefix: str = "") -> set[str]:
    """The settings that a schema names, as `table.field`."""
    found: set[str] = set()
    for name, spec in table["properties"].items():
        named = paths(spec, f"{prefix}{name}.") if "properties" in spec else {prefix + name}
        found |= named
    return found


def test_the_schema_has_the_settings_of_the_file() -> None:
    # The probes' address and the login are the chart's own.
    own = {"health.address", "kubernetes.kubeconfig"}
    theirs = {*config.VARIABLES, "strategy.options", "probe.uplinks"} - own
    assert paths(schema()["properties"]["settings"]) == theirs


def test_the_schema_has_every_value_and_no_other() -> None:
    def compare(values: dict[str, Any], table: dict[str, Any]) -> None:
        assert set(values) == set(table["properties"])
        assert table["additionalProperties"] is False
        for name, value in values.items():
            inner = table["properties"][name]
            if isinstance(value, dict) and "properties" in inner and name != "settings":
                compare(value, inner)

    whole = schema()
    del whole["properties"]["global"]  # Helm's own
    compare(VALUES, whole)


def test_versions_are_the_releases() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    (named,) = yaml.safe_load((BASE / "kustomization.yaml").read_text())["images"]
    assert (named["newName"], named["newTag"]) == (VALUES["image"]["repository"], version)
    names = {VALUES["image"]["repository"], VALUES["broker"]["image"]["repository"]}
    assert names == {f"{image.REGISTRY}/{name}" for name in image.PACKAGES}


def test_the_account_is_the_one_of_the_image() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    assert set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", helpers)) == {str(image.USER)}


def test_the_rights_are_those_that_the_command_prints() -> None:
    manifests = REPOSITORY / "controller/leadline_controller/kube/manifests"
    assert (CHART / "rights").resolve() == manifests
    resources = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert (BASE / resources[0]).resolve() == manifests
    assert yaml.safe_load((manifests / "kustomization.yaml").read_text())["resources"] == [
        "rights.yaml",
        "preemption.yaml",
    ]


def test_the_broker_lets_clients_do_what_the_role_lets_them() -> None:
    """By the lines of the role's two templates, whatever names and paths are filled in."""

    def lines(text: str) -> list[str]:
        filled = (re.sub(r"\{\{.*?\}\}", "X", line.strip()) for line in text.splitlines())
        return [line for line in filled if line not in ("", "X") and line[0] not in "#{"]

    role = REPOSITORY / "ansible/roles/broker/templates"
    chart = (CHART / "templates" / "broker.yaml").read_text()
    config_map = chart.partition("mosquitto.conf: |")[2].partition("\n---\n")[0]
    ours, acl = config_map.split("  acl: |")
    assert lines(acl) == lines((role / "acl.j2").read_text())
    # What differs: where files are, that nothing is kept, and the bounds that the role computes.
    differs = (
        *("listener", "cafile", "certfile", "keyfile", "acl_file"),
        *("persistence", "autosave_interval", "log_dest", "max_"),
    )

    def settings(text: str) -> list[str]:
        return [line for line in lines(text) if not line.startswith(differs)]

    assert settings(ours.partition("# Who may say")[0]) == settings(
        (role / "leadline.conf.j2").read_text()
    )
    defaults = yaml.safe_load((REPOSITORY / "ansible/roles/broker/defaults/main.yml").read_text())
    assert f"max_queued_bytes {defaults['broker_max_queued_bytes']}\n" in ours
    assert f"max_packet_size {defaults['broker_max_packet_bytes']}\n" in ours
    assert "max_queued_messages 10000\n" in ours


def test_probes_ask_where_the_controller_answers() -> None:
    port = DEFAULT_HEALTH_ADDRESS.rpartition(":")[2]
    base = yaml.safe_load((BASE / "statefulset.yaml").read_text())
    (container,) = base["spec"]["template"]["spec"]["containers"]
    assert {"name": "health", "containerPort": int(port)} in container["ports"]
    settings = tomllib.loads((BASE / "controller.toml").read_text())
    assert settings["health"]["address"] == f"0.0.0.0:{port}"

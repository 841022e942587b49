"""The chart and the kustomize base say what the rest of the project says."""

from __future__ import annotations

import re
import tomllib

import yaml
from leadline_bundle import image
from leadline_controller.serve.settings import DEFAULT_HEALTH_ADDRESS

from tests.support.release import REPOSITORY, VERSION

DEPLOY = REPOSITORY / "controller" / "deploy"
CHART = DEPLOY / "helm" / "leadline"
BASE = DEPLOY / "kustomize" / "base"
AGENT = DEPLOY / "kustomize" / "agent"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_versions_are_the_releases() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    images = (VALUES["image"], VALUES["agent"]["image"])
    for folder, values in zip((BASE, AGENT), images, strict=True):
        (named,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["images"]
        assert (named["newName"], named["newTag"]) == (values["repository"], VERSION)
    names = {each["repository"] for each in (*images, VALUES["broker"]["image"])}
    assert names == {f"{image.REGISTRY}/{name}" for name in image.PACKAGES}


def test_the_account_is_the_one_of_the_image() -> None:
    for file in (CHART / "templates" / "_helpers.tpl", AGENT / "daemonset.yaml"):
        accounts = re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", file.read_text())
        assert set(accounts) == {str(image.USER)}


def test_an_agents_pod_has_no_more_rights_than_its_unit() -> None:
    pod = yaml.safe_load((AGENT / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    assert not {"hostPID", "hostIPC"} & pod.keys()
    assert not [each for each in pod["volumes"] if "hostPath" in each]
    (enroll,), (agent,) = pod["initContainers"], pod["containers"]
    for each in (enroll, agent):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    unit = (REPOSITORY / "systemd/leadline-agent.service").read_text()
    assert f"MemoryMax={agent['resources']['limits']['memory'].removesuffix('i')}\n" in unit
    # Only what asks for the certificate can ask in the pod's name.
    assert pod["automountServiceAccountToken"] is False
    mounted = {each["name"]: {m["name"] for m in each["volumeMounts"]} for each in (enroll, agent)}
    assert "token" in mounted["enroll"] - mounted["agent"]
    assert {each["name"] for each in agent["volumeMounts"] if each.get("readOnly")} == {
        "certificate",
        "authority",
    }


def test_the_rights_are_those_that_the_command_prints() -> None:
    manifests = REPOSITORY / "controller/leadline_controller/kube/manifests"
    assert (CHART / "rights").resolve() == manifests
    resources = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert (BASE / resources[0]).resolve() == manifests
    assert yaml.safe_load((manifests / "kustomization.yaml").read_text())["resources"] == [
        "rights.yaml",
        "preemption.yaml",
        "metrics-api.yaml",
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

"""What Helm and kustomize make of the chart and the base."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from leadline_controller.cli.commands.kube import kube

from tests.chart.helm import CHART, RELEASE, HelmError, helm, values_file
from tests.contracts.harnesses import NOTES
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.daemon import toolchain
from tests.kube.gobuild import built
from tests.support.release import VERSION

pytestmark = pytest.mark.chart

BASE = CHART.parents[1] / "kustomize" / "base"
AGENT = BASE.parent / "agent"
Objects = dict[tuple[str, str], dict[str, Any]]
CERTIFIED = {"certificates": {"broker": ["leadline-broker-0"]}}
AGENTS: dict[str, Any] = {
    "certificates": {"broker": ["leadline-broker-0"], "agents": "leadline-agents"},
    "settings": {"broker": {"host": "leadline-broker.kube-system.svc", "port": 8883}},
    "agent": {"enabled": True},
}
# Every kind of setting: tables in tables, lists, lists of tables, numbers, flags and odd texts.
SETTINGS = {
    "cluster": "attic",
    "warm_up_s": 2.5,
    "broker": {"host": "10.0.0.2", "port": 8883},
    "kubernetes": {"deletion_cost": True},
    "strategy": {"name": "dacs", "options": {"alpha": 0.25, "rate": 4}},
    "probe": {
        "anchors": ["n1", "n2"],
        "networks": [],
        "bytes_per_day": 1000000000,
        "uplinks": [
            {"name": 'a "quoted" <name> \\ é', "nodes": ["n1"], "mbps": 20},
            {"name": "lte", "nodes": ["n2", "n3"], "bytes_per_day": 0},
        ],
    },
    "images": {"pull_secrets": ["default/one", "default/two", "other/one"]},
    "metrics": {"address": "0.0.0.0:25508"},
    "rescheduling": {"mode": "manual"},
}


def objects(text: str) -> Objects:
    found = [each for each in yaml.safe_load_all(text) if each]
    named = {(each["kind"], _name(each)): each for each in found}
    assert len(named) == len(found)
    return named


def _name(thing: dict[str, Any]) -> str:
    metadata = thing["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def rendered(home: Path, values: dict[str, Any]) -> Objects:
    return objects(helm("template", *RELEASE, values_file(home, values), home=home))


def settings_of(made: Objects) -> dict[str, Any]:
    return tomllib.loads(
        made["ConfigMap", "kube-system/leadline-controller"]["data"]["controller.toml"]
    )


def printed(*flags: str) -> Objects:
    """What `leadline kube manifests` prints."""
    return objects(CliRunner().invoke(kube, ["manifests", *flags]).output)


def test_helm_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    full = {
        **CERTIFIED,
        "settings": SETTINGS,
        "broker": {"enabled": True, "certificate": "leadline-broker"},
    }
    for values in (CERTIFIED, AGENTS, full):
        flags = ("--strict", "--namespace=kube-system", values_file(tmp_path, values))
        said = helm("lint", *flags, CHART, home=tmp_path)
        assert "0 chart(s) failed" in said


def test_the_settings_are_those_of_the_values(tmp_path: Path) -> None:
    values = {
        "settings": SETTINGS,
        "certificates": {"metrics": "prom", **CERTIFIED["certificates"]},
    }
    found = settings_of(rendered(tmp_path, values))

    def files(name: str) -> dict[str, str]:
        folder = f"/etc/leadline/pki/{name}"
        return {
            "ca_file": f"{folder}/ca.crt",
            "cert_file": f"{folder}/tls.crt",
            "key_file": f"{folder}/tls.key",
        }

    expected: dict[str, Any] = {**SETTINGS, "health": {"address": "0.0.0.0:25510"}}
    expected["broker"] = {**expected["broker"], "tls": files("broker")}
    expected["metrics"] = {**expected["metrics"], "tls": files("metrics")}
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, []),
        ({"rescheduling": {"mode": "automatic"}}, ["--rescheduling"]),
        ({"notify": {"url": "https://ntfy.sh/topic"}}, ["--notify"]),
        ({"kubernetes": {"deletion_cost": True}}, ["--deletion-cost"]),
        ({"kubernetes": {"preemption": False}}, ["--no-preemption"]),
        ({"kubernetes": {"standalone": False}}, ["--no-preemption"]),
        ({"kubernetes": {"metrics_api": False}}, ["--no-metrics-api"]),
        (
            {"images": {"pull_secrets": ["a/b", "a/c", "d/e"]}},
            [f"--pull-secret={key}" for key in ("a/b", "a/c", "d/e")],
        ),
    ],
    ids=[
        *("least", "rescheduling", "notify", "deletion-cost", "no-preemption", "extender"),
        *("no-metrics-api", "pull-secrets"),
    ],
)
def test_the_rights_are_those_that_the_command_prints(
    settings: dict[str, Any], flags: list[str], tmp_path: Path
) -> None:
    made = rendered(tmp_path, {"settings": settings})
    kinds = {kind for kind, _ in printed("--rescheduling")}
    del made["ConfigMap", "kube-system/leadline-controller"]  # its settings
    rights = {key: each for key, each in made.items() if key[0] in kinds}
    assert rights == printed(*flags)


def test_moves_that_an_earlier_controller_noted_itself_are_left_to_it(
    plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    """Helm refuses to install what is there already and is not its own."""
    values = values_file(tmp_path, {"settings": {"rescheduling": {"mode": "manual"}}})
    flags = ("--dry-run=server", f"--kubeconfig={plane.kubeconfig}", values)

    def notes() -> bool:
        made = objects(helm("template", *RELEASE, *flags, home=tmp_path))
        assert ("Role", "kube-system/leadline-rescheduling") in made
        return ("ConfigMap", "kube-system/leadline-rescheduling") in made

    assert notes()
    metadata = {"name": "leadline-rescheduling"}
    api.create(NOTES.rpartition("/")[0], {"metadata": metadata, "data": {"moves": "[]"}})
    try:
        assert not notes()
        meta = "meta.helm.sh/release"
        release = {f"{meta}-name": "leadline", f"{meta}-namespace": "kube-system"}
        by_helm = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": release}
        api.patch(NOTES, {"metadata": by_helm})
        assert notes()
    finally:
        api.delete(NOTES)


def test_a_server_that_others_reach_has_a_service_and_an_open_port(tmp_path: Path) -> None:
    settings = {"metrics": {"address": "0.0.0.0:25508"}, "keda": {"address": "127.0.0.1:25507"}}
    values = {"settings": settings, "certificates": {"metrics": "prometheus"}}
    made = rendered(tmp_path, values)
    (port,) = made["Service", "kube-system/leadline-controller"]["spec"]["ports"]
    assert port == {"name": "metrics", "port": 25508, "targetPort": "metrics"}
    policy = made["NetworkPolicy", "kube-system/leadline-controller"]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "health"}, {"port": "metrics"}]}]
    assert ("Service", "kube-system/leadline-controller") not in rendered(tmp_path, {})


@pytest.mark.parametrize(
    ("address", "told", "ports"),
    [
        (None, None, []),  # the default: the socket, and with a certificate the loopback port
        ("0.0.0.0:25505", "unix:/run/leadline/controller.sock,0.0.0.0:25505", [25505]),
        ("unix:/run/leadline/s, [::]:9", "unix:/run/leadline/s, [::]:9", [9]),
    ],
)
def test_the_command_finds_the_controller_in_its_own_pod(
    address: str | None, told: str | None, ports: list[int], tmp_path: Path
) -> None:
    settings = {} if address is None else {"grpc": {"address": address}}
    values = {"settings": settings, "certificates": {"grpc": "leadline-grpc"}}
    made = rendered(tmp_path, values)
    grpc = settings_of(made)["grpc"]
    assert (grpc.get("address"), grpc["tls"]["key_file"]) == (
        told,
        "/etc/leadline/pki/grpc/tls.key",
    )
    service = made.get(("Service", "kube-system/leadline-controller"), {"spec": {"ports": []}})
    assert [each["port"] for each in service["spec"]["ports"]] == ports


def test_each_replica_has_its_own_certificate(tmp_path: Path) -> None:
    values = {"replicas": 2, "certificates": {"broker": ["first", "second"]}}
    made = rendered(tmp_path, values)
    pod = made["StatefulSet", "kube-system/leadline-controller"]["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "broker-certificates")
    found = {
        item["path"]: source["secret"]["name"]
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert found["leadline-controller-0/tls.key"] == "first"
    assert found["leadline-controller-1/tls.key"] == "second"


def test_images_may_be_named_by_digest(tmp_path: Path) -> None:
    image = {"repository": "registry.example/it", "digest": f"sha256:{'0a' * 32}"}
    broker = {"enabled": True, "certificate": "leadline-broker", "image": image}
    made = rendered(tmp_path, {**CERTIFIED, "image": {**image, "tag": "7"}, "broker": broker})
    for (kind, name), tag in {
        ("StatefulSet", "leadline-controller"): "7",
        ("Deployment", "leadline-broker"): VERSION,
    }.items():
        (container,) = made[kind, f"kube-system/{name}"]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"registry.example/it:{tag}@{image['digest']}"


def test_a_new_setting_starts_the_pods_again(tmp_path: Path) -> None:
    def annotations(cluster: str) -> dict[str, str]:
        made = rendered(tmp_path, {"settings": {"cluster": cluster}})
        template = made["StatefulSet", "kube-system/leadline-controller"]["spec"]["template"]
        return dict(template["metadata"]["annotations"])

    assert annotations("one") == annotations("one") != annotations("two")


WRONG = [
    ({"settings": {"borker": {}}}, "borker"),
    ({"settings": {"probe": {"port": "high"}}}, "/settings/probe/port"),
    ({"settings": {"rescheduling": {"mode": "on"}}}, "/settings/rescheduling/mode"),
    ({"replica": 2}, "replica"),
    ({"certificates": {"broker": "one"}}, "/certificates/broker"),
    ({"image": {"digest": "0a0a"}}, "/image/digest"),
    ({"replicas": 2, **CERTIFIED}, "expected one Secret for each replica"),
    ({"broker": {"enabled": True}}, "broker.certificate: expected the name of a Secret"),
]


@pytest.mark.parametrize(("values", "message"), WRONG, ids=[repr(each[0]) for each in WRONG])
def test_a_wrong_value_is_refused(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(tmp_path, values)
    assert message in str(refused.value)


def test_another_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HelmError, match="install it with --namespace kube-system"):
        helm("template", "leadline", CHART, "--namespace=default", home=tmp_path)


def kustomized(folder: Path) -> str:
    program = built(toolchain(os.environ), os.environ)
    command = [str(program), "kubectl", "kustomize", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_kustomize_and_the_chart_make_the_same_agents(tmp_path: Path) -> None:
    resources = [os.path.relpath(BASE, tmp_path)]
    overlay = {"resources": resources, "components": [os.path.relpath(AGENT, tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    component, chart = objects(kustomized(tmp_path)), rendered(tmp_path, AGENTS)
    name = "kube-system/leadline-agent"
    ours, charts = (each["DaemonSet", name]["spec"] for each in (component, chart))
    for each in (ours, charts):
        (agent,) = each["template"]["spec"]["containers"]
        agent["env"].sort(key=lambda variable: variable["name"])
    assert ours == charts
    for key in component:
        if key[0] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
            assert component[key] == chart[key], key
    key = "StatefulSet", "kube-system/leadline-controller"
    pods = [each[key]["spec"]["template"]["spec"] for each in (component, chart)]
    for pod in pods:
        assert '"secretName": "leadline-agents"' in json.dumps(pod["volumes"])
        assert "/etc/leadline/pki/agents" in json.dumps(pod["containers"][0]["volumeMounts"])
    said = {each.get("value") for each in pods[0]["containers"][0]["env"]}
    assert set(settings_of(chart)["issuing"].values()) <= said


def test_agents_are_off_and_their_values_are_used(tmp_path: Path) -> None:
    assert not [name for kind, name in rendered(tmp_path, CERTIFIED) if "leadline-agent" in name]
    values = {
        **AGENTS,
        "settings": {**AGENTS["settings"], "cluster": "attic"},
        "apiServer": {"host": "10.0.0.9", "port": 6444},
        "agent": {
            **{"enabled": True, "env": [{"name": "LEADLINE_INTERVAL_S", "value": "5"}]},
            **{"nodeSelector": {"a": "b"}, "image": {"digest": f"sha256:{'0' * 64}"}},
        },
    }
    made = rendered(tmp_path, values)["DaemonSet", "kube-system/leadline-agent"]["spec"]
    spec = made["template"]["spec"]
    said = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert (said["LEADLINE_CLUSTER"], said["LEADLINE_INTERVAL_S"]) == ("attic", "5")
    asked = {each["name"]: each.get("value") for each in spec["initContainers"][0]["env"]}
    assert asked["KUBERNETES_SERVICE_HOST"] == "10.0.0.9"
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["containers"][0]["image"].endswith("0" * 64)


def test_the_kustomize_base_is_the_chart_with_a_certificate(tmp_path: Path) -> None:
    made = kustomized(BASE)
    base, chart = objects(made), rendered(tmp_path, CERTIFIED)
    # Kustomize names a ConfigMap by its content, where Helm has an annotation of the pods.
    (settings,) = (each for kind, each in base if kind == "ConfigMap")
    name = settings.partition("/")[2]
    assert name.startswith("leadline-controller-")
    base = objects(made.replace(name, "leadline-controller"))
    for each in chart.values():
        labels = each["metadata"].get("labels", {})
        for label in ("version", "managed-by"):
            labels.pop(f"app.kubernetes.io/{label}", None)
        labels.pop("helm.sh/chart", None)
    template = chart["StatefulSet", "kube-system/leadline-controller"]["spec"]["template"]
    del template["metadata"]["annotations"]["checksum/settings"]
    assert settings_of(base) == settings_of(chart)
    for found in (base, chart):
        config_map = found.pop(("ConfigMap", "kube-system/leadline-controller"))
        assert set(config_map["data"]) == {"controller.toml"}
    assert base == chart

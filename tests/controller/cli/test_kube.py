"""The file for kube-scheduler; that it takes it is tested in tests/kube."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_controller.cli.__main__ import run
from leadline_controller.serve.settings import DEFAULT_EXTENDER_ADDRESS

TLS = ["--ca", "/p/ca.pem", "--cert", "/p/cert.pem", "--key", "/p/key.pem"]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert run(["kube", "extender-config", *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return yaml.safe_load(shown.out)


def test_the_defaults_fit_the_controllers_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = printed(capsys)
    assert config.pop("extenders") == [
        {
            "urlPrefix": f"http://{DEFAULT_EXTENDER_ADDRESS}",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 10,
            "enableHTTPS": False,
            "httpTimeout": "5s",
            "nodeCacheCapable": True,
            "ignorable": True,
        }
    ]
    assert config == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"},
    }


def test_every_option_is_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(
        capsys,
        *("--address", "https://leadline.example:1/x/", *TLS, "--weight", "200", "--bind"),
        *("--no-ignorable", "--no-node-cache-capable", "--timeout", "2500ms"),
        *("--kubeconfig", "/etc/kubernetes/scheduler.conf"),
    )
    assert config["extenders"] == [
        {
            "urlPrefix": "https://leadline.example:1/x",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 200,
            "enableHTTPS": True,
            "tlsConfig": {
                "caFile": "/p/ca.pem",
                "certFile": "/p/cert.pem",
                "keyFile": "/p/key.pem",
            },
            "httpTimeout": "2500ms",
            "nodeCacheCapable": False,
            "ignorable": False,
        }
    ]
    assert config["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"


def test_binding_needs_certificates_and_a_setting_of_the_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["kube", "extender-config", "--bind"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "--bind: expected an https address, got http://127.0.0.1:25506" in told.err
    for options, named in (((), False), (("--bind",), True)):
        assert run(["kube", "extender-config", "--address", "https://x:1", *TLS, *options]) == 0
        assert ("needs bind = true in [extender]" in capsys.readouterr().out) == named


@pytest.mark.parametrize("host", ["localhost", "127.0.0.9", "[::1]"])
def test_an_extender_on_this_machine_needs_no_certificates(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (extender,) = printed(capsys, "--address", f"http://{host}:9")["extenders"]
    assert "tlsConfig" not in extender


def test_the_file_and_the_documentation_name_the_same_place_on_k3s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["kube", "extender-config"]) == 0
    comment = re.findall("^# ?(.*)$", capsys.readouterr().out, re.MULTILINE)
    guide = (Path(__file__).parents[3] / "docs" / "k3s.md").read_text()
    (drop_in,) = re.findall(r"`(/\S+)`; the `\+` keeps what is set elsewhere:\n", guide)
    (block,) = re.findall(r"^ +(kube-scheduler-arg\+:\n +- \S+)$", guide, re.MULTILINE)
    (file,) = set(re.findall(r"extender-config > (\S+)", guide))
    lines = [line.strip() for line in block.splitlines()]
    at = [line.strip() for line in comment].index(lines[0])
    assert [line.strip() for line in comment[at : at + 2]] == lines
    assert yaml.safe_load("\n".join(comment[at : at + 2])) == {
        "kube-scheduler-arg+": [f"config={file}"]
    }
    assert drop_in in " ".join(comment)
    assert file in comment[0]


WRONG = [
    (["--address", "http://10.0.0.5:1"], "expected https, because 10.0.0.5 is another machine"),
    (["--address", "ftp://10.0.0.5:1"], "expected https://host:port"),
    (["--address", "10.0.0.5:25506"], "expected https://host:port"),
    (["--address", "https://10.0.0.5:x", *TLS], "--address https://10.0.0.5:x: "),
    (["--address", "https://[::1", *TLS], "--address https://[::1: "),
    (["--address", "https://10.0.0.5:1"], "--ca, --cert, --key: missing"),
    (["--address", "https://10.0.0.5:1", *TLS[:4]], "--key: missing"),
    (TLS, "--ca, --cert, --key: expected with an https address only"),
    (["--address", "https://x:1", *TLS[2:], "--ca", "ca.pem"], "expected an absolute path"),
    (["--kubeconfig", "admin.conf"], "expected an absolute path"),
    (["--weight", "0"], "--weight"),
    (["--timeout", "soon"], "expected a duration such as 5s"),
]


@pytest.mark.parametrize(("options", "told"), WRONG, ids=[str(each[0]) for each in WRONG])
def test_what_kube_scheduler_would_refuse_is_bad_usage(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kube", "extender-config", *options]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert told in shown.err


def test_pull_secrets_get_a_right_each_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kube", "manifests"]) == 0
    default = capsys.readouterr().out
    assert "secrets" not in default
    keys = ("default/regcred", "shop/a", "shop/b", "shop/a")
    assert run(["kube", "manifests", *(f"--pull-secret={key}" for key in keys)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(default)
    added = list(yaml.safe_load_all(shown.removeprefix(default)))
    roles = [each for each in added if each and each["kind"] == "Role"]
    assert [(role["metadata"]["namespace"], role["rules"]) for role in roles] == [
        (
            namespace,
            [
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": names,
                    "verbs": ["get"],
                }
            ],
        )
        for namespace, names in (("default", ["regcred"]), ("shop", ["a", "b"]))
    ]


@pytest.mark.parametrize("key", ["", "a", "a/b/c", "a/*", "A/b", "a/b\n---", "/b"])
def test_a_pull_secret_must_be_named_whole(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kube", "manifests", f"--pull-secret={key}"]) == 2
    assert "expected NAMESPACE/NAME" in capsys.readouterr().err

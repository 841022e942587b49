"""docs/k3s.md, followed as far as one can without k3s: what it has people type makes the files
that it has others read."""

from __future__ import annotations

import base64
import json
import re
import shlex
import ssl
import subprocess
from pathlib import Path
from textwrap import dedent

import aiohttp
import pytest
import yaml
from leadline_agent import config as agent
from leadline_controller import settings as controller
from leadline_controller.cli.__main__ import run
from leadline_controller.extender.server import ExtenderServer
from leadline_controller.kube.connection import Login
from leadline_controller.serve.settings import ExtenderSettings

from tests.controller.extender.harness import ExtenderHarness

PAGE = Path(__file__).parents[2] / "docs" / "k3s.md"
HERE = "127.0.0.1"


def block(holding: str, folder: Path, section: str = "") -> str:
    """The first block of the page, or of a section, that holds this text, with its files below
    `folder` and its machines here."""
    text = PAGE.read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    # Some begin on the line of the number of a step.
    blocks = re.split(r"^.*```\n", text, flags=re.MULTILINE)[1::2]
    found = next(dedent(each) for each in blocks if holding in each)
    return found.replace("/etc/leadline", str(folder)).replace("10.0.0.5", HERE)


def shell(commands: str, folder: Path) -> None:
    subprocess.run(["bash", "-euc", commands], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/etc/leadline with the certificates that the page has people make."""
    made = tmp_path_factory.mktemp("etc-leadline")
    shell(block("-newkey", made), made)
    return made


async def test_the_extenders_certificates_open_its_door_and_the_brokers_do_not(
    folder: Path,
) -> None:
    (folder / "controller.toml").write_text(block("[extender.tls]", folder))
    extender = controller.load(folder / "controller.toml").extender
    assert extender is not None
    scene = ExtenderHarness()
    scene.list()
    server = ExtenderServer(ExtenderSettings(f"{HERE}:0", extender.tls), scene.extender_service)
    address = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            for name, is_let_in in (("extender-kube-scheduler", True), ("mqtt-pi-1", False)):
                context = ssl.create_default_context(cafile=folder / "extender-ca.pem")
                context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
                try:
                    async with session.get(f"https://{address}/healthz", ssl=context) as answer:
                        assert (answer.status, is_let_in) == (200, True)
                except (aiohttp.ClientError, OSError):
                    assert not is_let_in
    finally:
        await server.stop()


def test_kube_schedulers_file_names_certificates_that_were_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = block("extender-config --address", folder).replace("\\\n", " ")
    arguments = shlex.split(command.partition(">")[0])
    assert arguments[0] == "leadline"
    assert run(arguments[1:]) == 0
    (extender,) = yaml.safe_load(capsys.readouterr().out)["extenders"]
    assert extender["urlPrefix"] == f"https://{HERE}:25506"
    assert all(Path(file).is_file() for file in extender["tlsConfig"].values())


def test_the_agent_takes_its_file(folder: Path) -> None:
    (folder / "agent.toml").write_text(block('node = "pi-1"', folder))
    settings = agent.load(folder / "agent.toml", {})
    assert settings.node == "pi-1"


KUBECTL = """
kubectl() {
  case "$*" in
    *ca*) printf %s "$CA" | base64 -w 0 ;;
    *token*) printf secret | base64 -w 0 ;;
    *) echo "$*" > asked ;;
  esac
}
CA=$(cat extender-ca.pem)
"""


async def test_the_kubeconfig_is_one(folder: Path) -> None:
    shell(KUBECTL + block("current-context: leadline", folder), folder)
    file = folder / "kubeconfig"
    assert file.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(file.read_text())
    (cluster,), (user,) = config["clusters"], config["users"]
    authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    assert authority.strip() == (folder / "extender-ca.pem").read_text().strip()
    assert user["user"] == {"token": "secret"}
    assert (await Login(file).open()).host == "https://127.0.0.1:6443"
    assert (folder / "asked").read_text().split() == ["--kubeconfig", str(file), "get", "nodes"]


@pytest.mark.parametrize("section", ["Extender", "Standalone"])
def test_the_controller_takes_both_ways_files(folder: Path, section: str) -> None:
    (folder / "kubeconfig").touch()
    (folder / "way.toml").write_text(block("[kubernetes]", folder, section))
    settings = controller.load(folder / "way.toml")
    extends = settings.extender is not None
    assert (extends, settings.standalone) == (section == "Extender", section == "Standalone")
    assert settings.kubeconfig == folder / "kubeconfig"


def test_what_goes_back_undoes_what_was_put_in() -> None:
    """Each merge patch of a workload has its removal."""
    patches = re.findall(r"kubectl patch deployment NAME --type (\w+) -p '(.*)'", PAGE.read_text())
    merged, removed = (json.loads(text) for _, text in patches)
    assert [kind for kind, _ in patches] == ["merge", "json"]
    (step,) = removed
    put: object = merged
    for key in step["path"].strip("/").split("/"):
        assert isinstance(put, dict)
        put = put[key]
    assert (put, step["op"]) == ("leadline", "remove")

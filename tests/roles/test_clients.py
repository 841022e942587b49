"""The certificates that the role pki makes for those who ask the controller from other machines are
those that its servers need, and where they are made, the role controller names them."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from leadline_controller.map.settings import WebSettings, WebTls
from leadline_controller.metrics.instruments import Instruments
from leadline_controller.metrics.reader import MetricsReader, MetricsSource
from leadline_controller.metrics.server import MetricsServer
from leadline_controller.serve.settings import MetricsSettings, ServeSettings, TlsFiles

from tests.controller.inspect.harness import answering, example_controller
from tests.controller.map import harness as web_harness

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
COLLECTION = Path(__file__).parents[2] / "ansible"
PKI, CONTROLLER = COLLECTION / "roles/pki", COLLECTION / "roles/controller"
SERVERS = ("grpc", "metrics", "web")
CLIENTS = (("grpc", "alice"), ("metrics", "prometheus"), ("web", "bob"))
ELSEWHERE = {"metrics": {"address": "0.0.0.0:25508"}, "web": {"address": "[::]:25509"}}
# On this machine alone, with own certificates, or not at all.
HERE: tuple[dict[str, Any], ...] = (
    {"metrics": {}, "web": {"address": "127.0.0.1:25509"}},
    {"metrics": {"address": "localhost:9"}, "web": {"address": "[::1]:25509"}},
    {"metrics": {"address": "0.0.0.0:9", "tls": {"ca_file": "/a", "cert_file": "/b"}}},
    {"grpc": {"address": "0.0.0.0:25505"}},
    {},
)


def play(folder: Path, tasks: list[dict[str, Any]], **hosts: dict[str, Any]) -> None:
    """Run tasks on hosts of the group leadline_controllers, with their variables."""
    inventory = {"leadline_controllers": {"hosts": hosts}}
    whole = [{"hosts": "all", "connection": "local", "gather_facts": False, "tasks": tasks}]
    variables = {
        "leadline_pki_dir": str(folder),
        "leadline_broker_address": "127.0.0.1",
        "leadline_bundle_dir": "/bundle",
        "leadline_remote": True,
        "pki_clients": ["alice"],
        "pki_metrics_clients": ["prometheus"],
        "pki_web_clients": ["bob"],
        "ansible_python_interpreter": sys.executable,
    }
    for name, content in (("inventory", inventory), ("play", whole), ("vars", variables)):
        (folder / f"{name}.yml").write_text(yaml.safe_dump(content))
    argv = [str(PLAYBOOK), f"{folder}/play.yml", "-i", f"{folder}/inventory.yml"]
    argv += ["-e", f"@{folder}/vars.yml"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def pki(part: str, **variables: Any) -> dict[str, Any]:
    role = {"name": str(PKI), "tasks_from": part, "public": True}
    return {"include_role": role, "vars": {"pki_purpose": "grpc"} | variables}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the certificates."""
    folder = tmp_path_factory.mktemp("pki")
    tasks = [pki("preflight"), *(pki("authority", pki_authority=each) for each in SERVERS)]
    tasks += [pki("client", pki_client_authority=each, pki_client=name) for each, name in CLIENTS]
    tasks += [pki("authority", pki_authority="mqtt"), pki("home_assistant")]
    for each in SERVERS:
        # As a client's, but for the server: its own tasks install it in /etc.
        own = "client" if each == "grpc" else f"{each}-client"
        tasks.append(pki("client", pki_client_authority=each, pki_client="server"))
        tasks.append(pki("sign", pki_purpose=each, pki_file=f"{folder}/{own}/server"))
    play(folder, tasks, server={"controller_settings": ELSEWHERE})
    return folder


@pytest.mark.parametrize(("said", "yes"), [("false", False), ("true", True), (None, False)])
def test_no_is_no_also_in_an_inventory_of_plain_text(said: str | None, yes: bool) -> None:
    """There, false is a text, which is not empty. The controller would listen on all addresses."""
    told = {} if said is None else {"leadline_remote": said}
    for role in ("pki", "controller"):
        defaults = yaml.safe_load((COLLECTION / f"roles/{role}/defaults/main.yml").read_text())
        argv = [str(PLAYBOOK.with_name("ansible")), "localhost", "-i", "localhost,"]
        argv += ["-c", "local", "-m", "debug", "-a", f"var={role}_remote"]
        variables = {f"{role}_remote": defaults[f"{role}_remote"], **told}
        argv += ["-e", json.dumps(variables)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert f'"{role}_remote": {str(yes).lower()}' in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("settings", "serves"),
    [((*HERE, ELSEWHERE), {"metrics", "web"}), (HERE, set())],
)
def test_certificates_are_made_for_what_the_controllers_answer_to_other_machines(
    settings: tuple[dict[str, Any], ...], serves: set[str], tmp_path: Path
) -> None:
    """Both roles ask that of `controller_settings`; the settings file is the controller's."""
    tasks = yaml.safe_load((CONTROLLER / "tasks/main.yml").read_text())
    whole = next(task["vars"] for task in tasks if "controller_all" in task.get("vars", {}))
    write = {"copy": {"dest": f"{tmp_path}/pki.json", "content": "{{ pki_serves | to_json }}"}}
    toml = {"src": f"{CONTROLLER}/templates/controller.toml.j2"}
    toml["dest"] = f"{tmp_path}/{{{{ inventory_hostname }}}}.toml"
    play(
        tmp_path,
        [
            pki("preflight"),
            write | {"run_once": True},
            {"include_vars": f"{CONTROLLER}/vars/main.yml"},
            {"template": toml, "vars": whole},
        ],
        **{f"c{i}": {"controller_settings": each} | defaults() for i, each in enumerate(settings)},
    )
    assert set(json.loads((tmp_path / "pki.json").read_text())) == serves
    for i, each in enumerate(settings):
        written = tomllib.loads((tmp_path / f"c{i}.toml").read_text())
        for name in ("metrics", "web"):
            if each is ELSEWHERE:
                assert f"/{name}_cert.pem" in written[name]["tls"]["cert_file"]
                assert written[name]["address"] == each[name]["address"]
            else:
                assert written.get(name) == each.get(name)


def defaults() -> dict[str, Any]:
    """The role controller's."""
    found: dict[str, Any] = yaml.safe_load((CONTROLLER / "defaults/main.yml").read_text())
    del found["controller_settings"]
    return found


def pair(folder: Path, authority: str, name: str) -> tuple[Path, Path]:
    """Certificate and key."""
    stem = folder / ("client" if authority == "grpc" else f"{authority}-client") / name
    return stem.with_suffix(".pem"), stem.with_suffix(".key")


def test_home_assistants_certificate_opens_the_broker_under_its_name_in_the_acl(
    made: Path,
) -> None:
    client = made / "client/home-assistant@mqtt"
    assert client.with_suffix(".key").stat().st_mode & 0o777 == 0o600
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-subject", "-ext", "extendedKeyUsage"],
        input=client.with_suffix(".pem").read_bytes(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert "CN = home-assistant:leadline\n" in shown or "CN=home-assistant:leadline\n" in shown
    assert "TLS Web Client Authentication" in shown
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", str(made / "mqtt-ca.pem"), f"{client}.pem"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr
    defaults = yaml.safe_load((COLLECTION / "roles/broker/defaults/main.yml").read_text())
    from jinja2 import Template

    readers = Template(defaults["broker_home_assistants"])
    for value in (True, False):  # also to hear that its devices are removed
        assert readers.render(leadline_home_assistant=value) == "['home-assistant:leadline']"
    assert readers.render() == "[]"


async def test_with_a_persons_certificate_the_command_is_answered(made: Path) -> None:
    cert, key = pair(made, "grpc", "alice")
    assert key.stat().st_mode & 0o777 == 0o600
    ca = made / "grpc-ca.pem"
    files = TlsFiles(ca, *pair(made, "grpc", "server"))
    async with answering(example_controller(), ServeSettings("127.0.0.1:0", files)) as address:
        environ = {
            **os.environ,
            "LEADLINE_ADDRESS": address,
            "LEADLINE_CA": str(ca),
            "LEADLINE_CERT": str(cert),
            "LEADLINE_KEY": str(key),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadline_controller.cli", "nodes"),
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, errors) == (0, b"")
    assert b"n1" in out


@asynccontextmanager
async def map_and_metrics(made: Path) -> AsyncIterator[dict[str, str]]:
    """Both servers with their certificates; yields what to ask of each."""
    harness = example_controller()
    own = TlsFiles(made / "metrics-ca.pem", *pair(made, "metrics", "server"))
    settings = MetricsSettings("127.0.0.1:0", own)
    source = MetricsSource(harness.source, Instruments(), settings)
    server = MetricsServer(settings, MetricsReader(source))
    web = WebSettings("127.0.0.1:0", WebTls(*pair(made, "web", "server"), made / "web-ca.pem"))
    async with web_harness.answering(harness, web) as address:
        try:
            at = await server.start()
            yield {"web": f"{address}/api/overview", "metrics": f"https://{at}/metrics"}
        finally:
            await server.stop()


async def test_each_authority_admits_its_own_clients_only(made: Path) -> None:
    """Who reads the metrics must not see the map."""
    async with map_and_metrics(made) as urls:
        for server, url in urls.items():
            for authority, name in CLIENTS:
                shown = ssl.create_default_context(cafile=made / f"{server}-ca.pem")
                shown.load_cert_chain(*pair(made, authority, name))
                answer = aiohttp.request("GET", url, ssl=shown)
                if authority == server:
                    async with answer as got:
                        assert got.status == 200
                else:
                    with pytest.raises((aiohttp.ClientError, OSError)):
                        async with answer:
                            pass

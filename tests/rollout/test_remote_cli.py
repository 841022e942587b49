"""The certificates that the role pki makes for people are those that the command needs."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from leadline_controller.api.settings import ServeSettings, TlsFiles

from tests.controller.api.api_harness import answering, example_controller

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
COLLECTION = Path(__file__).parents[2] / "ansible"
PLAY = [
    {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"include_role": {"name": str(COLLECTION / "roles/pki"), "tasks_from": part}}
            | {"vars": {"pki_authority": "grpc", "pki_purpose": "grpc"} | variables}
            for part, variables in (
                ("preflight", {}),
                ("authority", {}),
                ("client", {"pki_client": "alice"}),
                # As a person's, but for the server: its own tasks install it in /etc.
                ("client", {"pki_client": "server"}),
                ("sign", {"pki_file": "{{ pki_dir }}/client/server"}),
            )
        ],
    }
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the certificates."""
    folder = tmp_path_factory.mktemp("pki")
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    variables = {
        "leadline_pki_dir": str(folder),
        "leadline_broker_address": "127.0.0.1",
        "leadline_remote": True,
        "pki_clients": ["alice"],
        "ansible_python_interpreter": sys.executable,
    }
    (folder / "vars.yml").write_text(yaml.safe_dump(variables))
    argv = [str(PLAYBOOK), str(folder / "play.yml"), "-i", "server,", "-e", f"@{folder}/vars.yml"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
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


async def test_with_a_persons_certificate_the_command_is_answered(made: Path) -> None:
    assert (made / "client/alice.key").stat().st_mode & 0o777 == 0o600
    ca, own, alice = made / "grpc-ca.pem", made / "client/server", made / "client/alice"
    files = TlsFiles(ca, own.with_suffix(".pem"), own.with_suffix(".key"))
    async with answering(example_controller(), ServeSettings("127.0.0.1:0", files)) as address:
        environ = {
            **os.environ,
            "LEADLINE_ADDRESS": address,
            "LEADLINE_CA": str(ca),
            "LEADLINE_CERT": f"{alice}.pem",
            "LEADLINE_KEY": f"{alice}.key",
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

"""The role `grafana` with a folder of this machine in place of Grafana's."""

import grp
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.dashboards import FOLDER

BIN = Path(sys.executable).parent
COLLECTIONS = Path(__file__).parents[2] / ".venv" / "collections"
GROUP = grp.getgrgid(os.getgid()).gr_name
URL = "http://localhost:9090"
Played = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def provisioning(tmp_path: Path) -> Path:
    folder = tmp_path / "provisioning"
    folder.mkdir()
    return folder


@pytest.fixture
def play(tmp_path: Path, provisioning: Path) -> Played:
    """Run an entry point of the role."""

    def played(entry: str, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "grafana_provisioning_dir": str(provisioning),
            "grafana_group": GROUP,
            "grafana_unit": "",
            **more,
        }
        role = {"name": "leadline.edge.grafana", "tasks_from": entry}
        task = {"name": entry, "ansible.builtin.include_role": role}
        book = [{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [task]}]
        (tmp_path / "play.yml").write_text(yaml.safe_dump(book))
        return subprocess.run(
            [str(BIN / "ansible-playbook"), "-c", "local", *args, str(tmp_path / "play.yml")],
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
                "ANSIBLE_NOCOLOR": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return played


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that knows no unit, as in place of the machine's own, and what it is asked."""
    asked, folder = tmp_path / "asked", tmp_path / "bin"
    folder.mkdir()
    asked.touch()
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexit 5\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return asked


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.usefixtures("systemctl")
def test_it_puts_dashboards_and_source_where_grafana_reads_them_and_takes_them_away_again(
    play: Played, provisioning: Path
) -> None:
    (provisioning / "datasources").mkdir()
    (provisioning / "datasources" / "mine.yaml").write_text("apiVersion: 1\n")
    before = files(provisioning)
    assert play("preflight", grafana_prometheus_url=URL).returncode == 0
    for args in (["--check", "--diff"], []):
        done = play("main", *args, grafana_prometheus_url=URL)
        assert done.returncode == 0, done.stdout + done.stderr
    added = {name: text for name, text in files(provisioning).items() if name not in before}
    for path in FOLDER.iterdir():
        assert json.loads(added.pop(f"dashboards/leadline/{path.name}")) == json.loads(
            path.read_text()
        )
    (provider,) = yaml.safe_load(added.pop("dashboards/leadline.yaml"))["providers"]
    assert provider["options"] == {"path": str(provisioning / "dashboards" / "leadline")}
    (source,) = yaml.safe_load(added.pop("datasources/leadline.yaml"))["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", URL)
    assert added == {}
    assert {path.stat().st_mode & 0o777 for path in (provisioning / "dashboards").rglob("*.*")} == {
        0o640
    }

    again = play("main", grafana_prometheus_url=URL)
    assert "changed=0" in again.stdout, again.stdout
    without = play("main", grafana_unit="grafana-server")
    assert without.returncode == 0, without.stdout
    assert "datasources/leadline.yaml" not in files(provisioning)
    removed = play("remove")
    assert removed.returncode == 0, removed.stdout
    assert files(provisioning) == before
    assert "changed=0" in play("remove").stdout


def test_a_grafana_that_others_restart_is_told_to_delete_the_data_source(
    play: Played, provisioning: Path
) -> None:
    assert play("main", grafana_prometheus_url=URL).returncode == 0
    assert "changed=1 " in play("main").stdout
    left = yaml.safe_load(files(provisioning)["datasources/leadline.yaml"])
    assert left["deleteDatasources"] == [{"name": "Leadline", "orgId": 1}]
    assert "changed=0" in play("main").stdout


def test_a_grafana_that_was_removed_before_keeps_nothing_from_being_removed(
    play: Played, provisioning: Path, systemctl: Path
) -> None:
    """`remove` takes the controller and the broker off the same host after it."""
    assert play("main", grafana_prometheus_url=URL).returncode == 0
    removed = play("remove", grafana_unit="grafana-server")
    assert removed.returncode == 0, removed.stdout
    assert "try-restart grafana-server" in systemctl.read_text()
    assert files(provisioning) == {}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"grafana_unit": "graphana"}, "there is no unit graphana"),
        ({"grafana_provisioning_dir": "/nowhere/provisioning"}, "Grafana is not installed"),
        ({"grafana_group": "nobody-here"}, "there is no group nobody-here"),
        ({"grafana_prometheus_url": "localhost:9090"}, "expected an address such as"),
        ({"grafana_scrape_interval": "15"}, "expected seconds or minutes"),
    ],
)
@pytest.mark.usefixtures("systemctl")
def test_what_is_not_fit_is_named_before_anything_changes(
    play: Played, provisioning: Path, variables: dict[str, Any], said: str
) -> None:
    done = play("preflight", **variables)
    assert done.returncode != 0
    assert said in " ".join(done.stdout.split())
    assert files(provisioning) == {}

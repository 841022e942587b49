"""docs/install.md says what the roles do: its names, addresses, commands, files and numbers are
theirs. The chapters of tests/rollout show that what the roles do works."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_agent import config as agent
from leadline_bundle.targets import TARGETS
from leadline_controller import settings as controller
from leadline_controller.cli.__main__ import OPTIONAL, built_in
from leadline_controller.history.store import HistorySettings
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.probing.budgets import BandwidthBudget
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.serve.settings import (
    DEFAULT_ADDRESS,
    DEFAULT_REMOTE_ADDRESS,
    ExtenderSettings,
)

from tests.kube.sources import kubernetes_version

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGE = DOCS / "install.md"
ANSIBLE = REPOSITORY / "ansible"
TEXT = PAGE.read_text()
README = (REPOSITORY / "README.md").read_text()
PLAYBOOKS = {file.stem for file in (ANSIBLE / "playbooks").glob("*.yml")}


def blocks(text: str = TEXT) -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def block(holding: str) -> str:
    (found,) = (each for each in blocks() if holding in each)
    return found


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def rollout() -> str:
    """All that the roles, their modules and the units say."""
    files = [*ANSIBLE.rglob("*.yml"), *ANSIBLE.rglob("*.j2"), *ANSIBLE.glob("plugins/**/*.py")]
    return "\n".join(file.read_text() for file in (*files, *(REPOSITORY / "systemd").iterdir()))


def defaults(role: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (ANSIBLE / f"roles/{role}/defaults/main.yml").read_text()
    )
    return found


def hosts(group: dict[str, Any]) -> dict[str, str]:
    """Host -> address, of a group of the inventory and all below it."""
    found = {
        name: own["ansible_host"]
        for name, own in group.get("hosts", {}).items()
        if own and "ansible_host" in own
    }
    for child in group.get("children", {}).values():
        found |= hosts(child)
    return found


@pytest.fixture(scope="module")
def inventory() -> dict[str, Any]:
    (copied,) = re.findall(r"^cp (\S+) inventory\.yml$", TEXT, re.MULTILINE)
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / copied).read_text())["all"]
    return found


def test_the_example_has_the_pages_machines(inventory: dict[str, Any]) -> None:
    loop = re.search(r"^for address in (.*); do$", TEXT, re.MULTILINE)
    assert loop
    assert sorted(hosts(inventory).values()) == sorted(loop[1].split())
    assert hosts(inventory)["server"] == inventory["vars"]["leadline_broker_address"]
    for name in hosts(inventory):
        assert f"`{name}`" in TEXT or name in {"pi-2", "pi-3"}  # between `pi-1` to `pi-4`


def test_the_control_machine_may_be_the_server(inventory: dict[str, Any]) -> None:
    (snippet,) = re.findall(
        r"```yaml\n(.*?)```", section("A server that is the control machine"), re.S
    )
    (server,) = yaml.safe_load(snippet).values()
    assert server["ansible_connection"] == "local"
    assert server["ansible_host"] == hosts(inventory)["server"]


def test_the_example_has_all_groups_and_no_other(inventory: dict[str, Any]) -> None:
    groups = set(inventory["children"])
    assert groups == {"leadline_broker", "leadline_controllers", "leadline_agents"}
    for playbook in (ANSIBLE / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(playbook.read_text()):
            known = groups | {"all", "leadline_grafana"}
            assert set(re.findall(r"\ball$|leadline_\w+", play.get("hosts", ""))) <= known, playbook


def test_the_example_leads_to_the_bundle_and_to_a_folder_that_git_ignores(
    inventory: dict[str, Any],
) -> None:
    names = ("leadline_bundle_dir", "leadline_pki_dir")
    folders = [inventory["vars"][name].removeprefix("{{ inventory_dir }}/") for name in names]
    assert folders == ["dist/bundle", "pki"]
    ignored = (REPOSITORY / ".gitignore").read_text().split()
    assert {"/inventory.yml", "/pki/", "/debs/", "dist/"} <= set(ignored)


@pytest.mark.parametrize("text", [TEXT, README], ids=["install.md", "README.md"])
def test_each_target_of_make_is_one(text: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    commands = re.findall(r"(?:^|`|&& )make ((?:[a-z-]+ ?)+)", text, re.MULTILINE)
    assert {"rollout-env", "bundle"} <= set(" ".join(commands).split()) <= targets


def test_each_playbook_is_one() -> None:
    plays = set(re.findall(r"\bplay ([a-z]+)", TEXT))
    assert {"preflight", "site", "upgrade", "rollback", "remove"} == plays
    assert plays | set(re.findall(r"leadline\.edge\.([a-z]+)", README)) <= PLAYBOOKS


def test_play_runs_a_playbook_of_the_collection(tmp_path: Path) -> None:
    program = tmp_path / ".venv/bin/ansible-playbook"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$ANSIBLE_COLLECTIONS_PATH $ANSIBLE_PIPELINING $@"\n')
    program.chmod(0o755)
    script = f"{block('play()')}play site --check --diff"
    done = subprocess.run(["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [
        *(f"{tmp_path}/.venv/collections", "1"),
        *("-i", "inventory.yml", "leadline.edge.site", "--check", "--diff"),
    ]


@pytest.mark.parametrize("text", [TEXT, README], ids=["install.md", "README.md"])
def test_each_command_of_leadline_is_one(text: str) -> None:
    commands = set(re.findall(r"^leadline ([a-z]+)", "\n".join(blocks(text)), re.MULTILINE))
    assert {"nodes", "explain"} <= commands <= {*built_in(), *OPTIONAL}


def test_each_variable_is_one_of_the_roles() -> None:
    variables = set(re.findall(r"`((?:agent|broker|controller|pki|leadline)_\w+)", TEXT))
    known = {name for role in (ANSIBLE / "roles").iterdir() for name in defaults(role.name)}
    assert "controller_mode" in variables
    assert {name for name in variables if not name.startswith("leadline_")} <= known
    used = rollout()
    assert all(re.search(rf"\b{name}\b", used) for name in variables)


def test_each_file_that_is_stored_is_one_of_the_rollouts() -> None:
    paths = re.findall(r"`(/[^`]+)`", section("What is stored"))
    used = rollout()
    assert len(paths) > 12
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder == "/var/lib/private":
            assert f"StateDirectory={name}\n" in used
        else:
            assert path.partition("*")[0] in used, path


def test_nothing_is_stored_that_it_does_not_say() -> None:
    paths = [*re.findall(r"`(/[^`]+)`", section("What is stored")), "/var/tmp"]
    found = set(re.findall(r"(?<![\w.])/(?:etc|opt|usr|var)/[\w./-]*leadline[\w./-]*\w", rollout()))
    assert len(found) > 12
    for path in found - {"/opt/leadline", "/etc/leadline"}:
        private = path.replace("/var/lib/leadline-", "/var/lib/private/leadline-")
        assert any(fnmatch(private, f"{each}*") for each in paths), path


def test_the_ports_are_the_roles_own() -> None:
    opened = section("What is opened")
    extender = ExtenderSettings().address
    assert defaults("controller")["controller_extender_address"] == extender
    assert (DEFAULT_REMOTE_ADDRESS, extender) == ("127.0.0.1:25505", "127.0.0.1:25506")
    assert f"`{DEFAULT_ADDRESS.removeprefix('unix:')}`" in opened
    for port, where in (
        (defaults("broker")["broker_port"], "broker |"),
        (ProbeLimits().port, "a board, while a lease"),
        (25505, "controller, all addresses, with `leadline_remote` only |"),
        (25506, "controller, 127.0.0.1, in extender mode only |"),
    ):
        assert f"| {port}/tcp | {where}" in opened


def test_its_numbers_are_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('node = "pi-1"\n')
    board = agent.load(tmp_path / "agent.toml", {})
    pki, budget, kept = defaults("pki"), BandwidthBudget(), HistorySettings()
    said = " ".join(TEXT.split())
    # The page's words for them.
    assert (pki["pki_certificate_days"], pki["pki_renew_before_days"]) == (730, 180)
    assert board.buffer_max_bytes == 1 << 20
    for words in (
        "**Certificates** last two years",
        "less than half a year left",
        "up to 1 MiB of reports",
        f"decisions: {kept.max_mb} MB, {kept.max_age_days:.0f} days at most",
        f"of which {board.probe.max_bandwidth_duration_ms // 1000} s of test at most",
        f"every {board.interval_s} s: {400 * 86400 / board.interval_s / 1e6:.1f} MB a day",
        f"at most {100 * budget.link_time_share:g} % of the time of each board's link",
        f"and {budget.bytes_per_day // 10**9} GB a day",
        f"for Python {TARGETS[0].python} to {TARGETS[-1].python}",
    ):
        assert words in said, words


def test_the_first_pod_is_one_that_leadline_places() -> None:
    text = block("kind: Pod").split("END'\n")[1].split("END\n")[0]
    manifest, service = yaml.safe_load_all(text)
    pod = read_pod(manifest)
    assert service["spec"]["selector"].items() <= pod.labels.items()
    assert f":{service['spec']['ports'][0]['nodePort']}` in a browser" in TEXT
    assert pod.scheduler_name == controller.Settings().scheduler_name
    assert f"leadline explain {pod.key}" in block("kind: Pod")
    assert f"delete pod,service {pod.name}`" in " ".join(TEXT.split())
    assert defaults("controller")["controller_mode"] == "standalone"


def test_k3s_has_the_kubernetes_of_the_tests() -> None:
    named = re.findall(r"get\.k3s\.io \| (?:INSTALL_K3S_VERSION=(\S+))?", TEXT)
    assert named == [f"{kubernetes_version({})}+k3s1"] * 2


def test_what_a_pi_needs_is_what_preflight_asks_for() -> None:
    asked = block("cgroup_enable").strip()
    assert asked in rollout()

"""Groups of the inventory that no playbook knows are refused before any host is asked."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

GROUPS = ("leadline_broker", "leadline_controllers", "leadline_agents")
KNOWN = (*GROUPS, "leadline_grafana")
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
COLLECTION = Path(__file__).parents[2] / "ansible"


def played(folder: Path, groups: dict[str, list[str]], *args: str) -> tuple[int, str]:
    """Exit code and output of the first part of preflight, with these groups of hosts."""
    children = {name: {"hosts": dict.fromkeys(hosts)} for name, hosts in groups.items()}
    inventory = folder / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": children}}))
    argv = [str(PLAYBOOK), str(COLLECTION / "playbooks/inventory.yml"), "-i", str(inventory), *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("more", ["kitchen", "my_leadline", "leadline_grafana"])
def test_the_groups_of_the_readme_are_fine_and_others_are_the_users(
    tmp_path: Path, more: str
) -> None:
    code, out = played(tmp_path, {key: ["pi-1"] for key in (*GROUPS, more)})
    assert code == 0, out


@pytest.mark.parametrize("wrong", ["leadline_agent", "leadline-agents", "leadline_controller"])
@pytest.mark.parametrize("args", [(), ("--limit", "pi-2")])
def test_a_misspelt_group_is_named(tmp_path: Path, wrong: str, args: tuple[str, ...]) -> None:
    groups = {**{key: ["pi-1"] for key in GROUPS}, wrong: ["pi-2"]}
    code, out = played(tmp_path, groups, *args)
    assert code != 0
    assert f"groups that Leadline does not know. Its groups are {', '.join(KNOWN)}" in out
    assert wrong in out


@pytest.mark.parametrize("missing", GROUPS)
def test_a_group_without_hosts_is_named(tmp_path: Path, missing: str) -> None:
    groups = {name: ["pi-1"] for name in GROUPS if name != missing}
    code, out = played(tmp_path, groups)
    assert code != 0
    assert f"The inventory has no hosts in groups that Leadline needs: {missing}." in out

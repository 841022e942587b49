"""The role `controller` has the rights, the strategies and the settings of the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_controller.serve.settings import DEFAULT_EXTENDER_ADDRESS
from leadline_controller.settings import Settings

from tests.kube.account import manifests

ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "controller"


def read(part: str) -> Any:
    return yaml.safe_load((ROLE / part / "main.yml").read_text())


@pytest.fixture(scope="module")
def specs() -> dict[str, Any]:
    parsed = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    return dict(parsed["argument_specs"])


def named(manifest: dict[str, Any]) -> tuple[str, str, str, str | None]:
    metadata = manifest["metadata"]
    return manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace")


def test_remove_deletes_all_that_is_made_in_kubernetes() -> None:
    variables = read("vars")
    own = {("coordination.k8s.io/v1", "Lease", "leadline-controller", "kube-system")}
    of_older_releases = {
        ("admissionregistration.k8s.io/v1", kind, "leadline-controller-deletion-cost", None)
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    }
    made = {named(each) for each in [*manifests(), variables["controller_token"]]}
    assert {
        named(each) for each in variables["controller_objects"]
    } == made | own | of_older_releases


def test_every_entry_point_names_every_variable(specs: dict[str, Any]) -> None:
    assert specs.keys() == {"main", "preflight", "rollback", "remove"}
    for entry in specs.values():
        assert entry["options"].keys() == read("defaults").keys()


def test_every_strategy_may_be_named_also_one_of_a_plugin(specs: dict[str, Any]) -> None:
    spec = specs["main"]["options"]["controller_strategy"]
    assert (spec["type"], spec.get("choices")) == ("str", None), "the controller checks the name"


def test_its_defaults_are_the_controllers() -> None:
    defaults, own = read("defaults"), Settings()
    assert defaults["controller_strategy"] == own.strategy
    assert defaults["controller_scheduler_name"] == own.scheduler_name
    assert defaults["controller_extender_address"] == DEFAULT_EXTENDER_ADDRESS
    assert (defaults["controller_mode"] == "standalone") == own.standalone
    assert defaults["controller_link_time_share"] == own.budget.link_time_share
    assert defaults["controller_bytes_per_day"] == own.budget.bytes_per_day
    assert tuple(defaults["controller_uplinks"]) == own.uplinks


@pytest.mark.parametrize("server", ["metrics", "web"])
def test_certificates_for_other_machines_are_those_of_the_role_pki(server: str) -> None:
    """The role pki puts them into a folder, which the unit hands over under the server's name."""
    purposes = yaml.safe_load((ROLE.parent / "pki" / "vars" / "main.yml").read_text())
    made = purposes["pki_purposes"][server]
    assert (made["usage"], made["authority"]) == ("serverAuth", server)
    unit = (ROLE.parents[2] / "systemd" / "leadline-controller.service").read_text()
    assert f"LoadCredential={server}:{made['folder']}\n" in unit
    folder = "/run/credentials/leadline-controller.service"
    named_files = read("vars")["controller_told_served"][server]["tls"].values()
    assert set(named_files) == {f"{folder}/{server}_{part}.pem" for part in ("ca", "cert", "key")}

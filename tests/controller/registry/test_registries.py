"""registries.yaml as k3s reads it, and pull secrets."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from leadline_controller.framework.images import full_name
from leadline_controller.parsing.fields import FieldError
from leadline_controller.registry.registries import (
    Credentials,
    Reference,
    Registries,
    load_registries,
    read_pull_secret,
    reference_of,
)

SECRET = "hunter2"  # of a test


def rules(tmp_path: Path, text: str) -> Registries:
    file = tmp_path / "registries.yaml"
    file.write_text(text)
    return load_registries(file)


def image(name: str) -> Reference:
    found = reference_of(full_name(name))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("web", ("docker.io", "library/web", "latest")),
        ("me/web:1", ("docker.io", "me/web", "1")),
        ("reg:5000/a/b/c:v1.2", ("reg:5000", "a/b/c", "v1.2")),
        ("reg/web:1@sha256:" + "0" * 64, ("docker.io", "reg/web", "sha256:" + "0" * 64)),
        ("[fd00::1]:5000/web:1", ("[fd00::1]:5000", "web", "1")),
    ],
)
def test_images_have_a_registry_a_repository_and_a_reference(
    name: str, reference: tuple[str, str, str]
) -> None:
    assert image(name) == reference


@pytest.mark.parametrize(
    "name",
    [
        "reg.example/../../etc:1",
        "reg.example/web:1?x=1",
        "user:word@reg.example/web:1",
        "reg.example:99999999/web:1",
        "reg.example/WEB:1",
        "reg.example/web@sha512:00",
        "reg.example/web: 1",
        "reg.example/" + "a" * 256 + ":1",
        "http://reg.example/web:1",
        "reg.exa\u0000mple/web:1",
    ],
)
def test_what_is_no_reference_is_asked_of_nobody(name: str) -> None:
    assert reference_of(full_name(name)) is None


def test_without_rules_the_registry_itself_is_asked_by_https() -> None:
    (endpoint,) = Registries().endpoints(image("web:1"))
    assert (endpoint.url, endpoint.repository) == ("https://registry-1.docker.io", "library/web")
    assert not endpoint.is_named
    (endpoint,) = Registries().endpoints(image("reg:5000/web:1"))
    assert endpoint.url == "https://reg:5000"


def test_mirrors_come_first_with_their_rewrites_and_logins(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        f"""
mirrors:
  docker.io:
    endpoint: ["https://mirror.example", "http://10.0.0.5:5000"]
    rewrite: {{"^library/(.*)": "copies/$1"}}
  embedded.example:
configs:
  mirror.example:
    auth: {{username: boards, password: {SECRET}}}
  "10.0.0.5:5000":
    auth: {{username: boards, password: {SECRET}}}
""",
    )
    first, second, last = found.endpoints(image("web:1"))
    assert (first.url, first.repository) == ("https://mirror.example", "copies/web")
    assert first.credentials == Credentials("boards", SECRET)
    assert first.may_login
    assert (second.url, second.may_login) == ("http://10.0.0.5:5000", False), "not in plain text"
    assert (last.url, last.repository) == ("https://registry-1.docker.io", "library/web")
    assert last.credentials is None
    (only,) = found.endpoints(image("embedded.example/web:1"))
    assert only.url == "https://embedded.example"


def test_a_registry_by_http_is_not_asked_by_https_as_well(tmp_path: Path) -> None:
    found = rules(tmp_path, 'mirrors: {"reg:5000": {endpoint: ["http://reg:5000"]}}')
    (endpoint,) = found.endpoints(image("reg:5000/web:1"))
    assert (endpoint.url, endpoint.is_named) == ("http://reg:5000", True)


def test_a_mirror_may_have_a_path(tmp_path: Path) -> None:
    found = rules(tmp_path, 'mirrors: {quay.io: {endpoint: ["https://mirror.example/v2/quay/"]}}')
    first, _ = found.endpoints(image("quay.io/a:1"))
    assert first.url == "https://mirror.example/v2/quay"
    assert first.host == "mirror.example"


def test_every_registry_may_have_the_same_mirror(tmp_path: Path) -> None:
    found = rules(tmp_path, 'mirrors: {"*": {endpoint: ["https://mirror.example"]}}')
    urls = [each.url for each in found.endpoints(image("quay.io/a/b:1"))]
    assert urls == ["https://mirror.example", "https://quay.io"]


def test_unverified_tls_sees_no_credentials(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        f"""
configs:
  reg.example:
    auth: {{username: boards, password: {SECRET}}}
    tls: {{insecure_skip_verify: true}}
""",
    )
    (endpoint,) = found.endpoints(image("reg.example/web:1"))
    assert endpoint.tls is not None
    assert not endpoint.may_login


def test_a_file_that_cannot_be_read_is_the_problem_of_its_registry_only(tmp_path: Path) -> None:
    found = rules(tmp_path, "configs: {reg.example: {tls: {ca_file: /nowhere/ca.pem}}}")
    (endpoint,) = found.endpoints(image("reg.example/web:1"))
    assert "ca_file" in endpoint.problem
    (endpoint,) = found.endpoints(image("other.example/web:1"))
    assert not endpoint.problem


def test_a_pods_secret_goes_to_its_registry_and_to_no_mirror(tmp_path: Path) -> None:
    found = rules(tmp_path, 'mirrors: {reg.example: {endpoint: ["https://mirror.example"]}}')
    logins = {"reg.example": Credentials("pod", SECRET)}
    mirror, itself = found.endpoints(image("reg.example/web:1"), logins)
    assert mirror.credentials is None
    assert itself.credentials == Credentials("pod", SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "mirrors: 5",
        "mirrors: {a: {endpoint: [ftp://a]}}",
        "mirrors: {a: {endpoint: ['https://user:hunter2@a']}}",
        "mirrors: {a: {endpoint: ['https://a/x?y=z']}}",
        "mirrors: {a: {rewrite: {'(': x}}}",
        "configs: {a: {auth: {username: [hunter2]}}}",
        "a: [",
    ],
)
def test_a_bad_file_is_refused_without_its_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(FieldError) as error:
        rules(tmp_path, text)
    assert SECRET not in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="No such file"):
        load_registries(tmp_path / "none")


def secret(auths: object) -> dict[str, object]:
    config = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return {"data": {".dockerconfigjson": config}}


def test_a_pull_secret_has_logins_by_registry() -> None:
    pair = base64.b64encode(f"b:{SECRET}".encode()).decode()
    auths = {
        "https://index.docker.io/v1/": {"username": "a", "password": SECRET},
        "reg:5000": {"auth": pair},
        "broken": 5,
    }
    found = read_pull_secret(secret(auths))
    assert found == {
        "docker.io": Credentials("a", SECRET),
        "reg:5000": Credentials("b", SECRET),
    }
    assert SECRET not in repr(found)
    assert SECRET not in f"{found['docker.io']}"


@pytest.mark.parametrize("strange", [{}, {"data": 5}, {"data": {".dockerconfigjson": "!"}}])
def test_a_secret_that_cannot_be_read_has_none(strange: dict[str, object]) -> None:
    assert read_pull_secret(strange) == {}
    assert read_pull_secret(secret(["x"])) == {}

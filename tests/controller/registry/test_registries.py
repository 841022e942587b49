"""registries.yaml as k3s reads it, and pull secrets."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path

import pytest
from leadline_controller.framework.image_layers import full_name
from leadline_controller.parsing.fields import FieldError
from leadline_controller.registry.registries import (
    Credentials,
    Reference,
    Registries,
    load_registries,
    read_pull_secret,
    reference_of,
)

from tests.support.certificates import Authority
from tests.support.go_answers import LOGINS

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


@pytest.mark.parametrize(
    ("more", "mirrored"),
    [
        ("", True),
        ("  quay.io:\n", True),
        ("  quay.io: {rewrite: {a: b}}\n", True),
        ("  quay.io: {endpoint: ['https://own.example']}\n", False),
        ("configs: {quay.io: }\n", True),
        ("configs: {quay.io: {auth: {username: a, password: b}}}\n", False),
        ("configs: {quay.io: {tls: {insecure_skip_verify: true}}}\n", False),
        ("configs: {other.example: {auth: {username: a, password: b}}}\n", True),
    ],
)
def test_the_mirrors_of_all_are_for_whom_k3s_makes_no_file_of_its_own(
    tmp_path: Path, more: str, *, mirrored: bool
) -> None:
    found = rules(tmp_path, f'mirrors:\n  "*": {{endpoint: ["https://all.example"]}}\n{more}')
    urls = [each.url for each in found.endpoints(image("quay.io/a/b:1"))]
    assert ("https://all.example" in urls) is mirrored
    assert urls[-1] == "https://quay.io"


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
    logins = {"reg.example": (Credentials("pod", SECRET),)}
    mirror, itself = found.endpoints(image("reg.example/web:1"), logins)
    assert mirror.credentials is None
    assert itself.credentials == Credentials("pod", SECRET)
    assert (mirror.mirror_of, itself.mirror_of) == ("reg.example", "")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "mirrors: 5",
        "mirrors: {a: {endpoint: 'https://user:hunter2@a'}}",
        "configs: {a: {auth: {username: [hunter2]}}}",
        "configs: {a: {auth: hunter2}}",
        "configs: {a: {auth: {password: *hunter2}}}",
        "configs: {a: {auth: {password: !hunter2 x}}}",
        "configs: {a: {tls: {insecure_skip_verify: hunter2}}}",
        "mirrors: {a: {}, a: {}}",
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


def encoded(data: object) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()


def secret(auths: object) -> dict[str, object]:
    return {"data": {".dockerconfigjson": encoded({"auths": auths})}}


def test_a_pull_secret_has_logins_by_registry() -> None:
    pair = base64.b64encode(f"b:{SECRET}".encode()).decode()
    auths = {
        "https://index.docker.io/v1/": {"username": "a", "password": SECRET},
        "reg:5000": {"auth": pair},
        "broken": 5,
    }
    found = read_pull_secret(secret(auths))
    assert found == {
        "index.docker.io": (Credentials("a", SECRET),),
        "reg:5000": (Credentials("b", SECRET),),
    }
    assert SECRET not in repr(found)
    assert read_pull_secret({"data": {".dockercfg": encoded(auths)}}) == found


@pytest.mark.parametrize(
    ("secrets", "name", "users"), json.loads(LOGINS.read_text("utf-8"))["logins"]
)
def test_kubelet_tries_the_same_logins_in_the_same_order(
    secrets: list[dict[str, object]], name: str, users: list[str]
) -> None:
    logins: dict[str, tuple[Credentials, ...]] = {}
    for auths in secrets:
        for key, found in read_pull_secret(secret(auths)).items():
            logins[key] = (*logins.get(key, ()), *found)
    tried = [each.credentials for each in Registries().endpoints(image(f"{name}:1"), logins)]
    assert [f"{each.user}:{each.password}" for each in tried if each] == users
    assert len(tried) == max(len(users), 1), "without a login only if there is none"


@pytest.mark.parametrize("strange", [{}, {"data": 5}, {"data": {".dockerconfigjson": "!"}}])
def test_a_secret_that_cannot_be_read_has_none(strange: dict[str, object]) -> None:
    assert read_pull_secret(strange) == {}
    assert read_pull_secret(secret(["x"])) == {}


def test_only_so_many_logins_are_tried() -> None:
    auths = {f"reg.example/{'a' * i}": {"username": f"u{i:02}"} for i in range(300)}
    found = read_pull_secret(secret(auths))
    assert len(found) == 256
    tried = list(Registries().endpoints(image(f"reg.example/{'a' * 255}:1"), found))
    users = [each.credentials.user for each in tried if each.credentials]
    assert users == [f"u{i}" for i in range(255, 239, -1)], "the most specific first"


@pytest.mark.parametrize("key", ["", "https://", "https://[x/", "/web", "*" * 2000, "[", "a b"])
def test_odd_keys_of_pull_secrets_match_nothing(key: str) -> None:
    logins = read_pull_secret(secret({key: {"username": "a", "password": SECRET}}))
    (endpoint,) = Registries().endpoints(image("reg.example/web:1"), logins)
    assert endpoint.credentials is None


def test_a_registry_that_is_its_own_mirror_gets_the_pods_login(tmp_path: Path) -> None:
    text = "mirrors: {docker.io: {endpoint: [docker.io/v2], rewrite: {'(.*)': copies/$1}}}"
    logins = {"index.docker.io": (Credentials("pod", SECRET),)}
    (itself,) = rules(tmp_path, text).endpoints(image("web:1"), logins)
    assert (itself.url, itself.repository) == (
        "https://registry-1.docker.io",
        "copies/library/web",
    )
    assert itself.credentials == Credentials("pod", SECRET)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("mirror.example", "https://mirror.example"),
        ("HTTP://mirror.example/", "http://mirror.example"),
        ("mirror.example:5000/v2", "https://mirror.example:5000"),
        ("https://mirror.example/v2/", "https://mirror.example"),
        ("https://mirror.example//a/v2", "https://mirror.example/a/v2"),
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000/v2", "http://127.0.0.1:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("localhost:443", "https://localhost:443"),
        ("localhost", "https://localhost"),
        ("https://localhost:5000", "https://localhost:5000"),
        ("10.0.0.5:5000", "https://10.0.0.5:5000"),
        ("docker.io", "https://registry-1.docker.io"),
        ("http://my_registry:5000", "http://my_registry:5000"),
    ],
)
def test_an_endpoint_is_read_as_k3s_reads_it(tmp_path: Path, endpoint: str, url: str) -> None:
    text = f"mirrors: {{reg.example: {{endpoint: ['{endpoint}', '{endpoint}']}}}}"
    urls = [each.url for each in rules(tmp_path, text).endpoints(image("reg.example/web:1"))]
    assert urls == [url, "https://reg.example"], "the same one once"


def test_a_registry_of_this_machine_that_the_file_names_speaks_http(tmp_path: Path) -> None:
    (endpoint,) = rules(tmp_path, "mirrors: {'localhost:5000': }").endpoints(
        image("localhost:5000/web:1")
    )
    assert (endpoint.url, endpoint.is_named) == ("http://localhost:5000", True)
    for tls in ("insecure_skip_verify: true", "ca_file: /none"):
        of_tls = rules(tmp_path, f"configs: {{'localhost:5000': {{tls: {{{tls}}}}}}}")
        (endpoint,) = of_tls.endpoints(image("localhost:5000/web:1"))
        assert endpoint.url == "https://localhost:5000"


def test_a_mirror_with_a_path_does_not_stand_for_the_registry(tmp_path: Path) -> None:
    found = rules(tmp_path, "mirrors: {reg.example: {endpoint: [reg.example/proxy/v2]}}")
    urls = [each.url for each in found.endpoints(image("reg.example/web:1"))]
    assert urls == ["https://reg.example/proxy/v2", "https://reg.example"]


def test_the_first_rewrite_that_changes_a_repository_counts(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
mirrors:
  "*":
    endpoint: [mirror.example]
    rewrite: {"library/(.*)": "library/$1", "^": "/copies//", "library": never}
""",
    )
    mirror, itself = found.endpoints(image("web:1"))
    assert mirror.repository == "/copies//library/web"
    assert mirror.path == "copies/library/web"
    assert itself.repository == "library/web"
    assert not found.warnings


def test_a_rewrite_that_makes_no_repository_is_asked_of_nobody(tmp_path: Path) -> None:
    text = "mirrors: {reg.example: {endpoint: [mirror.example], rewrite: {web: ../../web}}}"
    mirror, itself = rules(tmp_path, text).endpoints(image("reg.example/web:1"))
    assert mirror.problem == "its rewrite makes '../../web' of web, which is no repository"
    assert not itself.problem


def test_what_is_wrong_costs_itself_alone_and_is_told_in_one_line(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
mirrors:
  reg.example:
    endpoint: ["ftp://a", "https://user:hunter2@b", "https://c/x?y=hunter2", ~, mirror.example]
    rewrite: {"(": x, "^": copies/}
configs:
  c.example: {auth: {auth: hunter2}}
""",
    )
    mirror, _ = found.endpoints(image("reg.example/web:1"))
    assert (mirror.url, mirror.repository) == ("https://mirror.example", "copies/web")
    where = f"{tmp_path / 'registries.yaml'}: "
    expected = "expected https://HOST or http://HOST; it is left out"
    assert found.warnings == (
        *(f"{where}mirrors.reg.example.endpoint[{i}]: {expected}" for i in range(4)),
        f"{where}mirrors.reg.example.rewrite: '(' is no regular expression of Go: "
        "missing ): (; it is left out",
        f"{where}configs.c.example.auth: expected username and password, or auth; it is left out",
    )


def test_what_is_not_supported_is_named_in_one_line(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
mirrors:
  _default: {endpoint: [mirror.example]}
  reg.example: {endpoint: [mirror.example], override_path: true}
configs:
  reg.example:
    auth: {username: a, password: hunter2, identitytoken: hunter2}
    tls: {server_name: x}
    header: {x: hunter2}
auths: {"https://reg.example": {username: a, password: hunter2}}
""",
    )
    (warning,) = found.warnings
    _, _, named = warning.partition(": not supported and left out: ")
    assert named.split(", ") == [
        "auths",
        "mirrors._default",
        "mirrors.reg.example.override_path",
        "configs.reg.example.header",
        "configs.reg.example.auth.identitytoken",
        "configs.reg.example.tls.server_name",
    ]
    assert len(list(found.endpoints(image("reg.example/web:1")))) == 2


def test_a_long_list_of_what_is_not_supported_is_cut(tmp_path: Path) -> None:
    (warning,) = rules(tmp_path, "".join(f"x{i}: 1\n" for i in range(25))).warnings
    assert warning.endswith("x19 and 5 more")


def test_configs_for_all_count_where_there_is_no_own_entry(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        f"""
mirrors:
  "*": {{endpoint: ["https://mirror.example:5000"]}}
configs:
  docker.io:
  "*":
    auth: {{username: all, password: {SECRET}}}
    tls: {{insecure_skip_verify: true}}
""",
    )
    mirror, itself = found.endpoints(image("quay.example/web:1"))
    for endpoint in (mirror, itself):
        assert endpoint.tls is not None
        assert endpoint.tls.verify_mode == ssl.CERT_NONE
        assert not endpoint.may_login
    assert mirror.credentials == Credentials("all", SECRET)
    assert itself.credentials is None, "any pod may name it"
    _, docker = found.endpoints(image("web:1"))
    assert (docker.tls, docker.credentials, docker.may_login) == (None, None, True)
    (warning,) = found.warnings
    assert "configs.*.auth: sent only to mirrors" in warning


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io", "https://registry-1.docker.io"])
def test_docker_hubs_configs_may_name_any_of_its_hosts(tmp_path: Path, name: str) -> None:
    text = f"configs: {{'{name}': {{auth: {{username: a, password: {SECRET}}}}}}}"
    (endpoint,) = rules(tmp_path, text).endpoints(image("web:1"))
    assert endpoint.credentials == Credentials("a", SECRET)


@pytest.mark.parametrize(
    ("auth", "user", "password"),
    [
        ("{username: 007, password: 0123}", "007", "0123"),
        ("{username: yes, password: 1e3}", "yes", "1e3"),
        ("{username: a, password: 2020-01-01}", "a", "2020-01-01"),
        ("{username: a, password: b, auth: Yzpk}", "a", "b"),  # as containerd
        ("{auth: Yzpk}", "c", "d"),
        ("{auth: Yzp4Og}", "c", "x:"),  # without its padding
        ("{identity_token: t, auth: Yzpk}", "", "t"),
        ("{identity_token: t, username: a, password: b}", "a", "b"),
    ],
)
def test_logins_are_texts_as_go_reads_them(
    tmp_path: Path, auth: str, user: str, password: str
) -> None:
    (endpoint,) = rules(tmp_path, f"configs: {{reg.example: {{auth: {auth}}}}}").endpoints(
        image("reg.example/web:1")
    )
    assert endpoint.credentials == Credentials(user, password)


def test_the_file_may_have_a_byte_order_mark_aliases_and_merges(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """\ufeff
mirrors:
  docker.io: &all
    endpoint: [mirror.example]
  quay.io: *all
  ghcr.io: {<<: *all, rewrite: {"^": ghcr/}}
""",
    )
    for name, repository in (("web", "library/web"), ("quay.io/a", "a"), ("ghcr.io/a", "ghcr/a")):
        mirror = next(found.endpoints(image(name)))
        assert (mirror.url, mirror.repository) == ("https://mirror.example", repository)


def test_an_authority_of_the_file_is_one_more(tmp_path: Path) -> None:
    certificate = Authority(tmp_path / "pki").server("reg.example")
    tls = f"ca_file: {certificate.ca_file}"
    pair = f"cert_file: {certificate.cert_file}, key_file: {certificate.key_file}"
    system = len(ssl.create_default_context().get_ca_certs())
    for text in (tls, f"{tls}, {pair}", f"{tls}, {pair}, insecure_skip_verify: true"):
        (endpoint,) = rules(tmp_path, f"configs: {{reg.example: {{tls: {{{text}}}}}}}").endpoints(
            image("reg.example/web:1")
        )
        assert endpoint.tls is not None
        assert not endpoint.problem
        assert len(endpoint.tls.get_ca_certs()) == system + 1
        assert not endpoint.tls.verify_flags & ssl.VERIFY_X509_STRICT


@pytest.mark.parametrize("name", ["cert_file", "key_file"])
def test_a_certificate_without_its_key_is_told(tmp_path: Path, name: str) -> None:
    text = f"configs: {{reg.example: {{tls: {{{name}: /x.pem}}}}}}"
    (endpoint,) = rules(tmp_path, text).endpoints(image("reg.example/web:1"))
    assert endpoint.problem.endswith("expected both or none")


def test_a_host_that_an_endpoint_names_is_asked_with_its_tls(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
configs:
  unverified.example: {tls: {insecure_skip_verify: true}}
  named.example: {auth: {username: a, password: b}}
""",
    )
    (unverified,) = found.endpoints(image("unverified.example/web:1"))
    (verified,) = found.endpoints(image("other.example/web:1"))
    realm = found.host("auth.example", unverified)
    assert (realm.tls, realm.may_login, realm.is_named) == (unverified.tls, False, False)
    realm = found.host("auth.example", verified)
    assert (realm.tls, realm.may_login) == (None, True)
    realm = found.host("named.example", unverified)
    assert (realm.tls, realm.may_login, realm.is_named) == (None, True, True)

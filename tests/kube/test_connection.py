"""Logins to an API server, valid and invalid."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.ports import InvalidError, UnavailableError
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.errors import KubeConfigError

from tests.kube.control_plane import ControlPlane
from tests.kube.wire import kubeconfig
from tests.support.ports import free_port


def parts(plane: ControlPlane) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster and the user in the control plane's kubeconfig."""
    config = json.loads(plane.kubeconfig.read_text())
    return config["clusters"][0]["cluster"], config["users"][0]["user"]


async def version(login: Login) -> str:
    async with ApiServer.connect(login) as server:
        return str(json.loads(await server.get("/version"))["gitVersion"])


@pytest.mark.cluster
async def test_a_token_logs_in_over_verified_tls(plane: ControlPlane) -> None:
    assert (await version(Login(plane.kubeconfig))).startswith("v1.")


@pytest.mark.cluster
async def test_an_exec_plugin_logs_in(plane: ControlPlane, tmp_path: Path) -> None:
    cluster, user = parts(plane)
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    plugin = tmp_path / "plugin.py"
    plugin.write_text(f"print({json.dumps({**kind, 'status': user})!r})")
    run = {**kind, "command": sys.executable, "args": [str(plugin)], "interactiveMode": "Never"}

    file = kubeconfig(tmp_path / "kubeconfig", user={"exec": run}, **cluster)

    assert (await version(Login(file))).startswith("v1.")


@pytest.mark.cluster
async def test_an_expired_token_is_read_again(plane: ControlPlane, tmp_path: Path) -> None:
    cluster, user = parts(plane)
    file = kubeconfig(tmp_path / "kubeconfig", user={"token": "stale"}, **cluster)
    async with ApiServer.connect(Login(file)) as server:
        kubeconfig(file, user=user, **cluster)
        with pytest.raises(UnavailableError, match="401"):
            await server.get("/api/v1/nodes")
        assert json.loads(await server.get("/api/v1/nodes"))["kind"] == "NodeList"


@pytest.mark.cluster
async def test_a_user_without_rights_gets_a_permanent_error(
    plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, _ = parts(plane)
    file = kubeconfig(tmp_path / "kubeconfig", user={"username": "x"}, **cluster)
    async with ApiServer.connect(Login(file)) as server:
        with pytest.raises(InvalidError, match=r"403.*nodes is forbidden"):
            await server.get("/api/v1/nodes")


@pytest.mark.cluster
async def test_a_certificate_of_another_authority_is_rejected(
    plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, user = parts(plane)
    del cluster["certificate-authority-data"]  # the system's authorities do not know this one
    file = kubeconfig(tmp_path / "kubeconfig", user=user, **cluster)

    with pytest.raises(UnavailableError, match=r"SSL certificate.*self-signed"):
        await version(Login(file))


async def test_an_unreachable_server_is_unavailable(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "kubeconfig", f"https://127.0.0.1:{free_port()}")

    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1"):
        await version(Login(file))


async def test_unverified_tls_is_rejected_before_any_request(tmp_path: Path) -> None:
    unsafe: dict[str, Any] = {"insecure-skip-tls-verify": True}
    file = kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", **unsafe)

    with pytest.raises(KubeConfigError, match=r"insecure-skip-tls-verify.*certificate-authority"):
        await Login(file).open()


async def test_plain_http_to_another_host_is_rejected(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "kubeconfig", "http://10.0.0.1:8080")

    with pytest.raises(KubeConfigError, match="expected https"):
        await Login(file).open()


@pytest.mark.parametrize("server", ["https://[::1", "https://host:port", "https://host:99999"])
async def test_an_address_that_is_none_is_named(tmp_path: Path, server: str) -> None:
    file = kubeconfig(tmp_path / "kubeconfig", server)

    with pytest.raises(KubeConfigError, match=r"cluster\.server"):
        await Login(file).open()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "can't log in"),
        ("- a list", "can't log in"),
        ("a: [", "not YAML"),
        ("apiVersion: v1\nkind: Config\n", "current-context"),
        ("\x00", "not YAML"),
    ],
)
async def test_an_invalid_kubeconfig_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)

    with pytest.raises(KubeConfigError, match=message) as raised:
        await Login(file).open()

    assert str(raised.value).startswith(str(file))
    assert "\n" not in str(raised.value)


async def test_a_missing_file_and_an_unknown_context_are_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="no such kubeconfig file"):
        await Login(tmp_path / "nowhere").open()

    file = kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443")
    file.write_text(
        file.read_text().replace('"current-context": "here"', '"current-context": "there"')
    )
    with pytest.raises(KubeConfigError, match="there"):
        await Login(file).open()


async def test_an_invalid_certificate_authority_is_named(tmp_path: Path) -> None:
    junk = {"certificate-authority-data": "anVuaw=="}
    file = kubeconfig(tmp_path / "kubeconfig", "https://10.0.0.1:6443", user=None, **junk)

    with pytest.raises(KubeConfigError, match="certificate or key"):
        await Login(file).open()


async def test_a_kubeconfig_is_required_outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(KubeConfigError, match="service account"):
        await Login().open()

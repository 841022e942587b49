"""The controller's own account in a test cluster: made from the manifests, used by its token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tests.kube.api import Api, ApiError

ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/leadline-controller"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_FOLDERS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/kube-system/roles",
    "RoleBinding": f"{RBAC}/namespaces/kube-system/rolebindings",
}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PATIENCE_S = 30.0


def manifests() -> list[dict[str, Any]]:
    """What `leadline kube manifests` prints."""
    text = (files("leadline_controller.kube") / "manifests" / "rights.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(text))


def path_of(manifest: dict[str, Any]) -> str:
    """Where the API has this object."""
    return f"{_FOLDERS[manifest['kind']]}/{manifest['metadata']['name']}"


@contextmanager
def applied(admin: Api) -> Iterator[None]:
    """The account with its rights is in the cluster while this lasts."""
    made = []
    try:
        for manifest in manifests():
            admin.create(_FOLDERS[manifest["kind"]], manifest)
            made.append(path_of(manifest))
        yield
    finally:
        for path in reversed(made):
            with suppress(ApiError, OSError):
                admin.delete(path)


def login(admin: Api, admins_file: Path, file: Path) -> Path:
    """Write a kubeconfig for the account with a new token of an hour; returns the file."""
    answer = admin.create(f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}})
    config = json.loads(admins_file.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    return file


def wait_allowed(user: Api, wanted: bool, **attributes: str) -> None:
    """Wait until the API server agrees on whether the user may; its rules follow after a moment."""
    deadline_s = time.monotonic() + _PATIENCE_S
    body = {"spec": {"resourceAttributes": attributes}}
    while user.create(_REVIEWS, body)["status"].get("allowed", False) != wanted:
        assert time.monotonic() < deadline_s, f"{attributes} did not become {wanted}"
        time.sleep(0.05)

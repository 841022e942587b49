"""The controller's service account in a test cluster, made from the manifests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from tests.kube.api import Api, ApiError
from tests.kube.objects import pod

ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/leadline-controller"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_FOLDERS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/kube-system/configmaps",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/kube-system/roles",
    "RoleBinding": f"{RBAC}/namespaces/kube-system/rolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
MANIFESTS = ("rights", "preemption", "metrics-api", "notes", "rescheduling", "deletion-cost")
POLICY = "ValidatingAdmissionPolicy 'leadline-controller'"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PATIENCE_S = 90.0


def manifests() -> list[dict[str, Any]]:
    """The manifests that `leadline kube manifests --rescheduling` prints."""
    folder = files("leadline_controller.kube") / "manifests"
    texts = (folder.joinpath(f"{name}.yaml").read_text("utf-8") for name in MANIFESTS)
    return [each for text in texts for each in yaml.safe_load_all(text)]


def path_of(manifest: dict[str, Any]) -> str:
    """The API path of this object."""
    return f"{_FOLDERS[manifest['kind']]}/{manifest['metadata']['name']}"


def agents_manifests() -> list[dict[str, Any]]:
    """The manifests that `leadline kube manifests --agents` adds."""
    folder = files("leadline_controller.kube") / "manifests"
    return list(yaml.safe_load_all(folder.joinpath("agents/rights.yaml").read_text("utf-8")))


@contextmanager
def applied(admin: Api, these: list[dict[str, Any]] | None = None) -> Iterator[None]:
    """Create the account and its rights, or these manifests, for the duration of the block."""
    made = []
    try:
        for manifest in manifests() if these is None else these:
            admin.create(_FOLDERS[manifest["kind"]], manifest)
            made.append(path_of(manifest))
        yield
    finally:
        for path in reversed(made):
            with suppress(ApiError, OSError):
                admin.delete(path)


def login(admin: Api, admins_file: Path, file: Path, lasts_s: int = 3600) -> Path:
    """Write a kubeconfig with a new token for the account; returns the file."""
    answer = admin.create(f"{ACCOUNT}/token", {"spec": {"expirationSeconds": lasts_s}})
    config = json.loads(admins_file.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    return file


def wait_allowed(user: Api, wanted: bool, **attributes: str) -> None:
    """Wait until the API server allows or forbids it: changes of rules take a moment."""
    deadline_s = time.monotonic() + _PATIENCE_S
    body = {"spec": {"resourceAttributes": attributes}}
    while user.create(_REVIEWS, body)["status"].get("allowed", False) != wanted:
        assert time.monotonic() < deadline_s, f"{attributes} did not become {wanted}"
        time.sleep(0.05)


def wait_for_policy(admin: Api, user: Api) -> None:
    """Wait until the policy is in force, which is some time after it was created."""
    pods = "/api/v1/namespaces/default/pods"
    admin.create(pods, pod("policy-awaited", scheduler="nobody"))
    deadline_s = time.monotonic() + _PATIENCE_S
    try:
        for number in count():
            user.patch(f"{pods}/policy-awaited", {"metadata": {"labels": {"number": str(number)}}})
            assert time.monotonic() < deadline_s, "the policy is not in force"
            time.sleep(0.1)
    except ApiError as error:
        assert POLICY in str(error)  # noqa: PT017  # the loop ends by it
    finally:
        admin.delete(f"{pods}/policy-awaited")


@dataclass(frozen=True)
class Right:
    """One verb on one resource, as a rule of the role `of` that name grants it."""

    role: str
    of: str
    rule: int
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        # Of all groups, only this one has a resource whose name another group has, too.
        group = f".{self.group}" if self.group == "metrics.k8s.io" else ""
        return f"{self.verb} {self.resource}{group}"

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of a SelfSubjectAccessReview."""
        resource, _, subresource = self.resource.partition("/")
        asked = {"group": self.group, "resource": resource, "verb": self.verb}
        if subresource:
            asked["subresource"] = subresource
        if self.role == "Role":
            asked["namespace"] = "kube-system"
            if self.verb != "create":
                asked["name"] = self.of
        return asked


def granted() -> list[Right]:
    """Each right in the manifests."""
    return [
        Right(manifest["kind"], manifest["metadata"]["name"], number, group, resource, verb)
        for manifest in manifests()
        for number, rule in enumerate(manifest.get("rules", ()))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def _rules_without(right: Right, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of a role with this one verb on this one resource taken away."""
    kept = []
    for number, rule in enumerate(rules):
        if number != right.rule:
            kept.append(rule)
            continue
        others = [each for each in rule["resources"] if each != right.resource]
        verbs = [each for each in rule["verbs"] if each != right.verb]
        if others:
            kept.append({**rule, "resources": others})
        if verbs:
            kept.append({**rule, "resources": [right.resource], "verbs": verbs})
    return kept


@contextmanager
def without(right: Right, admin: Api, user: Api) -> Iterator[None]:
    """Take this right from the account for the duration of the block."""
    role = next(
        each
        for each in manifests()
        if (each["kind"], each["metadata"]["name"]) == (right.role, right.of)
    )
    try:
        admin.patch(path_of(role), {"rules": _rules_without(right, role["rules"])})
        wait_allowed(user, False, **right.attributes)
        yield
    finally:
        admin.patch(path_of(role), {"rules": role["rules"]})
        wait_allowed(user, True, **right.attributes)

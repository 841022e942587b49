"""The smallest rights that the controller can work with, held against the real RBAC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from leadline_controller.core.manifest import read_pod
from leadline_controller.core.ports import Listed, PodEvent, RefusedError
from leadline_controller.kube.cluster import KubeCluster

from tests.contracts.scenes import Watched
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import node, pod
from tests.kube.wire import kubeconfig

pytestmark = pytest.mark.cluster

NAME = "leadline-rights"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]


@pytest.fixture
def account(plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of a service account that has these rights and no other."""
    made = {"metadata": {"name": NAME}}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    try:
        api.create(ACCOUNTS, made)
        api.create(f"{RBAC}/clusterroles", {**made, "rules": RULES})
        api.create(f"{RBAC}/clusterrolebindings", {**made, "roleRef": role, "subjects": [subject]})
        token = api.create(f"{ACCOUNTS}/{NAME}/token", {"spec": {"expirationSeconds": 3600}})
        cluster = json.loads(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        user = {"token": token["status"]["token"]}
        yield kubeconfig(tmp_path / "kubeconfig", user=user, **cluster)
    finally:
        for path in (
            *(f"{RBAC}/clusterrolebindings", f"{RBAC}/clusterroles"),
            *(ACCOUNTS, "/api/v1/nodes", PODS),
        ):
            with suppress(ApiError):
                api.delete(f"{path}/{NAME}")


async def test_these_rights_are_enough_and_no_more_than_that(account: Path, api: Api) -> None:
    api.add_node(node(NAME))
    made = read_pod(api.create(PODS, pod(NAME)))
    event = PodEvent("Normal", "Scheduled", f"placed on {NAME}")
    async with KubeCluster(account) as cluster:
        changes = cluster.watch()
        try:
            listed = await Watched(changes).until(Listed)
            assert made.uid in {each.uid for each in listed.pods}
            assert NAME in {each.name for each in listed.nodes}
        finally:
            await changes.aclose()
        await cluster.bind(made, NAME)
        for _ in range(2):
            await cluster.record_event(made, event)
        with pytest.raises(RefusedError, match="403"):
            await cluster._opened().get(f"{PODS}/{NAME}")

    assert api.get(f"{PODS}/{NAME}")["spec"]["nodeName"] == NAME

"""Puts an API of another server beside those of a control plane, by its aggregation layer.

The layer reaches the server through a Service of type ExternalName, so that no service network is
needed. The test control plane has no certificate for its proxy, so its requests count as
anonymous, who may read the API there. Who may ask the control plane for it is another matter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kube.api import Api, ApiError
from tests.kube.objects import Object

RBAC = "/apis/rbac.authorization.k8s.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@contextmanager
def aggregated(api: Api, group: str, service: str, namespace: str, port: int) -> Iterator[None]:
    """Have the v1beta1 of this group served from a loopback port for the block. service: the name
    of its Service."""
    made = []
    try:
        for path, body in _objects(group, service, namespace, port):
            api.create(path, body)
            made.append(f"{path}/{body['metadata']['name']}")
        yield
    finally:
        for path in reversed(made):
            deleted(api, path)


def is_available(api: Api, group: str) -> bool:
    """Whether the API server finds the API of this group served."""
    status = api.get(f"{API_SERVICES}/v1beta1.{group}").get("status", {})
    conditions = status.get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def deleted(api: Api, path: str) -> None:
    """Delete the object, or say that it is left."""
    try:
        api.delete(path)
    except (ApiError, OSError):
        print(f"{path} is left in the test cluster", file=sys.stderr)


def _objects(group: str, service: str, namespace: str, port: int) -> Iterator[tuple[str, Object]]:
    metadata = {"name": f"test-{group}"}
    reading = {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}
    discovering = {"nonResourceURLs": ["/apis", "/apis/*", "/openapi/*"], "verbs": ["get"]}
    yield f"{RBAC}/clusterroles", {"metadata": metadata, "rules": [reading, discovering]}
    authority = {"apiGroup": "rbac.authorization.k8s.io"}
    yield (
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": metadata,
            "roleRef": {**authority, "kind": "ClusterRole", **metadata},
            "subjects": [{**authority, "kind": "User", "name": "system:anonymous"}],
        },
    )
    ports = [{"port": port, "name": "https"}]
    yield (
        f"/api/v1/namespaces/{namespace}/services",
        {
            "metadata": {"name": service},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports},
        },
    )
    yield (
        API_SERVICES,
        {
            "metadata": {"name": f"v1beta1.{group}"},
            "spec": {
                "service": {"name": service, "namespace": namespace, "port": port},
                "group": group,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
            },
        },
    )

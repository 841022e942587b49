"""KWOK's nodes renew their leases, and pods on them run and can be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.kwok import LEASES, Kwok, kwok, many_nodes
from tests.kube.objects import Object, binding, node, pod
from tests.kube.test_control_plane import eventually

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def played(plane: ControlPlane) -> Iterator[Kwok]:
    with kwok(plane, lease_s=4) as running:
        nodes = many_nodes(3, labels={"for": "kwok"})
        running.add_nodes(nodes)
        yield running
        running.remove_nodes([each["metadata"]["name"] for each in nodes])


def lease_of(api: Api, name: str) -> str:
    return str(api.get(f"{LEASES}/{name}")["spec"]["renewTime"])


def test_kwok_nodes_are_ready_and_renew_their_leases(played: Kwok, api: Api) -> None:
    found: Object = api.get("/api/v1/nodes/kwok-0001")
    assert "taints" not in found["spec"]
    assert found["metadata"]["labels"]["for"] == "kwok"
    before = lease_of(api, "kwok-0001")
    assert eventually(lambda: lease_of(api, "kwok-0001") != before)


def test_a_pod_on_a_kwok_node_runs_and_can_be_deleted(played: Kwok, api: Api) -> None:
    made = api.create(PODS, pod("kwok-p1", initContainers=[{"name": "first", "image": "test"}]))
    api.create(f"{PODS}/kwok-p1/binding", binding(made, "kwok-0002"))
    assert eventually(lambda: api.get(f"{PODS}/kwok-p1")["status"]["phase"] == "Running")
    api.text("DELETE", f"{PODS}/kwok-p1")
    assert eventually(lambda: not there(api, f"{PODS}/kwok-p1"))


def there(api: Api, path: str) -> bool:
    with suppress(ApiError):
        return bool(api.get(path))
    return False


def test_kwok_ignores_other_nodes(played: Kwok, api: Api) -> None:
    api.add_node(node("kwok-not"))
    played.add_nodes(many_nodes(1, prefix="kwok-later"))
    leased = {lease["metadata"]["name"] for lease in api.get(LEASES)["items"]}
    assert "kwok-later-0000" in leased
    assert "kwok-not" not in leased
    api.delete("/api/v1/nodes/kwok-not")
    played.remove_nodes(["kwok-later-0000"])

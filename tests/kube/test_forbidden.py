"""What the account of `leadline kube manifests --rescheduling` must not be able to do.

Each thing is tried with its token; test_rights.py tries what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contracts.harnesses import APPS, NOTES
from tests.kube.account import ACCOUNT, ADMISSION, POLICY, RBAC, granted, manifests
from tests.kube.api import MERGE_PATCH, Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.moving import ship_notes
from tests.kube.objects import Object, deployment, pod
from tests.kube.volumes import SELECTED_NODE, claim, volume

DEFAULT = "/api/v1/namespaces/default"
PODS, CLAIMS, SECRETS = (f"{DEFAULT}/{x}" for x in ("pods", "persistentvolumeclaims", "secrets"))
VOLUMES = "/api/v1/persistentvolumes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
MAPS = NOTES.rpartition("/")[0]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAME = "forbidden"
DEPLOYMENT, POD, EVENT = f"{APPS}/deployments/{NAME}", f"{PODS}/{NAME}", f"{EVENTS}/{NAME}"
CLAIM, VOLUME, LEASE = f"{CLAIMS}/{NAME}", f"{VOLUMES}/{NAME}", f"{LEASES}/leadline-controller"

STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Write:
    """A request to the API server."""

    method: str
    path: str
    body: object = None
    content: str = MERGE_PATCH

    def send(self, user: Api, query: str = "") -> None:
        """Raises ApiError."""
        content = self.content if self.method == "PATCH" else "application/json"
        by = "fieldManager=somebody&force=true&" if self.content == APPLY else ""
        user.text(
            self.method,
            f"{self.path}{'&' if '?' in self.path else '?'}{by}{query}",
            self.body,
            content,
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('/v1/')[2]} {json.dumps(self.body)}"


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
METADATA: tuple[Object, ...] = (
    {"labels": {"app": "other"}},
    {"annotations": {"leadline.dev/deletion-order": "true"}},
    {"annotations": {"kept": "other"}},
    {"annotations": {"kept": None}},
    {"finalizers": ["leadline.dev/x"]},
    {"ownerReferences": [OWNER]},
)
FORGOTTEN: Object = {"managedFields": [{}]}
# All that the account may change in part.
CHANGEABLE = (DEPLOYMENT, POD, CLAIM, VOLUME, NOTES, EVENT, LEASE)
# The API server itself keeps owners as they are.
IN_STATUS = METADATA[:5]
CONTAINER = {"name": "main", "image": "other", "securityContext": {"privileged": True}}
SPECS: dict[str, tuple[Object, ...]] = {
    DEPLOYMENT: (
        {"template": {"spec": {"containers": [CONTAINER]}}},
        {"template": {"spec": {"serviceAccountName": "admin", "hostPID": True}}},
        {"template": {"metadata": {"labels": {"version": "2"}}}},
        {"template": {"metadata": {"annotations": {"restarted": "now"}}}},
        {"strategy": {"type": "Recreate", "rollingUpdate": None}},
        {"paused": True},
        {"minReadySeconds": 60},
        {"revisionHistoryLimit": 0},
        {"progressDeadlineSeconds": 700},
        {"replicas": 2, "paused": True},
    ),
    POD: ({"activeDeadlineSeconds": 1},),
    CLAIM: ({"volumeName": "any"},),
    VOLUME: (
        {"persistentVolumeReclaimPolicy": "Delete"},
        {"capacity": {"storage": "9Gi"}},
        {"mountOptions": ["suid"]},
        {"storageClassName": "other"},
    ),
}
NEW_EVENT: Object = {
    "metadata": {"name": f"{NAME}-new"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    **{"type": "Normal", "reason": "X", "action": "X", "note": "x"},
    "regarding": {"kind": "Pod", "name": "x", "namespace": "default"},
    **{"reportingController": "leadline", "reportingInstance": "x"},
}
REPEAT = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}
TARGET = {"apiVersion": "v1", "kind": "Node", "name": "somewhere"}
BINDING: Object = {"apiVersion": "v1", "kind": "Binding", "target": TARGET}
EVICTION: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": NAME}}
SET_IMAGE = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}
APPLIED = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"app": "other"}}}
WHOLE_POD = {**pod(f"{NAME}-new"), "apiVersion": "v1", "kind": "Pod"}
OF_AN_OBJECT = [
    *(Write("PATCH", path, {"metadata": each}) for path in CHANGEABLE for each in METADATA),
    *(Write("PATCH", path, {"metadata": FORGOTTEN}) for path in CHANGEABLE if path != NOTES),
    *(Write("PATCH", f"{POD}/status", {"metadata": each}) for each in IN_STATUS),
    *(Write("PATCH", path, {"spec": each}) for path, specs in SPECS.items() for each in specs),
    Write("PATCH", DEPLOYMENT, [SET_IMAGE], JSON_PATCH),
    Write("PATCH", DEPLOYMENT, APPLIED, APPLY),
    Write("PATCH", POD, {"spec": {"containers": [{"name": "main", "image": "x"}]}}, STRATEGIC),
    Write("PATCH", f"{POD}/status", {"status": {"podIP": "6.6.6.6"}}),
    Write("PATCH", f"{POD}/status", {"status": {"phase": "Succeeded"}}),
    Write(
        "PATCH", f"{POD}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    ),
    Write("PATCH", f"{POD}/status", {"status": {"conditions": None}}),
    Write("PATCH", NOTES, {"data": {"other": "x"}}),
    Write("PATCH", NOTES, {"immutable": True}),
    Write("PATCH", NOTES, {"binaryData": {"moves": "AAAA"}}),
    Write("PATCH", f"{EVENT}-kubelet", REPEAT),
    Write("PATCH", f"{CLAIM}-selected", {"metadata": {"annotations": {SELECTED_NODE: "other"}}}),
    Write("PATCH", f"{VOLUME}-bound", {"spec": {"claimRef": None}}),
    Write("PATCH", f"{VOLUME}-bound", {"spec": {"claimRef": {"name": "other"}}}),
    Write("PATCH", f"{VOLUME}-reserved", {"spec": {"claimRef": {"name": "other"}}}),
    Write("PATCH", f"{VOLUME}-reserved", {"spec": {"claimRef": None}}),
    Write("POST", f"{POD}/binding", {**BINDING, "metadata": {"name": NAME, "labels": {"a": "b"}}}),
    Write(
        "POST", f"{POD}/binding", {**BINDING, "metadata": {"name": NAME, "annotations": {"a": "b"}}}
    ),
    Write("POST", f"{POD}/eviction", {**EVICTION, "deleteOptions": {"gracePeriodSeconds": 0}}),
    Write("DELETE", f"{POD}-bound?gracePeriodSeconds=0"),
    Write("DELETE", f"{POD}-critical"),
    Write("POST", EVENTS, {**NEW_EVENT, "reportingController": "kubelet"}),
    Write("POST", EVENTS, {**NEW_EVENT, "regarding": {"kind": "Secret", "namespace": "default"}}),
    Write("POST", EVENTS, {**NEW_EVENT, "metadata": {"name": "x", "finalizers": ["a.example/x"]}}),
    Write("POST", EVENTS, {**NEW_EVENT, "related": {"kind": "Pod", "name": "x"}}),
    Write("POST", LEASES, {"metadata": {"name": "kube-scheduler"}}),
    Write("POST", LEASES, {"metadata": {"generateName": "leadline-controller"}}),
]
OF_A_KIND_OR_NAME = [
    Write("POST", MAPS, {"metadata": {"name": "coredns-custom"}}),
    Write("POST", MAPS, {"metadata": {"name": "leadline-rescheduling"}}),
    Write("POST", MAPS, {"metadata": {"generateName": "leadline-rescheduling"}}),
    Write("GET", MAPS),
    Write("PATCH", f"{MAPS}/leadline-controller", {"data": {"moves": "[]"}}),
    Write("PATCH", f"{DEFAULT}/configmaps/leadline-rescheduling", {"data": {"moves": "[]"}}),
    Write("PUT", NOTES, {"metadata": {"name": "leadline-rescheduling"}}),
    Write("DELETE", NOTES),
    Write("PATCH", f"{LEASES}/kube-scheduler", {"spec": {"holderIdentity": "x"}}),
    Write("DELETE", LEASE),
    Write("PUT", DEPLOYMENT, {"metadata": {"name": NAME}}),
    Write("POST", f"{APPS}/deployments", {"metadata": {"name": f"{NAME}-new"}}),
    Write("DELETE", DEPLOYMENT),
    Write("DELETE", f"{APPS}/deployments"),
    Write("PATCH", f"{DEPLOYMENT}/status", {"status": {"replicas": 9}}),
    *(
        Write("PATCH", f"{APPS}/{kind}/x", {"spec": {"replicas": 9}})
        for kind in ("replicasets", "statefulsets", "daemonsets")
    ),
    Write("POST", PODS, WHOLE_POD),
    Write("PATCH", f"{POD}-new", WHOLE_POD, APPLY),
    Write("PUT", POD, WHOLE_POD),
    Write("DELETE", PODS),
    Write("PATCH", f"{POD}/ephemeralcontainers", {"spec": {"ephemeralContainers": [CONTAINER]}}),
    Write("POST", f"{POD}/exec"),
    Write("GET", f"{POD}/log"),
    *(Write("DELETE", path) for path in (CLAIM, VOLUME, EVENT, EVENTS)),
    *(Write("PATCH", f"{path}/status", {"status": {}}) for path in (CLAIM, VOLUME)),
    Write("PATCH", "/api/v1/nodes/somewhere", {"spec": {"unschedulable": True}}),
    Write("PATCH", DEFAULT, {"metadata": {"labels": {"app": "other"}}}),
    Write("GET", SECRETS),
    Write("GET", f"{SECRETS}/any"),
    Write("POST", f"{ACCOUNT}/token", {"spec": {}}),
    Write("PATCH", f"{RBAC}/clusterroles/leadline-controller", {"rules": []}),
    Write("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "x"}}),
    *(
        Write("DELETE", f"{ADMISSION}/{kind}/leadline-controller")
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    ),
]


def described(name: str = NAME, **more: object) -> Object:
    return {"name": name, "annotations": {"kept": "1"}, **more}


def objects() -> Iterator[tuple[str, Object]]:
    """Collection and manifest of each object that is there."""
    yield f"{APPS}/deployments", {**deployment(NAME, pod(NAME)["spec"]), "metadata": described()}
    yield PODS, pod(NAME, "2m", scheduler="nobody", annotations={"kept": "1"})
    yield PODS, pod(f"{NAME}-bound", nodeName="somewhere", scheduler="nobody")
    yield (
        PODS,
        pod(f"{NAME}-critical", priorityClassName="system-node-critical", scheduler="nobody"),
    )
    yield CLAIMS, {**claim(NAME, "any"), "metadata": described()}
    yield CLAIMS, claim(f"{NAME}-selected", "any", selected_node="somewhere")
    yield VOLUMES, {**volume(NAME, "any"), "metadata": described()}
    theirs = {"namespace": "default", "name": "theirs"}
    yield VOLUMES, volume(f"{NAME}-reserved", "any", claimRef=theirs)
    yield VOLUMES, volume(f"{NAME}-bound", "any", claimRef={**theirs, "uid": "x"})
    yield LEASES, {"metadata": described("leadline-controller")}
    yield EVENTS, {**NEW_EVENT, "metadata": described()}
    kubelets = {"metadata": {"name": f"{NAME}-kubelet"}, "reportingController": "kubelet"}
    yield EVENTS, {**NEW_EVENT, **kubelets}


@pytest.fixture(scope="module")
def scenery(account: Path, plane: ControlPlane) -> Iterator[None]:
    admin = Api(plane.kubeconfig)
    made = []
    ship_notes(admin)
    with suppress(ApiError):  # of a controller that led in a test before
        admin.delete(LEASE)
    try:
        for collection, manifest in objects():
            admin.create(collection, manifest)
            made.append(f"{collection}/{manifest['metadata']['name']}")
        admin.patch(NOTES, {"metadata": {"annotations": {"kept": "1"}}})
        waiting = {"type": "PodScheduled", "status": "False"}
        admin.patch(f"{POD}/status", {"status": {"conditions": [waiting]}})
        yield
    finally:
        for path in made:
            with suppress(ApiError):
                admin.patch(path, {"metadata": {"finalizers": None}})
                admin.delete(path)


def test_the_policy_covers_each_right_to_write() -> None:
    """Nothing that the account may write is left to its rights alone."""
    (policy,) = (each for each in manifests() if each["kind"] == "ValidatingAdmissionPolicy")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    writes = [right for right in granted() if right.verb not in ("get", "list", "watch")]
    assert {right.resource for right in writes} == set(rule["resources"])
    assert {right.group for right in writes} == set(rule["apiGroups"])


@pytest.mark.cluster
@pytest.mark.usefixtures("scenery")
@pytest.mark.parametrize("write", OF_AN_OBJECT, ids=str)
def test_the_policy_refuses_what_an_administrator_could_write(
    account: Path, api: Api, write: Write
) -> None:
    write.send(api, "dryRun=All")
    with pytest.raises(ApiError) as refused:
        write.send(Api(account))
    assert POLICY in str(refused.value)
    assert "denied request: Leadline's controller may" in str(refused.value)


@pytest.mark.cluster
@pytest.mark.usefixtures("scenery")
@pytest.mark.parametrize("write", OF_A_KIND_OR_NAME, ids=str)
def test_there_is_no_right_to(account: Path, write: Write) -> None:
    with pytest.raises(ApiError) as refused:
        write.send(Api(account))
    assert (refused.value.code, "cannot" in str(refused.value)) == (403, True)

"""The service account of `leadline kube manifests` has all rights it needs and no others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from leadline_controller.cli.commands.kube import kube
from leadline_controller.framework.cluster_objects import NamespaceLabels, VolumePlan
from leadline_controller.framework.model import ContainerResources, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    Event,
    InvalidError,
    NodeChanged,
    NotFoundError,
    ObjectChanged,
    PodChanged,
    Relisted,
)
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kubeobjects.manifest import DELETION_COST, read_pod
from leadline_controller.scheduling.replica_order import PREDICTED_MS

from tests.contracts.harnesses import APPS, NOTES, PATIENCE_S, KubeHarness, Watched
from tests.kube.account import (
    RBAC,
    Right,
    agents_manifests,
    granted,
    manifests,
    wait_allowed,
    without,
)
from tests.kube.api import Api, ApiError
from tests.kube.objects import Object, deployment, node, pod
from tests.kube.volumes import NO_PROVISIONER, claim, storage_class, volume

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
DEFAULT = "/api/v1/namespaces/default"
EVENTS = "/api/v1/namespaces/default/events"
SECRETS = "/api/v1/namespaces/default/secrets"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
STORAGE = "/apis/storage.k8s.io/v1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"
_numbers: Iterator[int] = count(1)


class Scene:
    """The cluster for the account, and an administrator's API to change it."""

    def __init__(self, cluster: KubeCluster, admin: Api) -> None:
        self.cluster = cluster
        self.admin = admin
        self.name = f"rights-{next(_numbers)}"
        self._made: list[str] = []

    def pod(self, cpu: str | None = None) -> Pod:
        return read_pod(self.admin.create(PODS, pod(self.name, cpu, scheduler="nobody")))

    def add(self, collection: str, manifest: Object) -> Any:
        made = self.admin.create(collection, manifest)
        self._made.append(f"{collection}/{made['metadata']['name']}")
        return made

    def clean(self) -> None:
        for path in self._made:
            with suppress(ApiError):
                self.admin.patch(path, {"metadata": {"finalizers": None}})
                self.admin.delete(path)
        for path in (f"{PODS}/{self.name}", f"{NODES}/{self.name}", LEASE):
            with suppress(ApiError):
                self.admin.delete(path)


Seen = Callable[[ClusterChange], bool]


@contextmanager
def refusals() -> Iterator[asyncio.Future[Any]]:
    """A future that fails with InvalidError when the log says that a watch is refused; the watch
    itself keeps trying."""
    refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Refusals(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "forbidden" in (message := record.getMessage()) and not refused.done():
                refused.set_exception(InvalidError(message))

    handler, logger = Refusals(), logging.getLogger("leadline_controller")
    logger.addHandler(handler)
    try:
        yield refused
    finally:
        logger.removeHandler(handler)


async def watch_kind(scene: Scene, happen: Callable[[], object], seen: Seen) -> None:
    """Raises InvalidError if the watch is refused."""
    with refusals() as refused:
        async with aclosing(scene.cluster.watch()) as changes:
            looking = asyncio.create_task(_see_change(Watched(changes), happen, seen))
            await asyncio.wait((looking, refused), return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()
            await asyncio.wait((looking,))
            await (refused if refused.done() else looking)


async def _see_change(watched: Watched, happen: Callable[[], object], seen: Seen) -> None:
    await watched.until(Relisted)
    happen()
    async with asyncio.timeout(PATIENCE_S):
        while not seen(await watched.next()):
            pass


async def watch_nodes(scene: Scene) -> None:
    def seen(change: ClusterChange) -> bool:
        return isinstance(change, NodeChanged) and change.node.name == scene.name

    await watch_kind(scene, lambda: scene.admin.add_node(node(scene.name)), seen)


async def watch_pods(scene: Scene) -> None:
    def seen(change: ClusterChange) -> bool:
        return isinstance(change, PodChanged) and change.pod.name == scene.name

    await watch_kind(scene, scene.pod, seen)


async def watch_namespaces(scene: Scene) -> None:
    """Only a label changes: no controller would finish the deletion of a namespace."""

    def seen(change: ClusterChange) -> bool:
        if not isinstance(change, ObjectChanged):
            return False
        space = change.object
        return isinstance(space, NamespaceLabels) and scene.name in space.labels

    def label(value: str | None) -> None:
        scene.admin.patch(DEFAULT, {"metadata": {"labels": {scene.name: value}}})

    try:
        await watch_kind(scene, lambda: label("here"), seen)
    finally:
        label(None)


def replicated(name: str, **more: Any) -> Object:
    """A controller of no pods."""
    made = deployment(name, pod(name)["spec"], replicas=0)
    made["spec"] |= more
    return made


def of(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


ATTACHED = {
    "attacher": "test.leadline.dev",
    "nodeName": "somewhere",
    "source": {"persistentVolumeName": "any"},
}
# Resource -> its collection, and an object of it by name.
WATCHED: dict[str, tuple[str, Callable[[str], Object]]] = {
    "persistentvolumeclaims": (CLAIMS, lambda name: claim(name, "any")),
    "persistentvolumes": (VOLUMES, lambda name: volume(name, "any")),
    "storageclasses": (
        f"{STORAGE}/storageclasses",
        lambda name: storage_class(name, NO_PROVISIONER),
    ),
    "csinodes": (f"{STORAGE}/csinodes", lambda name: of(name, drivers=[])),
    "csidrivers": (f"{STORAGE}/csidrivers", lambda name: of(name, storageCapacity=True)),
    "csistoragecapacities": (
        f"{STORAGE}/namespaces/default/csistoragecapacities",
        lambda name: {"metadata": {"name": name}, "storageClassName": "any", "capacity": "1Gi"},
    ),
    "volumeattachments": (f"{STORAGE}/volumeattachments", lambda name: of(name, **ATTACHED)),
    "poddisruptionbudgets": (BUDGETS, lambda name: of(name, maxUnavailable=1)),
    "services": (f"{DEFAULT}/services", lambda name: of(name, ports=[{"port": 80}])),
    "replicationcontrollers": (
        f"{DEFAULT}/replicationcontrollers",
        lambda name: replicated(name, selector={"app": name}),
    ),
    "replicasets": (f"{APPS}/replicasets", replicated),
    "statefulsets": (
        f"{APPS}/statefulsets",
        lambda name: replicated(name, serviceName=name),
    ),
}


async def watch_resource(scene: Scene, resource: str) -> None:
    def seen(change: ClusterChange) -> bool:
        return isinstance(change, ObjectChanged) and scene.name in change.object.key

    collection, made = WATCHED[resource]
    await watch_kind(scene, lambda: scene.add(collection, made(scene.name)), seen)


async def watch_pulls(scene: Scene) -> None:
    """Raises InvalidError if the reader may not read events."""
    with refusals() as refused:
        async with aclosing(scene.cluster.watch_pulls()) as pulls, asyncio.timeout(PATIENCE_S):
            seeing = asyncio.ensure_future(anext(pulls))
            while not (seeing.done() or refused.done()):
                scene.admin.create(EVENTS, pull_event(f"{scene.name}-{next(_numbers)}", scene.name))
                await asyncio.wait((seeing, refused), timeout=0.5)
            seeing.cancel()
            await asyncio.wait((seeing,))
            if refused.done():
                await refused


def pull_event(name: str, pod_name: str) -> Object:
    """A kubelet's event."""
    about = {"kind": "Pod", "namespace": "default", "name": pod_name, "uid": pod_name}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": about,
        "reason": "Pulling",
        "message": 'Pulling image "web:1"',
        "source": {"component": "kubelet", "host": "somewhere"},
    }


async def provision_a_volume(scene: Scene) -> None:
    scene.add(CLAIMS, claim(scene.name, "any"))
    await scene.cluster.prepare(VolumePlan("somewhere", selects=(f"default/{scene.name}",)))


async def reserve_a_volume(scene: Scene) -> None:
    scene.add(CLAIMS, claim(scene.name, "any"))
    scene.add(VOLUMES, volume(scene.name, "any"))
    plan = VolumePlan("somewhere", binds=((scene.name, f"default/{scene.name}"),))
    await scene.cluster.prepare(plan)


async def bind_a_pod(scene: Scene) -> None:
    await scene.cluster.bind(scene.pod(), "somewhere")


async def annotate_a_pod(scene: Scene) -> None:
    await scene.cluster.annotate(scene.pod(), {DELETION_COST: "7", PREDICTED_MS: "{}"})
    shown = scene.admin.get(f"{PODS}/{scene.name}")["metadata"]["annotations"]
    assert shown == {DELETION_COST: "7", PREDICTED_MS: "{}"}


async def write_an_event(scene: Scene) -> None:
    await scene.cluster.record_event(scene.pod(), Event("Normal", "Scheduled", "here"))


async def repeat_an_event(scene: Scene) -> None:
    made, event = scene.pod(), Event("Warning", "FailedScheduling", "no room")
    for _ in range(2):
        await scene.cluster.record_event(made, event)


async def read_the_lease(scene: Scene) -> None:
    await scene.cluster.lease.read()


async def watch_the_lease(scene: Scene) -> None:
    scene.admin.create(LEASE.rpartition("/")[0], {"metadata": {"name": "leadline-controller"}})
    async with aclosing(scene.cluster.lease.follow()) as holders, asyncio.timeout(PATIENCE_S):
        await anext(holders)


async def create_the_lease(scene: Scene) -> None:
    scene.cluster.lease.strategy = "leadline"
    assert (await scene.cluster.lease.write("me", 10, None)).strategy == "leadline"


async def renew_the_lease(scene: Scene) -> None:
    first = await scene.cluster.lease.write("me", 10, None)
    renewed = await scene.cluster.lease.write("me", 10, first)
    scene.cluster.lease.strategy = "dacs"
    taken = await scene.cluster.lease.write("you", 10, renewed)
    assert (first.strategy, renewed.strategy, taken.strategy) == ("", "", "dacs")


async def ask_what_pods_use(scene: Scene) -> None:
    """Nothing serves the metrics API here."""
    with pytest.raises(NotFoundError):
        await scene.cluster.pod_usage()


async def evict_a_pod(scene: Scene) -> None:
    await scene.cluster.evict(scene.pod())


async def nominate_a_pod(scene: Scene) -> None:
    await scene.cluster.nominate(scene.pod(), "somewhere")


async def preempt_a_pod(scene: Scene) -> None:
    made = scene.pod()
    scene.add("/api/v1/nodes", node(scene.name))
    await scene.cluster.bind(made, scene.name)
    await scene.cluster.preempt(made, "makes room")


async def resize_a_pod(scene: Scene) -> None:
    made = scene.pod("2m")
    scene.add("/api/v1/nodes", node(scene.name))
    await scene.cluster.bind(made, scene.name)
    await scene.cluster.resize(made, [ContainerResources("main", {"cpu": "1m"})])


async def scale_a_deployment(scene: Scene) -> None:
    owner = KubeHarness(scene.cluster, scene.admin).add_deployment(scene.name, 1)
    try:
        found = await scene.cluster.deployment("default", owner)
        assert found is not None
        if found.autoscaled:  # also when it may not list autoscalers, so ask for the message
            path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
            await scene.cluster._server.get(path)
        await scene.cluster.scale(found, 2, "uid")
    finally:
        for path in (f"replicasets/{scene.name}-set", f"deployments/{scene.name}"):
            scene.admin.delete(f"{APPS}/{path}")


async def keep_notes(scene: Scene) -> None:
    await scene.cluster.write_note("moves", "[]")
    await scene.cluster.write_note("moves", "[1]")
    await scene.cluster.write_note("told", "{}")
    await scene.cluster.read_notes()


Action = Callable[[Scene], Awaitable[None]]
FOLLOWED: dict[str, Action] = {
    "nodes": watch_nodes,
    "pods": watch_pods,
    "namespaces": watch_namespaces,
    "events": watch_pulls,
    **{each: partial(watch_resource, resource=each) for each in WATCHED},
}
ACTIONS: dict[str, Action] = {
    **{f"{verb} {of}": action for of, action in FOLLOWED.items() for verb in ("list", "watch")},
    "patch pods/status": nominate_a_pod,
    "delete pods": preempt_a_pod,
    "list pods.metrics.k8s.io": ask_what_pods_use,
    "create pods/eviction": evict_a_pod,
    "patch pods/resize": resize_a_pod,
    "get deployments": scale_a_deployment,
    "patch deployments": scale_a_deployment,
    "get replicasets": scale_a_deployment,
    "list horizontalpodautoscalers": scale_a_deployment,
    "get configmaps": keep_notes,
    "patch configmaps": keep_notes,
    "get persistentvolumeclaims": provision_a_volume,
    "patch persistentvolumeclaims": provision_a_volume,
    "get persistentvolumes": reserve_a_volume,
    "patch persistentvolumes": reserve_a_volume,
    "create pods/binding": bind_a_pod,
    "patch pods": annotate_a_pod,
    "create events": write_an_event,
    "patch events": repeat_an_event,
    "get leases": read_the_lease,
    "watch leases": watch_the_lease,
    "create leases": create_the_lease,
    "patch leases": renew_the_lease,
}


@pytest.fixture
async def scene(account: Path, api: Api) -> AsyncIterator[Scene]:
    async with KubeCluster.connect(account) as cluster:
        scene = Scene(cluster, api)
        try:
            yield scene
        finally:
            scene.clean()


def test_each_right_is_granted_once_and_has_a_test() -> None:
    assert sorted(map(str, granted())) == sorted(ACTIONS)
    for manifest in manifests():
        for rule in manifest.get("rules", ()):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


def test_the_command_prints_the_tested_manifests() -> None:
    printed = CliRunner().invoke(kube, ["manifests", "--rescheduling"])
    assert printed.exit_code == 0
    assert list(yaml.safe_load_all(printed.output)) == manifests()
    printed = CliRunner().invoke(kube, ["manifests", "--agents"])
    assert list(yaml.safe_load_all(printed.output))[-5:] == agents_manifests()


def test_with_the_least_rights_the_account_may_not_touch_running_pods() -> None:
    printed = CliRunner().invoke(kube, ["manifests", "--no-preemption", "--no-metrics-api"])
    assert printed.exit_code == 0
    few = list(yaml.safe_load_all(printed.output))
    assert few == manifests()[: len(few)]
    assert {each["metadata"]["name"] for each in few} == {"leadline-controller"}
    rules = [rule for each in few for rule in each.get("rules", ())]
    assert not any("delete" in rule["verbs"] for rule in rules)
    assert not {"pods/eviction", "deployments"} & {r for rule in rules for r in rule["resources"]}


def test_the_right_to_annotate_pods_is_asked_for() -> None:
    printed = CliRunner().invoke(kube, ["manifests"])
    plain = list(yaml.safe_load_all(printed.output))
    assert plain == manifests()[: len(plain)]
    rules = [rule for each in plain for rule in each.get("rules", ())]
    assert not any("pods" in rule["resources"] and "patch" in rule["verbs"] for rule in rules)


@pytest.mark.cluster
@pytest.mark.parametrize("right", {each: right for right, each in ACTIONS.items()}.values())
async def test_each_action_works_with_all_rights(scene: Scene, right: str) -> None:
    await ACTIONS[right](scene)


@pytest.mark.cluster
@pytest.mark.parametrize("right", granted(), ids=str)
async def test_an_action_fails_without_one_of_its_verbs(
    scene: Scene, account: Path, api: Api, right: Right
) -> None:
    message = f'cannot {right.verb} resource "{right.resource}" in API group "{right.group}"'
    with without(right, api, Api(account)), pytest.raises(InvalidError, match=message):
        await ACTIONS[str(right)](scene)


@pytest.mark.cluster
async def test_what_to_do_without_the_config_map_is_said(scene: Scene) -> None:
    await scene.cluster.write_note("paused", "{}")
    scene.admin.delete(NOTES)
    try:
        assert dict(await scene.cluster.read_notes()) == {}
        await scene.cluster.write_note("paused", None)
        with pytest.raises(NotFoundError, match="apply what `leadline kube manifests --resched"):
            await scene.cluster.write_note("paused", "{}")
    finally:
        (shipped,) = (each for each in manifests() if each["kind"] == "ConfigMap")
        scene.admin.create(NOTES.rpartition("/")[0], shipped)
    await scene.cluster.write_note("paused", "{}")
    assert dict(await scene.cluster.read_notes()) == {"paused": "{}"}
    await scene.cluster.write_note("paused", None)


@pytest.mark.cluster
async def test_a_pull_secret_is_readable_only_by_a_right_of_its_own(
    scene: Scene, account: Path, api: Api
) -> None:
    mine, other = f"{scene.name}-mine", f"{scene.name}-other"
    for name in (mine, other):
        scene.add(SECRETS, {"metadata": {"name": name}, "stringData": {"x": name}})
    printed = CliRunner().invoke(kube, ["manifests", f"--pull-secret=default/{mine}"])
    role, binding = list(yaml.safe_load_all(printed.output))[-2:]
    with pytest.raises(InvalidError, match="forbidden"):
        await scene.cluster.read_secret(f"default/{mine}")
    scene.add(f"{RBAC}/namespaces/default/roles", role)
    scene.add(f"{RBAC}/namespaces/default/rolebindings", binding)
    allowed = {"verb": "get", "resource": "secrets", "namespace": "default", "name": mine}
    wait_allowed(Api(account), True, **allowed)
    secret = json.loads(await scene.cluster.read_secret(f"default/{mine}"))
    assert secret["metadata"]["name"] == mine
    with pytest.raises(InvalidError, match="forbidden"):
        await scene.cluster.read_secret(f"default/{other}")

"""KEDA's own operator and adapter, and the HPA controller, scale a Deployment by Leadline's answers
while a real HTTP service is under real load. The real scheduling loop binds the pods to nodes that
KWOK plays."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml
from leadline_controller.serve.settings import KedaSettings

from tests.controller.extender.listening import files
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.keda import EXAMPLES, Keda, keda, scaled_object
from tests.kube.kwok import kwok
from tests.kube.objects import Object, node
from tests.kube.scaling import (
    CONTROLLERS,
    COUNTER,
    DEPLOYMENTS,
    PING_MS,
    PODS,
    SCALED,
    Scene,
    Service,
    controller,
    removed,
    timed_service,
)
from tests.support.certificates import Authority

pytestmark = [pytest.mark.cluster, pytest.mark.keda, pytest.mark.timeout(400)]

TRIGGERS = "/apis/keda.sh/v1alpha1/namespaces/default/triggerauthentications"
SECRETS = "/api/v1/namespaces/default/secrets"
# Upwards the algorithm's order; downwards what it leaves when the newest is removed.
ORDER = ("keda-w1", "keda-w2", "keda-w3") * 2
# The trigger's metadata, the service, and requests a second with the replicas that they take.
# Of the rate, 32 a second need 8 replicas, and 6 can be placed. Of 100 ms of work each, one replica
# on w1 takes 5 + 100/(1 - 0.3) = 148 ms at 3 requests a second, and 505 ms at 8; two take 5 + 167
# and 20 + 167 ms. tests/lab/test_response_time.py has all of the paper's steps.
SCALINGS: dict[str, tuple[Mapping[str, str], Object, Sequence[tuple[float, int]]]] = {
    "rate": (
        {"target": "4"},
        timed_service("web", response_time_ms=100, profile_ms=10),
        ((3, 1), (15, 4), (7, 2), (32, 6)),
    ),
    "response time": (
        {"metric": "response-time"},
        timed_service("slow", response_time_ms=250, profile_ms=100),
        ((3, 1), (8, 2), (3, 1)),
    ),
}


@pytest.fixture(scope="module")
def scaling(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    """KEDA, the HPA controller, and nodes with room for two replicas each."""
    sync = ("--horizontal-pod-autoscaler-sync-period=2s",)
    with (
        kube_controller_manager(plane, CONTROLLERS, options=sync),
        kwok(plane) as nodes,
        keda(plane, tmp_path_factory.mktemp("keda")) as running_keda,
    ):
        made = [node(name, cpu="2") for name in PING_MS]
        nodes.add_nodes([*made, node("keda-gate", cpu="2", unschedulable=True)])
        yield running_keda
        nodes.remove_nodes([*PING_MS, "keda-gate"])


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_keda_accepts_the_docs_examples(api: Api, scaling: Keda, file: Path) -> None:
    paths = {"ScaledObject": SCALED, "TriggerAuthentication": TRIGGERS}
    for manifest in yaml.safe_load_all(file.read_text()):
        api.create(f"{paths[manifest['kind']]}?dryRun=All&fieldValidation=Strict", manifest)


@pytest.mark.parametrize("by", SCALINGS)
def test_a_service_has_the_replicas_that_its_load_takes(
    plane: ControlPlane, api: Api, scaling: Keda, tmp_path: Path, by: str
) -> None:
    metadata, made, steps = SCALINGS[by]
    asyncio.run(scaled(plane, api, scaling, tmp_path, made, metadata, partial(follow, steps=steps)))


async def scaled(
    plane: ControlPlane,
    api: Api,
    scaling: Keda,
    folder: Path,
    made: Object,
    more: Mapping[str, str],
    follow: Callable[[Scene], Awaitable[None]],
) -> None:
    """Have KEDA scale the Deployment by Leadline's answers over TLS while `follow` looks on. more:
    of the trigger's metadata."""
    name = made["metadata"]["name"]
    authority = Authority(folder / "pki")
    server, caller = authority.server("127.0.0.1"), authority.client("keda")
    service = Service()
    with service.serving() as url:
        told = KedaSettings("127.0.0.1:0", files(server), (url,), window_s=6.0)
        async with controller(plane, told) as address:
            scene = Scene(api, service, name, lambda: said(scaling))
            metadata = {"pods": f"app={name}", "requests": COUNTER, **more}
            secret = {
                "caCert": caller.ca_file.read_bytes(),
                "tlsClientCert": caller.cert_file.read_bytes(),
                "tlsClientKey": caller.key_file.read_bytes(),
            }
            references = [{"parameter": key, "name": "keda", "key": key} for key in secret]
            asked = scaled_object(name, name, address, metadata, most=20, authentication="keda")
            objects: tuple[tuple[str, Object], ...] = (
                (
                    SECRETS,
                    {
                        "metadata": {"name": "keda"},
                        "data": {
                            key: base64.b64encode(value).decode() for key, value in secret.items()
                        },
                    },
                ),
                (
                    TRIGGERS,
                    {
                        "apiVersion": "keda.sh/v1alpha1",
                        "kind": "TriggerAuthentication",
                        "metadata": {"name": "keda"},
                        "spec": {"secretTargetRef": references},
                    },
                ),
                (DEPLOYMENTS, made),
                (SCALED, asked),
            )
            try:
                for path, body in objects:
                    await asyncio.to_thread(api.create, path, body)
                await follow(scene)
            finally:
                service.per_s = 0
                for path, body in reversed(objects):
                    await asyncio.to_thread(removed, api, f"{path}/{body['metadata']['name']}")
                for each in await asyncio.to_thread(scene.pods):
                    await asyncio.to_thread(removed, api, f"{PODS}/{each['metadata']['name']}")


async def follow(scene: Scene, steps: Sequence[tuple[float, int]]) -> None:
    for per_s, replicas in steps:
        scene.service.per_s = per_s
        nodes = await scene.scaled_to(replicas)
        print(f"{per_s} requests/s: {dict(nodes)}")
        assert nodes == Counter(ORDER[:replicas])
    await asyncio.sleep(8)  # the rate is over six seconds
    assert await asyncio.to_thread(scene.replicas) == replicas


def said(scaling: Keda) -> str:
    lines = (log.read_text(errors="replace").splitlines() for log in scaling.logs)
    return " | ".join(line[:400] for each in lines for line in each[-6:])

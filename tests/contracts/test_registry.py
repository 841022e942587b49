"""Every Registry answers alike: the one in memory and the client with a real docker-registry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest
from leadline_controller.registry.client import RegistryClient
from leadline_controller.registry.lookup import Registry
from leadline_controller.registry.manifests import (
    AbsentError,
    AwayError,
    DeniedError,
    Index,
    Manifest,
)
from leadline_controller.registry.registries import Credentials, Endpoint, Registries
from leadline_controller.registry.registries import _Config as Config

from tests.support.ports import free_port
from tests.support.registries import (
    LOGIN,
    DebianRegistry,
    MemoryRegistry,
    context,
    debian_registry,
    digest,
    index,
    manifest,
)

BASE, APP = b"base" * 300, b"app" * 100
AMD, ARM = manifest(BASE, APP), manifest(BASE)
BOTH = index({"amd64": AMD, "arm64": ARM})


class Pushed(Protocol):
    def push(
        self, repository: str, tag: str, body: bytes, blobs: tuple[bytes, ...] = ()
    ) -> None: ...


@dataclass(frozen=True)
class Scene:
    """A registry, its store, and an endpoint of it without repository and reference."""

    registry: Registry
    store: Pushed
    at: Endpoint

    def endpoint(self, repository: str, reference: str) -> Endpoint:
        return replace(self.at, repository=repository, reference=reference)


REAL = pytest.mark.registry
WITH_LOGIN = ["memory-login", *(pytest.param(kind, marks=REAL) for kind in ("basic", "token"))]
KINDS = ["memory", pytest.param("plain", marks=REAL), *WITH_LOGIN]


@pytest.fixture(params=KINDS)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    if request.param.startswith("memory"):
        login = LOGIN if request.param == "memory-login" else None
        store = MemoryRegistry(login=login)
        yield Scene(store, store, Endpoint("https://memory", "", "", credentials=login))
        return
    with ExitStack() as stack:
        login_kind = "" if request.param == "plain" else request.param
        running = stack.enter_context(debian_registry(tmp_path, login_kind))
        async with RegistryClient(_rules(running)) as client:
            yield Scene(client, running, _endpoint(running))


def _endpoint(running: DebianRegistry) -> Endpoint:
    secure = running.authority is not None
    return Endpoint(
        running.url,
        "",
        "",
        is_named=True,
        tls=context(running.authority) if secure else None,
        may_login=secure,
        credentials=LOGIN if secure else None,
    )


def _rules(running: DebianRegistry) -> Registries:
    if running.authority is None:
        return Registries()

    class Everywhere(dict[str, Config]):
        def __missing__(self, _: str) -> Config:  # of any host
            return Config(tls=context(running.authority))

        def __contains__(self, _: object) -> bool:
            return True

    return Registries(configs=Everywhere())


async def test_a_tag_has_layers_and_a_digest(scene: Scene) -> None:
    scene.store.push("boards/web", "1", AMD, (BASE, APP))
    at = scene.endpoint("boards/web", "1")
    assert await scene.registry.digest(at) == digest(AMD)
    answer = await scene.registry.manifest(at)
    assert isinstance(answer, Manifest)
    assert answer.digest == digest(AMD)
    assert [(layer.digest, layer.size_mb) for layer in answer.layers] == [
        (digest(BASE), len(BASE) / 1e6),
        (digest(APP), len(APP) / 1e6),
    ]


async def test_an_index_leads_to_the_manifests_of_architectures(scene: Scene) -> None:
    scene.store.push("web", "", AMD, (BASE, APP))
    scene.store.push("web", "", ARM, (BASE,))
    scene.store.push("web", "2", BOTH)
    answer = await scene.registry.manifest(scene.endpoint("web", "2"))
    assert answer == Index(digest(BOTH), {"amd64": digest(AMD), "arm64": digest(ARM)})
    arm = await scene.registry.manifest(scene.endpoint("web", answer.manifests["arm64"]))
    assert isinstance(arm, Manifest)
    assert len(arm.layers) == 1


async def test_an_index_may_be_within_an_index_and_name_no_platform(scene: Scene) -> None:
    """As Buildx makes them for an image with attestations."""
    inner = index({"arm64": ARM})
    outer, bare = json.loads(index({"arm64": inner})), json.loads(inner)
    outer["manifests"][0]["mediaType"] = outer["mediaType"]
    del bare["manifests"][0]["platform"]
    scene.store.push("web", "", ARM, (BASE,))
    scene.store.push("web", "", inner)
    for tag, body in (("5", outer), ("6", bare)):
        scene.store.push("web", tag, json.dumps(body).encode())
        found: Index | Manifest = await scene.registry.manifest(scene.endpoint("web", tag))
        while isinstance(found, Index):
            at = found.of("arm64")
            assert at is not None
            found = await scene.registry.manifest(scene.endpoint("web", at))
        assert found.digest == digest(ARM)


async def test_a_tag_may_move(scene: Scene) -> None:
    scene.store.push("web", "3", AMD, (BASE, APP))
    assert await scene.registry.digest(scene.endpoint("web", "3")) == digest(AMD)
    scene.store.push("web", "3", ARM, (BASE,))
    assert await scene.registry.digest(scene.endpoint("web", "3")) == digest(ARM)


Ask = Callable[[Registry, Endpoint], object]


@pytest.mark.parametrize("method", ["digest", "manifest"])
async def test_what_is_not_there_is_absent(scene: Scene, method: str) -> None:
    scene.store.push("web", "1", AMD, (BASE, APP))
    for repository, reference in (("web", "none"), ("none", "1"), ("web", digest(b"none"))):
        with pytest.raises(AbsentError, match="no such image"):
            await getattr(scene.registry, method)(scene.endpoint(repository, reference))


@pytest.mark.parametrize("scene", WITH_LOGIN, indirect=True)
async def test_other_credentials_are_denied(scene: Scene) -> None:
    scene.store.push("web", "1", AMD, (BASE, APP))
    at = scene.endpoint("web", "1")
    for wrong in (None, Credentials("boards", "wrong"), Credentials("nobody", LOGIN.password)):
        with pytest.raises(DeniedError) as error:
            await scene.registry.manifest(replace(at, credentials=wrong))
        assert "wrong" not in str(error.value)
    assert isinstance(await scene.registry.manifest(at), Manifest)


async def test_nobody_there_is_away() -> None:
    async with RegistryClient() as client:
        at = Endpoint(f"http://127.0.0.1:{free_port()}", "web", "1", is_named=True)
        with pytest.raises(AwayError, match="127"):
            await client.manifest(at)

"""Which registry is asked what, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from pathlib import Path

import pytest
from leadline_controller.framework.model import Layer
from leadline_controller.registry import lookup
from leadline_controller.registry.lookup import ImageLookup, LookupSettings
from leadline_controller.registry.manifests import AwayError, BrokenError, Index, Manifest
from leadline_controller.registry.registries import (
    Credentials,
    Endpoint,
    PullLogins,
    Registries,
)

from tests.support.registries import LOGIN, MemoryRegistry, digest, index, manifest

WEB = "reg.example/web:1"
AMD, ARM = manifest(b"base", b"amd"), manifest(b"base", b"arm!")
BOTH = index({"amd64": AMD, "arm64": ARM})


class Scene:
    """A lookup with a registry in memory."""

    def __init__(self, **settings: object) -> None:
        self.now_s = 0.0
        self.wanted: dict[str, set[str]] = {WEB: set()}
        self.architectures = {"amd64"}
        self.learned: dict[str, tuple[str, Mapping[str, tuple[Layer, ...]]]] = {}
        self.registry = MemoryRegistry()
        self.registry.push("web", "", AMD)
        self.registry.push("web", "", ARM)
        self.registry.push("web", "1", BOTH)
        self.read: list[str] = []
        self.logins: dict[str, PullLogins] = {"default/mine": {"reg.example": (LOGIN,)}}
        self.forgotten: Set[str] = frozenset()
        self.lookup = ImageLookup(
            LookupSettings(**settings),  # type: ignore[arg-type]  # as the caller has them
            Registries(),
            self.registry,
            lambda: self.wanted,
            lambda: self.architectures,
            self._learn,
            self._logins,
            lambda: self.now_s,
        )

    def _learn(
        self, image: str, by_digest: str, layers: Mapping[str, tuple[Layer, ...]]
    ) -> Set[str]:
        self.learned[image] = by_digest, layers
        return self.forgotten

    async def _logins(self, key: str) -> PullLogins:
        self.read.append(key)
        return self.logins[key]

    async def pass_time(self, seconds: float = 0.0) -> Set[str]:
        """Let a time pass and what is due happen. Returns what was asked."""
        self.now_s += seconds
        self.registry.asked.clear()
        self.lookup.tick()
        for _ in range(20):
            await asyncio.sleep(0)
        return set(self.registry.asked)


async def test_an_image_is_known_for_the_architectures_of_the_nodes() -> None:
    scene = Scene()
    assert await scene.pass_time() == {"GET web 1", f"GET web {digest(AMD)}"}
    by_digest, layers = scene.learned[WEB]
    assert by_digest == f"reg.example/web@{digest(BOTH)}"
    assert {name: len(each) for name, each in layers.items()} == {"amd64": 2}
    scene.architectures = {"amd64", "arm64", "riscv64"}
    await scene.pass_time(3600)
    _, layers = scene.learned[WEB]
    assert sorted(layers) == ["amd64", "arm64"], "no image for riscv64, so no layers"


async def test_a_tag_is_checked_without_a_counted_request() -> None:
    scene = Scene()
    await scene.pass_time()
    assert await scene.pass_time(60) == set()
    assert await scene.pass_time(3600) == {"HEAD web 1"}
    scene.registry.push("web", "1", AMD)
    assert await scene.pass_time(3600) == {"HEAD web 1", "GET web 1"}
    assert scene.learned[WEB][0] == f"reg.example/web@{digest(AMD)}"
    assert list(scene.learned[WEB][1]) == [""]


async def test_a_digest_is_asked_for_once() -> None:
    scene = Scene()
    scene.wanted = {f"reg.example/web@{digest(AMD)}": set()}
    assert await scene.pass_time() == {f"GET web {digest(AMD)}"}
    for _ in range(3):
        assert await scene.pass_time(10_000) == set()


async def test_what_was_forgotten_for_another_image_is_asked_for_again() -> None:
    scene = Scene()
    by_digest = f"reg.example/web@{digest(AMD)}"
    scene.wanted = {by_digest: set()}
    await scene.pass_time()
    scene.wanted[WEB], scene.forgotten = set(), {by_digest}
    await scene.pass_time(1)
    scene.learned.clear()
    scene.forgotten = frozenset()
    assert await scene.pass_time(1) == {f"GET web {digest(AMD)}"}
    assert list(scene.learned) == [by_digest]


async def test_a_registry_that_is_away_is_left_alone_for_longer_and_longer() -> None:
    scene = Scene()
    scene.registry.failing = AwayError("reg.example: refused")
    scene.wanted = {f"reg.example/web:{tag}": set() for tag in range(9)}
    asked = 0
    for _ in range(3600):
        asked += len(await scene.pass_time(1))
    assert asked < 4 * 9, "at most four at once, and seldom"
    (reading,) = scene.lookup.readings()
    assert (reading.wanted, reading.images, reading.why) == (9, 0, "reg.example: refused")
    assert reading.retry_s is not None
    assert reading.retry_s < 1800 * 1.25
    scene.registry.failing = None
    await scene.pass_time(3000)
    scene.wanted = {WEB: set()}
    await scene.pass_time(10)
    assert WEB in scene.learned
    assert scene.lookup.readings()[0].why == ""


class Tarpits(MemoryRegistry):
    """Registries slow-*.example take for ever; away-*.example are away at once."""

    async def manifest(self, endpoint: Endpoint) -> Manifest | Index:
        if "slow" in endpoint.host:
            await asyncio.Event().wait()
        if "away" in endpoint.host:
            raise AwayError(f"{endpoint.host}: refused")
        return await super().manifest(endpoint)


def tarpits() -> Scene:
    scene = Scene()
    scene.lookup._registry = registry = Tarpits()
    registry.push("web", "1", AMD)
    return scene


async def test_a_registry_that_answers_slowly_is_asked_one_thing_at_once() -> None:
    scene = tarpits()
    slow = {f"slow.example/web:{tag}": set[str]() for tag in range(9)}
    scene.wanted = {**slow, WEB: set()}
    await scene.pass_time()
    assert list(scene.learned) == [WEB]
    for task in scene.lookup._tasks:
        task.cancel()


async def test_registries_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_AWAY_S", (0.0, 0.0))  # so each is due at each tick
    scene = tarpits()
    away = {f"away-{number}.example/web:1": set[str]() for number in range(8)}
    scene.wanted = {**away, WEB: set()}
    for _ in range(3):  # four at once
        await scene.pass_time(1)
    assert list(scene.learned) == [WEB]


async def test_registries_that_no_image_names_any_more_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "_MAX_REGISTRIES", 3)
    scene = tarpits()
    scene.wanted = {f"away-{number}.example/web:1": set() for number in range(3)}
    await scene.pass_time()
    scene.wanted = {"away-0.example/web:1": set(), WEB: set()}
    await scene.pass_time(1)
    assert list(scene.learned) == [WEB]
    assert scene.lookup.readings()[0].why, "the one that is still named is left alone"


async def test_a_registry_says_when_to_come_again() -> None:
    scene = Scene()
    scene.registry.failing = AwayError("reg.example: HTTP status 429", 5000)
    await scene.pass_time()
    assert await scene.pass_time(4999) == set()
    assert await scene.pass_time(2) == {"GET web 1"}


async def test_one_bad_image_does_not_stop_the_others() -> None:
    scene = Scene()
    scene.wanted = {"reg.example/none:1": set(), "not a reference": set(), WEB: set()}
    await scene.pass_time()
    await scene.pass_time(1)
    assert list(scene.learned) == [WEB]
    (reading,) = scene.lookup.readings()
    assert (reading.images, reading.wanted, reading.why) == (1, 2, "reg.example: no such image")
    assert await scene.pass_time(100) == set()
    assert await scene.pass_time(300) == {"GET none 1"}


@pytest.mark.parametrize("failure", [BrokenError("no"), RuntimeError("a fault of ours")])
async def test_any_failure_is_kept_to_its_image(failure: Exception) -> None:
    scene = Scene()
    scene.registry.failing = failure
    await scene.pass_time()
    assert scene.learned == {}
    scene.registry.failing = None
    await scene.pass_time(7 * 3600)
    assert WEB in scene.learned


async def test_requests_that_count_are_limited() -> None:
    scene = Scene(requests_per_hour=2)
    for tag in range(40):
        scene.registry.push("web", f"t{tag}", AMD)
    scene.wanted = {f"reg.example/web:t{tag}": set() for tag in range(40)}
    counts = []
    for _ in range(4):
        for _ in range(12):
            await scene.pass_time(0.1)
        counts.append(len(scene.learned))
        scene.now_s += 3600
    assert counts[0] == 8, "four hours' worth at once"
    assert counts == [8, 10, 12, 14]


async def test_a_pull_secret_is_read_only_if_it_may_be() -> None:
    scene = Scene(pull_secrets=("default/mine",))
    scene.registry.login = LOGIN
    scene.wanted = {WEB: {"default/mine", "other/theirs"}}
    await scene.pass_time()
    assert scene.read == ["default/mine"]
    assert WEB in scene.learned
    scene = Scene()
    scene.registry.login = LOGIN
    scene.wanted = {WEB: {"default/mine"}}
    await scene.pass_time()
    assert scene.read == []
    assert WEB not in scene.learned


async def test_each_login_that_matches_is_tried_until_one_is_accepted() -> None:
    wrong = Credentials("old", "password")
    scene = Scene(pull_secrets=("default/mine", "default/old"))
    scene.logins["default/mine"] = {"reg.example": (LOGIN,), "reg.example/other": (wrong,)}
    scene.logins["default/old"] = {"reg.example/web": (wrong,)}
    scene.registry.login = LOGIN
    scene.wanted = {WEB: {"default/mine", "default/old"}}
    await scene.pass_time()
    assert scene.registry.asked == ["GET web 1"] * 2 + [f"GET web {digest(AMD)}"]
    assert WEB in scene.learned


async def test_a_registry_that_is_away_is_not_asked_with_each_login() -> None:
    scene = Scene(pull_secrets=("default/mine",))
    scene.logins["default/mine"] = {"reg.example": (LOGIN, Credentials("old", "password"))}
    scene.registry.failing = AwayError("reg.example: no answer in time")
    scene.wanted = {WEB: {"default/mine"}}
    await scene.pass_time()
    assert scene.registry.asked == ["GET web 1"]


async def test_a_restart_asks_only_whether_tags_moved(tmp_path: Path) -> None:
    path = tmp_path / "images.jsonl"
    for expected in ({"GET web 1", f"GET web {digest(AMD)}"}, {"HEAD web 1"}):
        scene = Scene(path=path)
        running = asyncio.create_task(scene.lookup.run())
        for _ in range(9000):
            if len(scene.registry.asked) < len(expected):
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait((running,))
        assert set(scene.registry.asked) == expected
        assert WEB in scene.learned

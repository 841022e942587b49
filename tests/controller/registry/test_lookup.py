"""Which registry is asked what, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from pathlib import Path

import pytest
from leadline_controller.framework.model import Layer
from leadline_controller.registry import lookup
from leadline_controller.registry.lookup import ImageLookup, LookupSettings
from leadline_controller.registry.manifests import (
    AwayError,
    BrokenError,
    Index,
    Manifest,
    SilentError,
)
from leadline_controller.registry.registries import (
    Credentials,
    Endpoint,
    PullLogins,
    Registries,
    load_registries,
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
    (status,) = scene.lookup.statuses()
    assert (status.wanted, status.images, status.why) == (9, 0, "reg.example: refused")
    assert status.retry_s is not None
    assert status.retry_s < 1800 * 1.25
    scene.registry.failing = None
    await scene.pass_time(3000)
    scene.wanted = {WEB: set()}
    await scene.pass_time(10)
    assert WEB in scene.learned
    assert scene.lookup.statuses()[0].why == ""


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


async def until_known(scene: Scene, images: Set[str], most_s: int, step_s: float = 1.0) -> None:
    """Let so much time pass at most until these images are known."""
    for _ in range(int(most_s / step_s)):
        await scene.pass_time(step_s)
        if images <= scene.learned.keys():
            break
    assert images <= scene.learned.keys()
    for task in scene.lookup._tasks:
        task.cancel()


HONEST = {WEB, "other.example/web:1"}


@pytest.mark.parametrize(
    ("names", "most_s"),
    [
        ([f"evil.example/x:{number}" for number in range(5000)], 3),
        ([f"evil.example/x{number}:1" for number in range(5000)], 3),
        ([f"away-{number}.example/x:1" for number in range(256)], 70),
        ([f"reg.example/x:{number}" for number in range(400)], 3),
    ],
)
async def test_names_that_come_first_do_not_come_before_all_others(
    names: list[str], most_s: int
) -> None:
    """Within one namespace: each registry has its turn, and each repository."""
    scene = tarpits()
    scene.wanted = {name: {"default/"} for name in [*names, *HONEST]}
    await until_known(scene, HONEST, most_s)


@pytest.mark.parametrize("kind", ["away", "slow"])
async def test_the_names_of_one_namespace_keep_no_other_from_its_turn(kind: str) -> None:
    """Not even if some of its registries take for ever."""
    scene = tarpits()
    evil = [f"{kind}-{number}.example/x:1" for number in range(5000)]
    scene.wanted = {name: {"evil/", "evil/secret"} for name in evil}
    # That it names what others do does not make these its own.
    scene.wanted |= {WEB: {"evil/", "home/"}, "other.example/web:1": {"home/"}}
    await until_known(scene, HONEST, 3)


async def test_requests_that_count_are_shared_between_namespaces() -> None:
    scene = Scene()
    scene.wanted = {f"reg.example/none:{number}": {"evil/"} for number in range(400)}
    for _ in range(600):
        await scene.pass_time(30)
    scene.wanted[WEB] = {"home/"}
    await until_known(scene, {WEB}, 720, step_s=10)


async def test_what_is_wanted_beyond_what_can_be_kept_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "_MAX_IMAGES", 3)
    scene = tarpits()
    scene.wanted = {f"evil.example/x:{number}": {"evil/"} for number in range(9)}
    scene.wanted[WEB] = {"home/"}
    await until_known(scene, {WEB}, 2)
    evil, home = scene.lookup.statuses()
    assert home.why == ""
    assert "pods name more than 3 images (x:2 and 6 more)" in evil.why
    scene.wanted = {WEB: {"home/"}}
    await scene.pass_time(1)
    assert len(scene.lookup._images) <= 4


async def test_registries_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_AWAY_S", (0.0, 0.0))  # so each is due at each tick
    scene = tarpits()
    away = {f"away-{number}.example/web:1": set[str]() for number in range(8)}
    scene.wanted = {**away, WEB: set()}
    for _ in range(3):  # four at once
        await scene.pass_time(1)
    assert list(scene.learned) == [WEB]


class Hosts(MemoryRegistry):
    """Like tests.support's, but what a host or a repository fails with."""

    def __init__(self, **failing: Exception) -> None:
        super().__init__()
        self.failures = failing

    def _found(self, method: str, endpoint: Endpoint) -> bytes:
        for name in (endpoint.host.partition(".")[0], endpoint.repository):
            if name in self.failures:
                self.asked.append(f"{method} {name} {endpoint.reference}")
                raise self.failures[name]
        return super()._found(method, endpoint)


def with_mirror(folder: Path, **failing: Exception) -> tuple[Scene, Hosts]:
    """A mirror in front of reg.example."""
    scene, hosts = Scene(), Hosts(**failing)
    file = folder / "registries.yaml"
    file.write_text('mirrors: {reg.example: {endpoint: ["http://mirror.lan:5000"]}}')
    scene.lookup._registries = load_registries(file)
    scene.lookup._registry = scene.registry = hosts
    for name in "abcd":
        hosts.push(name, "1", AMD)
    return scene, hosts


async def test_what_is_missing_in_a_mirror_delays_nothing_else(tmp_path: Path) -> None:
    """The registry itself cannot be reached. That is said beside the mirror's answer, which is the
    reason; and it is asked again only after a while."""
    scene, hosts = with_mirror(tmp_path, reg=AwayError("reg.example: refused"))
    images = [f"reg.example/{name}:1" for name in ("gone", "a", "b", "lost", "c", "d")]
    scene.wanted = {image: set() for image in images}
    asked: list[str] = []
    for _ in range(20):
        await scene.pass_time(1)
        asked += hosts.asked
    assert sorted(scene.learned) == [f"reg.example/{name}:1" for name in "abcd"]
    assert asked.count("GET reg 1") == 1
    (status,) = scene.lookup.statuses()
    assert (status.images, status.wanted) == (4, 6)
    assert status.why == (
        "mirror.lan:5000: no such image; reg.example: refused (gone:1 and 1 more)"
    )
    assert status.retry_s is not None
    assert status.retry_s > 250
    hosts.failures.clear()
    hosts.push("gone", "1", AMD)
    await scene.pass_time(400)
    assert "reg.example/gone:1" in scene.learned


async def test_a_mirror_that_is_away_leaves_the_registry_itself(tmp_path: Path) -> None:
    scene, hosts = with_mirror(tmp_path, mirror=AwayError("mirror.lan:5000: no route"))
    scene.wanted = {f"reg.example/{name}:1": set() for name in ("a", "b", "none")}
    asked: list[str] = []
    for _ in range(5):
        await scene.pass_time(1)
        asked += hosts.asked
    assert len(scene.learned) == 2
    assert asked.count("GET mirror 1") == 1
    (status,) = scene.lookup.statuses()
    assert status.why == "reg.example: no such image; mirror.lan:5000: no route (none:1)"


async def test_a_server_that_is_silent_for_some_images_still_has_the_others() -> None:
    scene = Scene()
    hosts = Hosts(slow=SilentError("reg.example: no answer in time"))
    scene.lookup._registry = scene.registry = hosts
    hosts.push("web", "1", AMD)
    hosts.push("web", "2", AMD)
    await scene.pass_time()
    scene.wanted = {f"reg.example/slow:{number}": set[str]() for number in range(2)}
    await scene.pass_time(1)
    await scene.pass_time(1)
    scene.wanted["reg.example/web:2"] = set()
    assert await scene.pass_time(1) == {"GET web 2"}
    scene.wanted = {f"reg.example/slow:{number}": set() for number in range(2, 9)}
    asked: list[str] = []
    for _ in range(9):
        await scene.pass_time(1)
        asked += hosts.asked
    assert asked == [f"GET slow {number}" for number in (2, 3, 4)], "silent too often"


async def test_a_server_that_never_answered_is_away_at_once(tmp_path: Path) -> None:
    """Such as a registry behind a firewall: each image that its mirror lacks would wait for it."""
    scene, hosts = with_mirror(tmp_path, reg=SilentError("reg.example: no answer in time"))
    scene.wanted = {f"reg.example/{name}:1": set() for name in ("gone", "lost", "a")}
    asked: list[str] = []
    for _ in range(5):
        await scene.pass_time(1)
        asked += hosts.asked
    assert asked.count("GET reg 1") == 1
    assert list(scene.learned) == ["reg.example/a:1"]


def nested(*bodies: bytes) -> dict[str, bytes]:
    """By tag, these within each other: an index for amd64 of an index for amd64 and so on."""
    found: dict[str, bytes] = {}
    for body in bodies:
        found[str(len(found))] = body
    for _ in range(6):
        found[str(len(found))] = index({"amd64": found[str(len(found) - 1)]})
    return found


@pytest.mark.parametrize(("depth", "is_known"), [(0, True), (1, True), (4, True), (5, False)])
async def test_an_index_may_be_within_an_index(depth: int, is_known: bool) -> None:
    scene = Scene()
    for body in nested(AMD).values():
        scene.registry.push("web", "", body)
    scene.registry.push("web", "1", nested(AMD)[str(depth)])
    asked = await scene.pass_time()
    assert len(asked) == min(depth, 4) + 1
    (status,) = scene.lookup.statuses()
    if is_known:
        assert [len(each) for each in scene.learned[WEB][1].values()] == [2]
        assert status.why == ""
        return
    assert scene.learned == {}
    assert "more than 4 indexes within each other for amd64 (web:1)" in status.why
    assert await scene.pass_time(250) == set(), "it is not asked for again at once"


async def test_architectures_share_what_they_lead_to() -> None:
    scene = Scene()
    scene.architectures = {"amd64", "arm64"}
    inner = index({"amd64": AMD, "arm64": ARM})
    scene.registry.push("web", "", inner)
    scene.registry.push("web", "1", index({"amd64": inner, "arm64": inner}))
    assert len(await scene.pass_time()) == 4
    assert sorted(scene.learned[WEB][1]) == ["amd64", "arm64"]


async def test_a_mirror_may_have_one_architecture_only() -> None:
    scene = Scene()
    scene.architectures = {"amd64", "arm64"}
    other = manifest(b"not pushed")
    scene.registry.push("web", "1", index({"amd64": AMD, "arm64": other}))
    await scene.pass_time()
    assert list(scene.learned[WEB][1]) == ["amd64"]
    (status,) = scene.lookup.statuses()
    assert (status.images, status.why) == (1, "reg.example: no such image for arm64 (web:1)")
    assert await scene.pass_time(250) == set()
    scene.registry.push("web", "", other)
    await scene.pass_time(100)
    assert list(scene.learned[WEB][1]) == ["amd64", "arm64"]
    assert scene.lookup.statuses()[0].why == ""


async def test_an_image_that_no_board_can_run_has_a_reason() -> None:
    scene = Scene()
    scene.architectures = {"riscv64"}
    await scene.pass_time()
    (status,) = scene.lookup.statuses()
    assert (status.images, scene.learned) == (0, {})
    assert status.why == "reg.example: nothing for linux on riscv64 (web:1)"
    assert await scene.pass_time(1000) == set()


async def test_a_registry_that_refuses_head_is_not_asked_more_often() -> None:
    scene = Scene(requests_per_hour=1)

    class Refusing(MemoryRegistry):
        async def digest(self, endpoint: Endpoint) -> str | None:
            return None

    scene.lookup._registry = scene.registry = Refusing()
    scene.registry.push("web", "1", AMD)
    asked: list[str] = []
    for _ in range(48):
        await scene.pass_time(1800)
        asked += scene.registry.asked
    assert 4 < len(asked) < 4 + 24 + 2


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
    odd, status = scene.lookup.statuses()
    assert odd.why.startswith("not a name that can be asked for")
    assert (status.images, status.wanted) == (1, 2)
    assert status.why == "reg.example: no such image (none:1)"
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

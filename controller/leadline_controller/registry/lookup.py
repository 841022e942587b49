"""Keeps the layers of the cluster's images known: decides which registry is asked what, and when.

A digest is asked for once, because what it names never changes. A tag is checked every half hour,
with a request that Docker Hub does not count. Requests that it counts are limited, because the
boards pull through the same address. A registry that is away is left alone for a while, and costs
only knowledge.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple, Protocol

from leadline_controller.framework.model import Layer
from leadline_controller.logs import ErrorLog
from leadline_controller.registry.cache import ImageCache, KnownImage
from leadline_controller.registry.manifests import (
    AbsentError,
    AwayError,
    Index,
    Manifest,
    RegistryError,
)
from leadline_controller.registry.registries import (
    Credentials,
    Endpoint,
    PullLogins,
    Reference,
    Registries,
    reference_of,
)

log = logging.getLogger(__name__)

_RANDOM = SystemRandom()
_TICK_S = 1.0
_AT_ONCE = 4
_TAG_S = 1800.0
_WRITE_EVERY_S = 60.0
_AWAY_S = 30.0, 1800.0  # the first wait for a registry, and the longest
_REFUSED_S = 300.0, 6 * 3600.0  # the same for one image
_BURST_HOURS = 4
_MAX_IMAGES = 4096
_MAX_REGISTRIES = 256
Layers = tuple[Layer, ...]
Learn = Callable[[str, str, Mapping[str, Layers]], Set[str]]


class Registry(Protocol):
    """Reads manifests from endpoints. Both raise RegistryError."""

    async def digest(self, endpoint: Endpoint) -> str | None:
        """The digest of what the endpoint's reference is now; None if it does not say."""
        ...

    async def manifest(self, endpoint: Endpoint) -> Manifest | Index:
        """The manifest or index of the endpoint's reference."""
        ...


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """enabled: whether registries are asked at all. registries_file: k3s' registries.yaml, None
    without one. pull_secrets: namespace/name of those that may be read. requests_per_hour: of
    manifests from each registry; four times as many may come at once. path, cache_mb: the file of
    what is known."""

    enabled: bool = True
    registries_file: Path | None = None
    pull_secrets: tuple[str, ...] = ()
    requests_per_hour: int = 10
    path: Path | None = None
    cache_mb: float = 4.0


class RegistryReading(NamedTuple):
    """A registry as last seen. images: whose layers are known, of `wanted`. why: why it, or the
    last of its images, is not; empty if all is well. retry_s: when it is asked again."""

    name: str
    wanted: int
    images: int
    why: str
    retry_s: float | None


@dataclass(slots=True)
class _Host:
    """A registry. tokens: how many manifests may be asked for now."""

    tokens: float
    filled_s: float
    not_before_s: float = 0.0
    waits_s: float = 0.0
    why: str = ""
    logged: str = ""


@dataclass(slots=True)
class _Image:
    """An image that is wanted. due_s: when it is asked for next. why: of the last failure."""

    known: KnownImage | None = None
    due_s: float = 0.0
    waits_s: float = 0.0
    why: str = ""
    secrets: Set[str] = field(default_factory=frozenset)


class ImageLookup:
    """Asks for what `wanted` says and tells `learn`, which returns the images that it forgot.

    wanted: full name -> namespace/name of the pull secrets of the pods that name it. architectures:
    those of the nodes. logins: reads a secret's credentials. now_s: a monotonic clock.
    """

    def __init__(
        self,
        settings: LookupSettings,
        registries: Registries,
        registry: Registry,
        wanted: Callable[[], Mapping[str, Set[str]]],
        architectures: Callable[[], Set[str]],
        learn: Learn,
        logins: Callable[[str], Awaitable[PullLogins]],
        now_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._registries = registries
        self._registry = registry
        self._wanted = wanted
        self._architectures = architectures
        self._learn = learn
        self._logins = logins
        self._now_s = now_s
        self._cache = ImageCache(settings.path, int(settings.cache_mb * 2**20))
        self._images: dict[str, _Image] = {}
        self._hosts: dict[str, _Host] = {}
        self._busy: set[str] = set()  # the registries that are being asked
        self._turn = 0  # of which wanted image it is to be asked for first
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwritten: list[KnownImage] = []
        self._written_s = now_s()

    async def run(self) -> None:
        """Look up images until cancelled. An error must not end it."""
        for known in await asyncio.to_thread(lambda: list(self._cache.load())):
            self._images[known.image] = _Image(known)
            self._tell(known)
        errors = ErrorLog(log)
        try:
            while True:
                try:
                    self.tick()
                    await self._write()
                except Exception as error:  # noqa: BLE001  # strategies can do without layers
                    errors.failed(error, "looking up images failed, trying again: %s")
                await asyncio.sleep(_TICK_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._cache.append(self._unwritten)

    def tick(self) -> None:
        """Start what is due, at most four at once and one of each registry. The next tick goes on
        behind the last, so that registries that answer slowly can't keep the others waiting."""
        now_s, wanted = self._now_s(), self._wanted()
        for image, secrets in wanted.items():
            if len(self._images) < _MAX_IMAGES or image in self._images:
                self._images.setdefault(image, _Image()).secrets = secrets
        if len(self._images) >= _MAX_IMAGES:
            self._images = {name: each for name, each in self._images.items() if name in wanted}
        if len(self._hosts) >= _MAX_REGISTRIES:
            named = {each.registry for each in map(reference_of, wanted) if each is not None}
            self._hosts = {n: host for n, host in self._hosts.items() if n in named | self._busy}
        architectures, images = self._architectures(), list(wanted)
        self._turn %= max(len(images), 1)
        for at in (*range(self._turn, len(images)), *range(self._turn)):
            if len(self._busy) >= _AT_ONCE:
                return
            image = images[at]
            state, reference = self._images.get(image), reference_of(image)
            if state is None or reference is None or reference.registry in self._busy:
                continue
            if state.due_s > now_s or self._is_done(state, reference, architectures):
                continue
            host = self._host(reference.registry, now_s)
            is_new = state.known is None
            if host is None or host.not_before_s > now_s or (is_new and host.tokens < 1):
                continue
            host.tokens -= is_new
            self._busy.add(reference.registry)
            self._turn = at + 1
            task = asyncio.create_task(self._ask(image, state, reference, host))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def readings(self) -> list[RegistryReading]:
        """The registries of the wanted images, by name."""
        now_s = self._now_s()
        found: dict[str, list[_Image]] = {}
        for image in self._wanted():
            reference = reference_of(image)
            if reference is not None and image in self._images:
                found.setdefault(reference.registry, []).append(self._images[image])
        return [
            self._reading(name, self._hosts.get(name), images, now_s)
            for name, images in sorted(found.items())
        ]

    def _reading(
        self, name: str, host: _Host | None, images: list[_Image], now_s: float
    ) -> RegistryReading:
        waits = [image for image in images if image.known is None]
        why = host.why if host is not None else ""
        due_s = host.not_before_s if host is not None and host.why else 0.0
        if not why and waits:
            first = min(waits, key=lambda image: image.due_s)
            why, due_s = first.why, first.due_s
            if not why and host is not None and host.tokens < 1:
                why = "waits, so that it is not asked too often"
        return RegistryReading(
            name,
            len(images),
            len(images) - len(waits),
            why,
            max(due_s - now_s, 0.0) if due_s else None,
        )

    def _is_done(self, state: _Image, reference: Reference, architectures: Set[str]) -> bool:
        """Whether nothing about it can have changed."""
        known = state.known
        if known is None or not reference.reference.startswith("sha256:"):
            return False
        return "" in known.layers or architectures <= known.layers.keys()

    def _host(self, name: str, now_s: float) -> _Host | None:
        most = float(_BURST_HOURS * self._settings.requests_per_hour)
        if name not in self._hosts and len(self._hosts) >= _MAX_REGISTRIES:
            return None
        host = self._hosts.setdefault(name, _Host(most, now_s))
        gained = (now_s - host.filled_s) * self._settings.requests_per_hour / 3600
        host.tokens, host.filled_s = min(host.tokens + gained, most), now_s
        return host

    async def _ask(self, image: str, state: _Image, reference: Reference, host: _Host) -> None:
        try:
            logins = await self._logins_of(state.secrets)
            await self._look_up(image, state, reference, host, logins)
        except AwayError as error:
            shortest, longest = _AWAY_S
            host.waits_s = min(max(2 * host.waits_s, shortest), longest)
            wait_s = max(host.waits_s * _RANDOM.uniform(0.75, 1.25), error.after_s)
            host.not_before_s, host.why = self._now_s() + wait_s, str(error)
            if not host.logged:
                host.logged = host.why
                log.warning("%s; its images' layers are not known until it answers", host.why)
        except RegistryError as error:
            shortest, longest = _REFUSED_S
            state.waits_s = min(max(2 * state.waits_s, shortest), longest)
            state.due_s, state.why = self._now_s() + state.waits_s, str(error)
        except Exception as error:  # noqa: BLE001  # one image must not stop the others
            state.due_s, state.why = self._now_s() + _REFUSED_S[1], "its answer can't be read"
            log.error("looking up %s failed: %r", image, error)
        else:
            if host.logged:
                log.info("%s answers again", reference.registry)
            host.waits_s, host.why, host.logged = 0.0, "", ""
            state.waits_s, state.why = 0.0, ""
            state.due_s = self._now_s() + _TAG_S * _RANDOM.uniform(0.75, 1.25)
        finally:
            self._busy.discard(reference.registry)

    async def _logins_of(self, secrets: Set[str]) -> PullLogins:
        """The credentials of those pull secrets that may be read."""
        found: dict[str, tuple[Credentials, ...]] = {}
        for key in sorted(secrets & set(self._settings.pull_secrets)):
            for name, logins in (await self._logins(key)).items():
                found[name] = (*found.get(name, ()), *logins)
        return found

    async def _look_up(
        self,
        image: str,
        state: _Image,
        reference: Reference,
        host: _Host,
        logins: PullLogins,
    ) -> None:
        """Ask the endpoints one after the other. Raises the RegistryError of the last one, or
        AwayError if any was away."""
        failure: RegistryError = AbsentError(f"{reference.registry}: no endpoint")
        away = ""
        for endpoint in self._registries.endpoints(reference, logins):
            if endpoint.url == away:  # with other credentials
                continue
            try:
                known = await self._known(image, state, endpoint, host)
            except RegistryError as error:
                away = endpoint.url if isinstance(error, AwayError) else ""
                failure = failure if isinstance(failure, AwayError) else error
                continue
            if known is not state.known:
                state.known = known
                self._unwritten.append(known)
                self._tell(known)
            return
        raise failure

    def _tell(self, known: KnownImage) -> None:
        layers = {architecture: each for architecture, each in known.layers.items() if each}
        if layers:  # no board can run an image without
            for forgotten in self._learn(known.image, known.by_digest, layers):
                self._images.pop(forgotten, None)  # so it is asked for again where it is wanted

    async def _known(
        self, image: str, state: _Image, endpoint: Endpoint, host: _Host
    ) -> KnownImage:
        repository = image.partition("@")[0].rpartition("/")
        base = f"{repository[0]}/{repository[2].partition(':')[0]}"
        architectures = self._architectures() or {"amd64"}
        before = state.known
        if before is not None and ("" in before.layers or architectures <= before.layers.keys()):
            digest = await self._registry.digest(endpoint)
            if digest is not None and before.by_digest == f"{base}@{digest}":
                return before
        host.tokens -= before is not None
        answer = await self._registry.manifest(endpoint)
        by_digest = f"{base}@{answer.digest}"
        if not isinstance(answer, Index):
            return KnownImage(image, by_digest, {"": answer.layers})
        layers: dict[str, Layers] = {}
        if before is not None and before.by_digest == by_digest:
            layers.update(before.layers)
        for architecture in sorted(architectures - layers.keys()):
            digest = answer.manifests.get(architecture)
            if digest is None:
                layers[architecture] = ()  # no board of it can run the image
                continue
            host.tokens -= 1
            manifest = await self._registry.manifest(replace(endpoint, reference=digest))
            if isinstance(manifest, Index):
                raise AbsentError(f"{endpoint.host}: an index within an index")
            layers[architecture] = manifest.layers
        return KnownImage(image, by_digest, layers)

    async def _write(self) -> None:
        now_s = self._now_s()
        if not self._unwritten or now_s - self._written_s < _WRITE_EVERY_S:
            return
        images, self._unwritten, self._written_s = self._unwritten, [], now_s
        if await asyncio.to_thread(self._cache.append, images):
            wanted = self._wanted()
            kept = [
                each.known
                for name, each in self._images.items()
                if name in wanted and each.known is not None
            ]
            await asyncio.to_thread(self._cache.replace, kept)

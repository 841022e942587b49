"""Keeps the layers of the cluster's images known: decides which registry is asked what, and when.

A digest is asked for once, because what it names never changes. A tag is checked every half hour,
with a request that Docker Hub does not count. Requests that it counts are limited, because the
boards pull through the same address. A server that is away is left alone for a while, and costs
only knowledge.

Whoever may create pods chooses names of images, so turns are fair. See fairness.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple, Protocol

from leadline_controller.framework.model import Layer
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.settings import readable_file, setting
from leadline_controller.registry import fairness
from leadline_controller.registry.cache import ImageCache, KnownImage
from leadline_controller.registry.manifests import (
    AwayError,
    BrokenError,
    Index,
    Manifest,
    RegistryError,
    SilentError,
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
_AWAY_S = 30.0, 1800.0  # the first wait for a server, and the longest
_REFUSED_S = 300.0, 6 * 3600.0  # the same for one image
_BURST_HOURS = 4
_LONGEST_S = 60.0  # of one image, with all its redirects, logins and mirrors
_SILENT = 3  # times in a row, and a server counts as away
_MAX_DEPTH = 4  # of indexes within indexes
_MAX_IMAGES = 4096
_MAX_REASONS = 3
Layers = tuple[Layer, ...]
Learn = Callable[[str, str, Mapping[str, Layers]], Set[str]]


def _secret_name(text: str) -> str:
    if not re.fullmatch("[^/]+/[^/]+", text):
        raise ValueError(f"expected namespace/name, got text {text!r}")
    return text


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
    """How registries are asked."""

    enabled: bool = setting(True, "false: no registry is asked for [images' layers](#image-layers)")
    registries_file: Path | None = setting(
        None,
        "k3s' `registries.yaml`. The unit sets it by a variable, so with systemd it is always "
        "`/etc/leadline/registries.yaml`, [a link](#image-layers)",
        read=readable_file,
    )
    pull_secrets: tuple[str, ...] = setting(
        (),
        'pull secrets that may be read, such as `["default/regcred"]`; each needs a right of its '
        "own",
        read=_secret_name,
    )
    requests_per_hour: int = setting(
        10,
        "requests to each registry that it counts; four times as many may come at once",
        least=1,
        most=3600,
    )
    path: Path | None = None  # the file of what is known; None keeps it in memory only
    cache_mb: float = setting(
        4.0,
        "the most that `images.jsonl` in the state folder may have, MiB. 0: in memory only",
        most=1024,
    )


class RegistryStatus(NamedTuple):
    """A registry as last seen."""

    name: str
    wanted: int
    images: int  # whose layers are known, of `wanted`
    why: str  # why it, or the last of its images, is not; empty if all is well
    retry_s: float | None  # when it is asked again


@dataclass(slots=True)
class _Bucket:
    """Of a registry."""

    tokens: float  # how many manifests may be asked for now
    filled_s: float


@dataclass(slots=True)
class _Server:
    """A registry's or a mirror's host."""

    not_before_s: float = 0.0  # when it may be asked again, for whatever image
    waits_s: float = 0.0
    why: str = ""
    # How many requests in a row it did not answer; of one that never answered, one is enough to
    # count as away.
    silent: int = _SILENT - 1


@dataclass(slots=True)
class _Image:
    """An image that is wanted."""

    reference: Reference | None
    known: KnownImage | None = None
    due_s: float = 0.0  # when it is asked for next
    waits_s: float = 0.0
    why: str = ""  # of the last failure
    is_away: bool = False  # it failed because its servers are away
    turn: int = 0  # when it was last asked for, as a count of all turns
    named_by: Set[str] = frozenset()  # see ImageLookup
    paths: tuple[fairness.Path, ...] = ()  # from `named_by`, for fairness

    def is_named_by(self, image: str, named_by: Set[str]) -> None:
        """These pods name it now."""
        if not self.paths or self.named_by != named_by:
            self.named_by, self.paths = named_by, fairness.paths(image, named_by)

    def lacks(self, architectures: Set[str]) -> bool:
        """Whether there is something that is not known, or was not at the last time."""
        return self.known is None or not self.known.is_complete(architectures)


class ImageLookup:
    """Asks for what `wanted` says and tells `learn`, which returns the images that it forgot.

    wanted: full name -> who names it: for each pod namespace/ and, for each of its pull secrets,
    namespace/name. architectures: those of the nodes. logins: reads a secret's credentials.
    now_s: a monotonic clock.
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
        self._buckets: dict[str, _Bucket] = {}
        self._servers: dict[str, _Server] = {}
        self._busy: dict[str, str] = {}  # the registries that are being asked -> for whom
        self._turn = 0
        self._share: tuple[Set[str], list[str]] = frozenset(), []
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwritten: list[KnownImage] = []
        self._written_s = now_s()

    async def run(self) -> None:
        """Look up images until cancelled. An error must not end it."""
        for known in await asyncio.to_thread(lambda: list(self._cache.load())):
            self._images[known.image] = _Image(reference_of(known.image), known)
            self._tell(known)
        errors = ErrorLog(log)
        try:
            while True:
                # Strategies can do without layers.
                with errors.logged("looking up images failed, trying again: %s"):
                    self.tick()
                    await self._write()
                await asyncio.sleep(_TICK_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._cache.append(self._unwritten)

    def tick(self) -> None:
        """Start what is due: at most four at once, one of each registry, and fairly."""
        now_s, architectures = self._now_s(), self._needed()
        images = self._wanted_images()
        if len(self._busy) >= _AT_ONCE:
            return
        due = {
            image: state
            for image, state in images.items()
            if state.due_s <= now_s and self._may_ask(state, architectures, now_s)
        }
        if not due:
            return
        everything = ((state.paths, state.turn) for state in images.values())
        queue = fairness.Queue(everything, ((n, each.paths, each.turn) for n, each in due.items()))
        while len(self._busy) < _AT_ONCE and (first := queue.pop(self._busy)) is not None:
            image, namespace = first
            state = due[image]
            if state.reference is None:
                continue
            self._busy[state.reference.registry] = namespace
            self._turn += 1
            state.turn = self._turn
            task = asyncio.create_task(self._ask(image, state, state.reference))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _wanted_images(self) -> dict[str, _Image]:
        """What is wanted, or the fair share of it that can be kept."""
        wanted: Mapping[str, Set[str]] = self._wanted()
        names: Iterable[str] = wanted
        if len(wanted) > _MAX_IMAGES:
            if self._share[0] != wanted.keys():
                paths = ((image, fairness.paths(image, by)) for image, by in wanted.items())
                self._share = frozenset(wanted), fairness.share(paths, _MAX_IMAGES)
            names = self._share[1]
        found: dict[str, _Image] = {}
        for image in names:
            found[image] = self._images.get(image) or _Image(reference_of(image))
            found[image].is_named_by(image, wanted[image])
        self._images.update(found)
        if len(self._images) > _MAX_IMAGES:
            self._images = dict(found)
        if len(self._buckets) > _MAX_IMAGES:
            named = {each.reference.registry for each in found.values() if each.reference}
            self._buckets = {n: each for n, each in self._buckets.items() if n in named}
        if len(self._servers) > 2 * _MAX_IMAGES:
            now_s = self._now_s()
            self._servers = {n: e for n, e in self._servers.items() if e.not_before_s > now_s}
        return found

    def _needed(self) -> Set[str]:
        """The architectures of the nodes, or the usual one while none is known."""
        return self._architectures() or {"amd64"}

    def _may_ask(self, state: _Image, architectures: Set[str], now_s: float) -> bool:
        """Whether it may have changed, and its registry may be asked now."""
        reference = state.reference
        if reference is None or reference.registry in self._busy:
            return False
        if state.lacks(architectures):
            return self._bucket(reference.registry, now_s).tokens >= 1
        return not reference.reference.startswith("sha256:")

    def _bucket(self, registry: str, now_s: float) -> _Bucket:
        most = float(_BURST_HOURS * self._settings.requests_per_hour)
        bucket = self._buckets.setdefault(registry, _Bucket(most, now_s))
        gained = (now_s - bucket.filled_s) * self._settings.requests_per_hour / 3600
        bucket.tokens, bucket.filled_s = min(bucket.tokens + gained, most), now_s
        return bucket

    def statuses(self) -> list[RegistryStatus]:
        """The registries of the wanted images, by name."""
        found: dict[str, dict[str, _Image | None]] = {}
        for image in self._wanted():
            found.setdefault(image.partition("/")[0], {})[image] = self._images.get(image)
        return [self._status(name, images) for name, images in sorted(found.items())]

    def _status(self, name: str, images: Mapping[str, _Image | None]) -> RegistryStatus:
        now_s, architectures = self._now_s(), self._needed()
        reasons: dict[str, list[str]] = {}
        due_s: list[float] = []
        unknown = 0
        for image, state in images.items():
            known = None if state is None else state.known
            is_known = known is not None and known.is_of_use(architectures)
            unknown += not is_known
            if is_known and not (
                state and state.why and (state.is_away or state.lacks(architectures))
            ):
                continue
            reasons.setdefault(self._why(name, state), []).append(
                "" if state and state.is_away else image.removeprefix(f"{name}/")
            )
            if state and state.why:
                due_s.append(state.due_s)
        return RegistryStatus(
            name,
            len(images),
            len(images) - unknown,
            "; ".join(_told(reasons)),
            max(min(due_s) - now_s, 0.0) if due_s else None,
        )

    def _why(self, registry: str, state: _Image | None) -> str:
        """Why its layers are not known."""
        if state is None:
            return f"pods name more than {_MAX_IMAGES} images"
        if state.reference is None:
            return "not a name that can be asked for: expected REGISTRY/NAME:TAG or @sha256:DIGEST"
        if state.why:
            return state.why
        if state.known is not None:
            return f"{registry}: nothing for linux on {', '.join(sorted(state.known.layers))}"
        if self._bucket(registry, self._now_s()).tokens < 1:
            return "waits, so that it is not asked too often"
        return "not asked yet"

    async def _ask(self, image: str, state: _Image, reference: Reference) -> None:
        failures: list[RegistryError] = []
        servers: list[_Server] = []
        try:
            async with asyncio.timeout(_LONGEST_S):
                logins = await self._logins_of(state.named_by)
                away = ""
                for endpoint in self._registries.endpoints(reference, logins):
                    if endpoint.url == away:  # with other credentials
                        continue
                    servers.append(self._servers.setdefault(endpoint.host, _Server()))
                    failure = await self._ask_one(image, state, endpoint, servers[-1])
                    if failure is None:
                        failures = []
                        break
                    failures.append(failure)
                    away = endpoint.url if isinstance(failure, AwayError) else ""
        except TimeoutError:
            failures.append(SilentError(f"{reference.registry}: no answer in {_LONGEST_S:.0f} s"))
        except Exception as error:  # noqa: BLE001  # one image must not stop the others
            failures.append(BrokenError("its answer can't be read"))
            log.error("looking up %s failed: %r", image, error)
        finally:
            self._busy.pop(reference.registry, None)
        self._settle(state, failures, servers)

    def _settle(self, state: _Image, failures: list[RegistryError], servers: list[_Server]) -> None:
        """When the image is asked for again, and why, after its endpoints failed; [] if one told.
        What is so for this image is told first: that a mirror does not have it says more than that
        the registry behind it cannot be reached."""
        now_s = self._now_s()
        failures.sort(key=lambda each: isinstance(each, AwayError))
        state.why = "; ".join(dict.fromkeys(map(str, failures)))
        away = [each.not_before_s > now_s for each in servers]
        state.is_away = bool(failures) and bool(away) and all(away)
        if not failures:
            state.waits_s, state.due_s = 0.0, now_s + _TAG_S * _RANDOM.uniform(0.75, 1.25)
        elif state.is_away:
            state.due_s = min(each.not_before_s for each in servers)
        else:
            shortest, longest = _REFUSED_S
            state.waits_s = min(max(2 * state.waits_s, shortest), longest)
            state.due_s = now_s + state.waits_s

    async def _ask_one(
        self, image: str, state: _Image, endpoint: Endpoint, server: _Server
    ) -> RegistryError | None:
        """Ask one endpoint and keep what it tells. Why that is not all, else None."""
        if server.not_before_s > self._now_s():
            return AwayError(server.why)
        try:
            known, failure = await self._known(image, state, endpoint)
        except RegistryError as error:
            known, failure = None, error
        self._note(endpoint.host, server, failure)
        if known is not None and known != state.known and known.layers:
            state.known = known
            self._unwritten.append(known)
            self._tell(known)
        return failure

    def _note(self, host: str, server: _Server, failure: RegistryError | None) -> None:
        """Leave a server alone for a while that cannot be reached, for all its images."""
        if isinstance(failure, SilentError):
            server.silent += 1
        if not isinstance(failure, AwayError):
            if server.why:
                log.info("%s answers again", host)
            server.waits_s, server.why, server.silent = 0.0, "", 0
        elif not isinstance(failure, SilentError) or server.silent >= _SILENT:
            shortest, longest = _AWAY_S
            server.waits_s = min(max(2 * server.waits_s, shortest), longest)
            wait_s = max(server.waits_s * _RANDOM.uniform(0.75, 1.25), failure.after_s)
            server.not_before_s = self._now_s() + wait_s
            if not server.why:
                log.warning("%s; its images' layers are not known until it answers", failure)
            server.why = str(failure)

    async def _logins_of(self, named_by: Set[str]) -> PullLogins:
        """The credentials of those pull secrets that may be read."""
        found: dict[str, tuple[Credentials, ...]] = {}
        for key in sorted(named_by & set(self._settings.pull_secrets)):
            for name, logins in (await self._logins(key)).items():
                found[name] = (*found.get(name, ()), *logins)
        return found

    def _tell(self, known: KnownImage) -> None:
        layers = {architecture: each for architecture, each in known.layers.items() if each}
        if layers:  # no board can run an image without
            for forgotten in self._learn(known.image, known.by_digest, layers):
                self._images.pop(forgotten, None)  # so it is asked for again where it is wanted

    async def _known(
        self, image: str, state: _Image, endpoint: Endpoint
    ) -> tuple[KnownImage, RegistryError | None]:
        """What the endpoint tells, and why that is not all, if it is not."""
        repository = image.partition("@")[0].rpartition("/")
        base = f"{repository[0]}/{repository[2].partition(':')[0]}"
        architectures = self._needed()
        bucket = self._bucket(image.partition("/")[0], self._now_s())
        before = state.known
        if before is not None and before.is_complete(architectures):
            digest = await self._registry.digest(endpoint)
            if before.by_digest == f"{base}@{digest}" or bucket.tokens < 1:
                return before, None
        answer = await self._manifest(endpoint, bucket)
        by_digest = f"{base}@{answer.digest}"
        if not isinstance(answer, Index):
            return KnownImage(image, by_digest, {"": answer.layers}), None
        layers: dict[str, Layers] = {}
        if before is not None and before.by_digest == by_digest:
            layers.update(before.layers)
        fetched: dict[str, Manifest | Index] = {}
        failure: RegistryError | None = None
        for architecture in sorted(architectures - layers.keys()):
            try:
                layers[architecture] = await self._layers(
                    answer, architecture, endpoint, bucket, fetched
                )
            except AwayError as error:
                failure = error
                break
            except RegistryError as error:  # a mirror may have one architecture only
                failure = BrokenError(f"{error} for {architecture}")
        return KnownImage(image, by_digest, layers), failure

    async def _layers(
        self,
        index: Index,
        architecture: str,
        endpoint: Endpoint,
        bucket: _Bucket,
        fetched: dict[str, Manifest | Index],
    ) -> Layers:
        """The layers for an architecture; none if no board of it can run the image. fetched: by
        digest, for all architectures."""
        for _ in range(_MAX_DEPTH):
            digest = index.of(architecture)
            if digest is None:
                return ()
            if digest not in fetched:
                at = replace(endpoint, reference=digest)
                fetched[digest] = await self._manifest(at, bucket)
            found = fetched[digest]
            if isinstance(found, Manifest):
                return found.layers
            index = found
        raise BrokenError(f"{endpoint.host}: more than {_MAX_DEPTH} indexes within each other")

    async def _manifest(self, endpoint: Endpoint, bucket: _Bucket) -> Manifest | Index:
        bucket.tokens -= 1
        return await self._registry.manifest(endpoint)

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


def _told(reasons: Mapping[str, list[str]]) -> Iterator[str]:
    """Each reason with an image that it is of. "": of every image of the server."""
    for why, (image, *others) in list(reasons.items())[:_MAX_REASONS]:
        more = f" and {len(others)} more" if others else ""
        yield f"{why} ({image}{more})" if image else why
    if len(reasons) > _MAX_REASONS:
        yield f"{len(reasons) - _MAX_REASONS} other reasons"

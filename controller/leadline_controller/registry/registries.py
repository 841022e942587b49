"""Where an image's manifest is, and how to log in: k3s' registries.yaml, and pull secrets.

docs.k3s.io/installation/private-registry. What is read: mirrors with endpoints and rewrites,
configs with auth and tls. As in k3s, the registry itself is asked after its mirrors.
"""

import base64
import binascii
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from leadline_controller.parsing.fields import FieldError, Fields

DOCKER = "docker.io"
_DOCKER_HOST = "registry-1.docker.io"
_DOCKER_LOGINS = ("index.docker.io", _DOCKER_HOST, "registry.docker.io")
_MAX_FILE_BYTES = 2**20
_MAX_RULES = 256
_MAX_REPOSITORY = 255  # distribution-spec
_HOST = re.compile(r"[A-Za-z0-9.\-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]{1,128}){0,16}/?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64}")


class Reference(NamedTuple):
    """Where an image is. reference: a tag or a digest."""

    registry: str
    repository: str
    reference: str


def reference_of(image: str) -> Reference | None:
    """Of an image's full name; None if it is no valid one."""
    path, _, digest = image.partition("@")
    registry, _, rest = path.partition("/")
    repository, _, tag = rest.partition(":")
    valid = _HOST.fullmatch(registry) and _REPOSITORY.fullmatch(repository)
    if not valid or len(repository) > _MAX_REPOSITORY or not _TAG.fullmatch(digest or tag):
        return None
    return Reference(registry, repository, digest or tag)


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """User and password. They have no repr, so that no log and no error shows them."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to ask for an image. url: without /v2, or with a path that takes its place.
    is_named: registries.yaml names it. tls: None for the system's authorities. may_login: its TLS
    is verified, so it may see credentials. problem: why it cannot be asked, "" if it can."""

    url: str
    repository: str
    reference: str
    is_named: bool = False
    tls: ssl.SSLContext | None = None
    may_login: bool = True
    credentials: Credentials | None = None
    problem: str = ""

    @property
    def host(self) -> str:
        """The host, with a port if there is one."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class _Mirror:
    urls: tuple[str, ...]
    rewrites: tuple[tuple[re.Pattern[str], str], ...] = ()

    def rewritten(self, repository: str) -> str:
        for pattern, by in self.rewrites:
            if pattern.search(repository):
                return pattern.sub(by, repository)
        return repository


@dataclass(frozen=True, slots=True)
class _Config:
    tls: ssl.SSLContext | None = None
    is_verified: bool = True
    credentials: Credentials | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Registries:
    """The rules of a registries.yaml; none if there is no such file."""

    mirrors: Mapping[str, _Mirror] = field(default_factory=dict)
    configs: Mapping[str, _Config] = field(default_factory=dict)

    def endpoints(
        self, image: Reference, logins: Mapping[str, Credentials] | None = None
    ) -> Iterator[Endpoint]:
        """Where to ask for the image, in this order. logins: registry -> credentials of the pod's
        pull secrets; they are for the registry itself, and not for its mirrors."""
        registry, repository, reference = image
        mirror = self.mirrors.get(registry, self.mirrors.get("*"))
        for url in mirror.urls if mirror else ():
            config = self.configs.get(urlsplit(url).netloc, _Config())
            yield Endpoint(
                url=url,
                repository=mirror.rewritten(repository) if mirror else repository,
                reference=reference,
                is_named=True,
                tls=config.tls,
                may_login=config.is_verified and url.startswith("https:"),
                credentials=config.credentials,
                problem=config.problem,
            )
        host = _DOCKER_HOST if registry == DOCKER else registry
        if mirror and any(urlsplit(url).netloc in (host, registry) for url in mirror.urls):
            return
        config = self.configs.get(registry, self.configs.get(host, _Config()))
        yield Endpoint(
            url=f"https://{host}",
            repository=repository,
            reference=reference,
            is_named=registry in self.mirrors or registry in self.configs,
            tls=config.tls,
            may_login=config.is_verified,
            credentials=(logins or {}).get(registry, config.credentials),
            problem=config.problem,
        )

    def host(self, host: str) -> Endpoint:
        """A host that is asked for something else than a manifest, such as a token."""
        config = self.configs.get(host, _Config())
        return Endpoint(
            f"https://{host}",
            "",
            "",
            is_named=host in self.configs,
            tls=config.tls,
            may_login=config.is_verified,
            problem=config.problem,
        )


def load_registries(path: Path) -> Registries:
    """Read a registries.yaml. Raises FieldError, without any of its values."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise FieldError(f"{path}: expected at most {_MAX_FILE_BYTES} bytes")
        read = yaml.safe_load(text)
        root = Fields({} if read is None else read, str(path))
    except OSError as error:
        raise FieldError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise FieldError(f"{path}: expected YAML") from None
    mirrors = {}
    for name in list(root.object("mirrors").data)[:_MAX_RULES]:
        mirrors[name] = _mirror(root.object("mirrors").object(name))
    configs = {}
    for name in list(root.object("configs").data)[:_MAX_RULES]:
        configs[_host_of(name)] = _config(root.object("configs").object(name))
    return Registries(mirrors, configs)


def _mirror(mirror: Fields) -> _Mirror:
    urls = []
    for url in mirror.texts("endpoint"):
        url = url if "://" in url else f"https://{url}"
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc)
        if not is_url or not _PATH.fullmatch(parts.path) or parts.query or parts.fragment:
            raise FieldError(f"{mirror.at('endpoint')}: expected https://HOST or http://HOST")
        urls.append(url.rstrip("/"))
    rewrites = []
    for pattern, by in mirror.text_map("rewrite").items():
        try:
            # Go writes groups as $1.
            rewrites.append((re.compile(pattern), re.sub(r"\$\{?(\d)\}?", r"\\\1", by)))
        except re.error:
            raise FieldError(f"{mirror.at('rewrite')}: expected regular expressions") from None
    return _Mirror(tuple(urls), tuple(rewrites))


def _config(config: Fields) -> _Config:
    tls, auth = config.object("tls"), config.object("auth")
    context, problem = None, ""
    verified = not tls.flag("insecure_skip_verify", default=False)
    if not verified:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif tls.has("ca_file") or tls.has("cert_file"):
        try:
            context = ssl.create_default_context(cafile=tls.text("ca_file", "") or None)
            if tls.has("cert_file"):
                context.load_cert_chain(tls.text("cert_file"), tls.text("key_file", "") or None)
        except OSError as error:
            # The controller may read fewer files than k3s, and one registry must not stop it.
            problem = f"can't read ca_file, cert_file or key_file: {error.strerror or 'not PEM'}"
    user, password = auth.text("username", ""), auth.text("password", "")
    if auth.has("auth"):
        user, password = _decoded(auth.text("auth")) or ("", "")
    return _Config(context, verified, Credentials(user, password) if user else None, problem)


def read_pull_secret(secret: Mapping[str, Any]) -> dict[str, Credentials]:
    """Registry -> credentials, of a secret of the type kubernetes.io/dockerconfigjson. What cannot
    be read is left out, because its values must not be shown."""
    data = secret.get("data")
    encoded = data.get(".dockerconfigjson") if isinstance(data, Mapping) else None
    found: dict[str, Credentials] = {}
    try:
        config = json.loads(base64.b64decode(encoded or "", validate=True))
        auths = config.get("auths", {})
        for name, auth in list(auths.items())[:_MAX_RULES]:
            user, password = auth.get("username"), auth.get("password")
            if isinstance(auth.get("auth"), str):
                user, password = _decoded(auth["auth"]) or (user, password)
            if isinstance(user, str) and isinstance(password, str) and user:
                found[_host_of(name)] = Credentials(user, password)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return found
    return found


def _decoded(auth: str) -> tuple[str, str] | None:
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if colon else None


def _host_of(name: str) -> str:
    """The registry of a key such as https://index.docker.io/v1/."""
    host = urlsplit(name if "://" in name else f"https://{name}").netloc
    return DOCKER if host in _DOCKER_LOGINS else host

"""Where an image's manifest is, and how to log in: k3s' registries.yaml, and pull secrets.

docs.k3s.io/installation/private-registry; what k3s' containerd makes of the file counts. What is
read: mirrors with endpoints and rewrites, configs with auth and tls, "*" in both. As in k3s, the
registry itself is asked after its mirrors. Pull secrets are chosen as kubelet's DockerKeyring does.
"""

import base64
import binascii
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from leadline_controller.parsing.addresses import is_loopback
from leadline_controller.parsing.documents import parse_texts, read_text
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.typed import decode
from leadline_controller.registry.rewrites import Rewrite, RewriteError, read_rewrite
from leadline_controller.tls import tls_context

DOCKER = "docker.io"
_ANY = "*"
_DOCKER_HOST = "registry-1.docker.io"
_DOCKER_LOGIN = "index.docker.io"
_DOCKER_HOSTS = (_DOCKER_LOGIN, _DOCKER_HOST, "registry.docker.io")
_MAX_FILE_BYTES = 2**20
_MAX_LOGINS = 256  # of one secret
_MAX_TRIED = 16  # of them for one image: a registry may lock out who tries more
_MAX_KEY = 512
_MAX_NAMED = 20
_AUTH = ("username", "password", "auth", "identity_token")
_TLS = ("ca_file", "cert_file", "key_file", "insecure_skip_verify")
_MAX_REPOSITORY = 255  # distribution-spec
_HOST = re.compile(
    r"[A-Za-z0-9.\-][A-Za-z0-9._\-]{0,252}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]{1,128}){0,16}/?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64}")


class Reference(NamedTuple):
    """Where an image is."""

    registry: str
    repository: str
    reference: str  # a tag or a digest


def reference_of(image: str) -> Reference | None:
    """Of an image's full name; None if it is no valid one."""
    path, _, digest = image.partition("@")
    registry, _, rest = path.partition("/")
    repository, _, tag = rest.partition(":")
    valid = _HOST.fullmatch(registry) and _is_repository(repository)
    if not valid or not _TAG.fullmatch(digest or tag):
        return None
    return Reference(registry, repository, digest or tag)


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """User and password; without a user, an identity token. They have no repr, so that no log and
    no error shows them."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to ask for an image."""

    url: str  # without /v2, or with a path that takes its place
    repository: str  # as rewritten; `path` is what a URL and a token's scope have of it
    reference: str
    is_named: bool = False  # registries.yaml names it
    tls: ssl.SSLContext | None = None  # None for the system's authorities
    may_login: bool = True  # its TLS is verified, so it may see credentials
    credentials: Credentials | None = None
    problem: str = ""  # why it cannot be asked, "" if it can
    mirror_of: str = ""  # the registry that it is a mirror of, which containerd tells it as `ns`

    @property
    def host(self) -> str:
        """The host, with a port if there is one."""
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """The repository without needless slashes, which a rewrite may leave."""
        return "/".join(part for part in self.repository.split("/") if part)


@dataclass(frozen=True, slots=True)
class _Mirror:
    urls: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()

    def rewritten(self, repository: str) -> str:
        """The first rewrite that changes it counts; k3s takes them in any order."""
        changed = (each.replace(repository) for each in self.rewrites)
        return next((each for each in changed if each != repository), repository)


@dataclass(frozen=True, slots=True)
class _Config:
    tls: ssl.SSLContext | None = None
    is_verified: bool = True
    credentials: Credentials | None = None
    problem: str = ""


# Credentials by the registry, path or pattern that they are for: see read_pull_secret.
PullLogins = Mapping[str, tuple[Credentials, ...]]


@dataclass(frozen=True, slots=True)
class Registries:
    """The rules of a registries.yaml; none if there is no such file."""

    mirrors: Mapping[str, _Mirror] = field(default_factory=dict)
    configs: Mapping[str, _Config] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # one line for each part of the file that is left out

    def endpoints(self, image: Reference, logins: PullLogins | None = None) -> Iterator[Endpoint]:
        """Where to ask for the image, in this order. logins: those of the pod's pull secrets; they
        are for the registry itself, and not for its mirrors. It is asked with each that is meant
        for the image, one after the other."""
        registry, repository, reference = image
        mirror = self._mirror(registry)
        is_named = registry in self.mirrors or _config_name(registry) in self.configs
        config = self._config(registry, is_named=is_named)
        # Plain HTTP on this machine, but not where the file configures TLS, as in containerd.
        may_be_plain = is_named and config.tls is None and not config.problem
        itself = (_endpoint_url(registry) if may_be_plain else None) or f"https://{_host(registry)}"
        own = [url for url in mirror.urls if _is_root(url, _host(registry))]
        for url in mirror.urls if own else (*mirror.urls, itself):
            is_mirror = url in mirror.urls
            config = self._config(urlsplit(url).netloc, is_named=is_mirror or is_named)
            found = _logins_for(logins or {}, image) if url in own or not is_mirror else ()
            for credentials in found or (config.credentials,):
                endpoint = Endpoint(
                    url=url,
                    repository=mirror.rewritten(repository) if is_mirror else repository,
                    reference=reference,
                    is_named=is_mirror or is_named,
                    tls=config.tls,
                    may_login=config.is_verified and url.startswith("https:"),
                    credentials=credentials,
                    problem=config.problem,
                    mirror_of="" if url in own or not is_mirror else registry,
                )
                if not _is_repository(endpoint.path):
                    why = f"its rewrite makes {endpoint.repository[:60]!r} of {repository}"
                    endpoint = replace(endpoint, problem=f"{why}, which is no repository")
                yield endpoint

    def host(self, host: str, by: Endpoint | None = None) -> Endpoint:
        """A host that is asked for something else than a manifest, such as a token. by: the
        endpoint that names it; its TLS counts for a host without an own entry, as in containerd."""
        config = self._config(host, is_named=False)
        if by is not None and _config_name(host) not in self.configs:
            config = _Config(by.tls, by.tls is None or by.tls.verify_mode == ssl.CERT_REQUIRED)
        return Endpoint(
            f"https://{host}",
            "",
            "",
            is_named=_config_name(host) in self.configs,
            tls=config.tls,
            may_login=config.is_verified,
            credentials=config.credentials,
            problem=config.problem,
        )

    def _mirror(self, registry: str) -> _Mirror:
        """As k3s' containerd: the mirrors of all are not for a registry of which the file says
        anything that counts."""
        own = self.mirrors.get(registry, _Mirror())
        if own.urls or self.configs.get(_config_name(registry), _Config()) != _Config():
            return own
        return self.mirrors.get(_ANY, own)

    def _config(self, host: str, is_named: bool) -> _Config:
        """is_named: whether the file names the host. Any pod can name another, so this gets no
        credentials that are for all."""
        name = _config_name(host)
        if name in self.configs:
            return self.configs[name]
        config = self.configs.get(_ANY, _Config())
        return config if is_named else replace(config, credentials=None)


def _logins_for(logins: PullLogins, image: Reference) -> tuple[Credentials, ...]:
    """Those that kubelet tries for this image, the most specific first."""
    keys = (key for key in sorted(logins, reverse=True) if _is_for(key, image))
    found = [each for key in keys for each in logins[key]]
    if not found and image.registry == DOCKER:
        found = [*logins.get(_DOCKER_LOGIN, ())]
    return tuple(dict.fromkeys(found))[:_MAX_TRIED]


def _is_for(key: str, image: Reference) -> bool:
    """Whether a key of pull secrets matches: a * stands for no dot, a path for what begins so."""
    host, slash, path = key.partition("/")
    (name, port), (other, its_port) = _host_and_port(host), _host_and_port(image.registry)
    labels, its_labels = name.split("."), other.split(".")
    if port != its_port or len(labels) != len(its_labels):
        return False
    if not f"/{image.repository}".startswith(slash + path):
        return False
    # A bracket is an IPv6 address's here, and no set of characters.
    return all(
        one == label or ("[" not in label and fnmatchcase(one, label))
        for label, one in zip(labels, its_labels, strict=True)
    )


def _host_and_port(netloc: str) -> tuple[str, str]:
    host, colon, port = netloc.rpartition(":")
    return (host, port) if colon and not port.endswith("]") else (netloc, "")


def _host(registry: str) -> str:
    """The host that answers for a registry."""
    return _DOCKER_HOST if registry == DOCKER else registry


def _config_name(host: str) -> str:
    """The registry of a host: configs may name it so or so."""
    return DOCKER if host in _DOCKER_HOSTS else host


def _is_root(url: str, host: str) -> bool:
    return url in (f"https://{host}", f"http://{host}")


def _is_repository(name: str) -> bool:
    return len(name) <= _MAX_REPOSITORY and _REPOSITORY.fullmatch(name) is not None


def _endpoint_url(endpoint: str) -> str | None:
    """The URL of an endpoint, without /v2 at its end; None if it is not valid. Without a scheme it
    is https, but for another port than 443 of this machine."""
    scheme, separator, rest = endpoint.rpartition("://")
    host, _, path = rest.partition("/")
    name, port = _host_and_port(host)
    if not separator:
        is_plain = is_loopback(name.strip("[]")) and port not in ("", "443")
        scheme = "http" if is_plain else "https"
    path = "/".join(part for part in path.split("/") if part)
    if scheme.lower() not in ("http", "https") or not _HOST.fullmatch(host):
        return None
    if not _PATH.fullmatch(f"/{path}"):
        return None
    root = f"{scheme.lower()}://{_host(host)}"
    return root if path in ("", "v2") else f"{root}/{path}"


def load_registries(path: Path) -> Registries:
    """Read a registries.yaml. Raises FieldError, without any of its values, when it is not YAML or
    not of this form. What else is wrong costs itself alone, and is told in `warnings`."""
    try:
        read = parse_texts(read_text(path, _MAX_FILE_BYTES))
        return _read(Fields({} if read is None else read, ""), str(path))
    except FieldError as error:
        raise FieldError(f"{path}: {str(error).partition(', got ')[0]}") from None


def _read(root: Fields, path: str) -> Registries:
    warnings: list[str] = []
    left_out = _others(root, "mirrors", "configs")
    mirrors, configs = {}, {}
    given = root.object("mirrors")
    for name in given.data:
        if name != _ANY and not _HOST.fullmatch(name):
            left_out.append(given.at(name))
            continue
        mirrors[name] = _mirror(given.object(name), warnings)
        left_out += _others(given.object(name), "endpoint", "rewrite")
    given = root.object("configs")
    for name in given.data:
        host = name if name == _ANY else _config_name(_key(name).partition("/")[0])
        if host != _ANY and not _HOST.fullmatch(host):
            left_out.append(given.at(name))
            continue
        configs[host] = _config_of(given.object(name), warnings)
        left_out += _others(given.object(name), "auth", "tls")
        left_out += _others(given.object(name).object("auth"), *_AUTH)
        left_out += _others(given.object(name).object("tls"), *_TLS)
    if _ANY in configs and configs[_ANY].credentials is not None:
        warnings.append("configs.*.auth: sent only to mirrors and registries that this file names")
    if left_out:
        shown = [each[:80] if each.isprintable() else repr(each[:80]) for each in left_out]
        more = f" and {len(shown) - _MAX_NAMED} more" if len(shown) > _MAX_NAMED else ""
        warnings.append(f"not supported and left out: {', '.join(shown[:_MAX_NAMED])}{more}")
    return Registries(mirrors, configs, tuple(f"{path}: {each}" for each in warnings))


def _others(fields: Fields, *known: str) -> list[str]:
    """The paths of its other fields."""
    return [fields.at(name) for name in fields.data if name not in known]


def _mirror(mirror: Fields, warnings: list[str]) -> _Mirror:
    urls: dict[str, None] = {}
    for i, endpoint in enumerate(mirror.texts("endpoint")):
        url = _endpoint_url(endpoint)
        if url is None:  # it may have a password in it
            where = mirror.at(f"endpoint[{i}]")
            warnings.append(f"{where}: expected https://HOST or http://HOST; it is left out")
        else:
            urls[url] = None
    rewrites = []
    given = mirror.object("rewrite")
    for pattern in given.data:
        try:
            rewrites.append(read_rewrite(pattern, given.text(pattern, "")))
        except RewriteError as error:
            where = f"{mirror.at('rewrite')}: {pattern[:80]!r}"
            warnings.append(f"{where} is no regular expression of Go: {error}; it is left out")
    return _Mirror(tuple(urls), tuple(rewrites))


def _config_of(config: Fields, warnings: list[str]) -> _Config:
    tls, auth = config.object("tls"), config.object("auth")
    context, problem = None, ""
    verified = not _flag(tls, "insecure_skip_verify")
    files = [tls.text(name, "") or None for name in ("ca_file", "cert_file", "key_file")]
    if not verified or any(files):
        try:
            context = _context(*files)
        except ValueError:
            problem = f"{tls.at('cert_file')} and key_file: expected both or none"
        except OSError as error:
            # The controller may read fewer files than k3s, and one registry must not stop it.
            problem = f"can't read ca_file, cert_file or key_file: {error.strerror or 'not PEM'}"
    if context is not None and not verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    user, password = auth.text("username", ""), auth.text("password", "")
    if not user:  # containerd's order
        decoded = _decoded(auth.text("auth", "")) or ("", "")
        user, password = (
            ("", auth.text("identity_token", "")) if auth.has("identity_token") else decoded
        )
    if not password and not user and any(auth.has(name) for name in _AUTH):
        where = config.at("auth")
        warnings.append(f"{where}: expected username and password, or auth; it is left out")
    login = Credentials(user, password) if user or password else None
    return _Config(context, verified, login, problem)


def _context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    """A context that trusts the system's authorities and this one. Raises OSError, and ValueError
    for a certificate without a key."""
    if (cert is None) != (key is None):
        raise ValueError
    context = tls_context()
    if ca is not None:
        context.load_verify_locations(ca)
    if cert is not None:
        context.load_cert_chain(cert, key, password="")  # it would ask for one on the terminal
    return context


def _flag(fields: Fields, name: str) -> bool:
    """A boolean as YAML 1.1 has it: every scalar here is a text."""
    value = fields.text(name, "false").lower()
    if value not in ("true", "yes", "on", "y", "false", "no", "off", "n"):
        raise fields.error(name, "true or false")
    return value in ("true", "yes", "on", "y")


class _Auth(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str | None = None


class _Auths(msgspec.Struct):
    auths: dict[str, msgspec.Raw] = {}


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


def read_pull_secret(secret: object) -> dict[str, tuple[Credentials, ...]]:
    """The credentials in a secret of the type kubernetes.io/dockerconfigjson or dockercfg, by what
    they are for: a host, where * may stand in a label, perhaps with a port and the begin of a path.
    What cannot be read is left out, because its values must not be shown."""
    found: dict[str, tuple[Credentials, ...]] = {}
    try:
        data = decode(secret, _Secret, "").data
        names = ".dockerconfigjson", ".dockercfg"
        now, before = (base64.b64decode(data.get(name, ""), validate=True) for name in names)
        auths = decode(now, _Auths, "").auths if now else decode(before, dict[str, msgspec.Raw], "")
    except ValueError:
        return found
    for name, entry in list(auths.items())[:_MAX_LOGINS]:
        credentials = _credentials(entry)
        key = _key(name) if len(name) <= _MAX_KEY else ""
        if credentials is not None and key:
            found[key] = (*found.get(key, ()), credentials)
    return found


def _credentials(entry: msgspec.Raw) -> Credentials | None:
    try:
        read = decode(entry, _Auth, "")
    except FieldError:
        return None
    login = read.username, read.password
    user, password = (_decoded(read.auth) or login) if read.auth is not None else login
    return Credentials(user, password) if user else None


def _key(name: str) -> str:
    """The host and path of a key such as https://index.docker.io/v1/, as kubelet reads it."""
    text = name if name.startswith(("https://", "http://")) else f"https://{name}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    path = unquote(parts.path)
    path = path[3:] if path.startswith(("/v1/", "/v2/")) else path
    return parts.netloc.rpartition("@")[2] + (path if path != "/" else "")


def _decoded(auth: str) -> tuple[str, str] | None:
    """User and password of base64, which may lack its padding."""
    text = auth.replace("\r", "").replace("\n", "")
    try:
        padded = text if text.endswith("=") else text + "=" * (-len(text) % 4)
        user, colon, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password.rstrip("\0")) if colon else None

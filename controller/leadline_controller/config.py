"""The controller's settings: one TOML file, every field checked, errors that name the field."""

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from leadline_controller.core.fields import FieldError, Fields
from leadline_controller.core.leases import ProbeLimits
from leadline_controller.core.model import SCHEDULER_NAME
from leadline_controller.ingest.session import BrokerTls
from leadline_controller.serve.settings import DEFAULT_ADDRESS, ServeError, ServeSettings, TlsFiles
from leadline_controller.state.telemetry import TimesToLive

DEFAULT_PATH = Path("/etc/leadline/controller.toml")
_MIN_LIMITS = {"interval_s": 1.0, "port": 1.0, "ping_interval_s": 1.0, "ping_count": 1.0}


class ConfigError(ValueError):
    """A setting that cannot be used; str() says where it stands and what was expected."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the controller can be told.

    kubeconfig: None means the cluster that it runs in. warm_up_s: how long the first
    decision may wait for the metrics of every ready node. anchors: nodes against which the
    others test their bandwidth; without any, all pairs are tested. seed: breaks ties.
    """

    cluster: str = "default"
    broker_host: str = "localhost"
    broker_port: int = 1883
    broker_tls: BrokerTls | None = None
    kubeconfig: Path | None = None
    scheduler_name: str = SCHEDULER_NAME
    strategy: str = "dacs"
    options: Mapping[str, object] = field(default_factory=dict)
    seed: int | None = None
    warm_up_s: float = 15.0
    anchors: tuple[str, ...] = ()
    limits: ProbeLimits = field(default_factory=ProbeLimits)
    ttl: TimesToLive = field(default_factory=TimesToLive)
    serve: ServeSettings = field(default_factory=lambda: ServeSettings(DEFAULT_ADDRESS))


def load(path: Path | None) -> Settings:
    """Read the settings; `path` None means the default file, which may be absent. Raises
    ConfigError."""
    where = path or DEFAULT_PATH
    try:
        with where.open("rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        if path is None:
            return Settings()
        raise ConfigError(f"{where}: there is no such file") from None
    except OSError as error:
        raise ConfigError(
            f"{where}: {error.strerror}; the controller must be able to read it"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: expected TOML: {error}") from None
    try:
        return _settings(Fields(data, ""))
    except FieldError as error:
        raise ConfigError(f"{where}: {error}") from None


def _settings(root: Fields) -> Settings:
    root.only("cluster", "broker", "kubernetes", "strategy", "probe", "ttl", "grpc", "warm_up_s")
    kubernetes, strategy = root.object("kubernetes"), root.object("strategy")
    kubernetes.only("kubeconfig", "scheduler_name")
    strategy.only("name", "options", "seed")
    default = Settings()
    host, port, tls = _broker(root.object("broker"))
    seed = strategy.number("seed")
    warm_up_s = root.number("warm_up_s")
    return Settings(
        cluster=root.text("cluster", default.cluster),
        broker_host=host,
        broker_port=port,
        broker_tls=tls,
        kubeconfig=_file(kubernetes, "kubeconfig"),
        scheduler_name=kubernetes.text("scheduler_name", SCHEDULER_NAME),
        strategy=strategy.text("name", default.strategy),
        options=dict(strategy.object("options").items()),
        seed=None if seed is None else int(seed),
        warm_up_s=default.warm_up_s if warm_up_s is None else warm_up_s,
        anchors=root.object("probe").texts("anchors"),
        limits=_limits(root.object("probe")),
        ttl=_ttl(root.object("ttl")),
        serve=_serve(root.object("grpc")),
    )


def _broker(broker: Fields) -> tuple[str, int, BrokerTls | None]:
    broker.only("host", "port", "plaintext", "tls")
    host = broker.text("host", "localhost")
    files = _tls_files(broker)
    plaintext = broker.flag("plaintext", default=False)
    if files and plaintext:
        raise FieldError(f"{broker.at('plaintext')}: expected false beside broker.tls")
    if not (files or plaintext or _is_this_machine(host)):
        raise FieldError(
            f"{broker.at('tls')}: expected ca_file, cert_file and key_file, because {host} is "
            "another machine (or plaintext = true, where nobody else is on the network)"
        )
    port = broker.number("port") or (8883 if files else 1883)
    if port > 65535:
        raise FieldError(f"{broker.at('port')}: expected a TCP port, got {port:g}")
    return host, int(port), BrokerTls(*files) if files else None


def _serve(grpc: Fields) -> ServeSettings:
    grpc.only("address", "tls")
    files = _tls_files(grpc)
    address = grpc.text("address", DEFAULT_ADDRESS)
    try:
        return ServeSettings(address, TlsFiles(*files) if files else None)
    except ServeError as error:
        raise FieldError(f"{grpc.at('address')}: {error}") from None


def _tls_files(parent: Fields) -> tuple[Path, Path, Path] | None:
    if not parent.has("tls"):
        return None
    tls = parent.object("tls")
    tls.only("ca_file", "cert_file", "key_file")
    found = []
    for name in ("ca_file", "cert_file", "key_file"):
        path = _file(tls, name)
        if path is None:
            raise FieldError(f"{tls.at(name)}: expected a file; all three are needed")
        found.append(path)
    return found[0], found[1], found[2]


def _file(parent: Fields, name: str) -> Path | None:
    if not parent.has(name):
        return None
    path = Path(parent.text(name))
    try:
        path.open("rb").close()
    except OSError as error:
        raise FieldError(f"{parent.at(name)}: {path}: {error.strerror}") from None
    return path


def _limits(probe: Fields) -> ProbeLimits:
    names = {each.name: each for each in fields(ProbeLimits)}
    probe.only("anchors", *names)
    given = {}
    for name, each in names.items():
        value = probe.number(name)
        if value is None:
            continue
        if value < _MIN_LIMITS.get(name, 0.0) or (name == "port" and value > 65535):
            raise FieldError(f"{probe.at(name)}: {value:g} is out of range")
        given[name] = value if each.type is float else int(value)
    return ProbeLimits(**given)  # type: ignore[arg-type]  # each value was made for its field


def _ttl(ttl: Fields) -> TimesToLive:
    names = [each.name for each in fields(TimesToLive)]
    ttl.only(*names)
    return TimesToLive(**{n: v for n in names if (v := ttl.number(n)) is not None})


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

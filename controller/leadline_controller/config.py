"""The controller's settings: a TOML file, overridden by LEADLINE_* variables. Every field is
checked, and an error names it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from leadline_controller.api.settings import (
    DEFAULT_ADDRESS,
    DEFAULT_EXTENDER_ADDRESS,
    ExtenderSettings,
    ServeError,
    ServeSettings,
    TlsFiles,
)
from leadline_controller.decisions.store import HistorySettings
from leadline_controller.environment import overlay
from leadline_controller.framework.model import SCHEDULER_NAME
from leadline_controller.framework.options import OptionError, build
from leadline_controller.parsing.addresses import Network, is_loopback, read_network
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.toml import parse_toml
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES
from leadline_controller.telemetry.session import BrokerTls, check_cluster
from leadline_controller.telemetry.state import TimesToLive

DEFAULT_PATH = Path("/etc/leadline/controller.toml")
_STATE_DIRECTORY = "/var/lib/leadline-controller"
# Every agent refuses a lease outside these limits.
_WHOLE_LIMITS = {
    "duration_ms": (1000, 30_000),
    "max_bytes": (1 << 18, 1 << 34),
    "ttl_ms": (100, 120_000),
    "port": (1024, 65_535),
    "ping_peers": (0, 256),
    "ping_interval_s": (1, 3600),
    "ping_count": (1, 20),
    "ping_ttl_s": (3, 86_400),
}
_SECTIONS = ("broker", "kubernetes", "strategy", "probe", "ttl", "grpc", "extender")
_PEM = "PEM files and a key without a passphrase that belongs to the certificate"


class ConfigError(ValueError):
    """A setting that cannot be used. str() has the file, the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings.

    kubeconfig: None means the cluster that the controller runs in. warm_up_s: how long the first
    decision may wait for the metrics of every ready node. anchors: nodes against which the others
    test their bandwidth; without any, all pairs are tested. seed: makes the choice between equal
    nodes repeatable. networks: where boards may be probed, besides the addresses of their node
    objects. standalone: whether to place the pods of `scheduler_name`. extender: None if
    kube-scheduler does not use one. decisions: the database; in memory, unless `load` made the
    settings.
    """

    cluster: str = "default"
    broker_host: str = "localhost"
    broker_port: int = 1883
    broker_tls: BrokerTls | None = None
    kubeconfig: Path | None = None
    scheduler_name: str = SCHEDULER_NAME
    standalone: bool = True
    strategy: str = DEFAULT_STRATEGY
    options: Mapping[str, object] = field(default_factory=dict)
    seed: int | None = None
    warm_up_s: float = 15.0
    anchors: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    limits: ProbeLimits = field(default_factory=ProbeLimits)
    ttl: TimesToLive = field(default_factory=TimesToLive)
    serve: ServeSettings = field(default_factory=lambda: ServeSettings(DEFAULT_ADDRESS))
    extender: ExtenderSettings | None = None
    decisions: HistorySettings = field(default_factory=HistorySettings)


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the settings. path: None means the default file, which may be missing. Raises
    ConfigError."""
    where = path or DEFAULT_PATH
    data = _from_file(where, may_be_absent=path is None)
    variables = overlay(data, environ)
    try:
        return _settings(Fields(data, ""), environ)
    except FieldError as error:
        raise ConfigError(f"{_variables_of(str(error), variables) or where}: {error}") from None


def _variables_of(error: str, variables: Mapping[str, str]) -> str:
    """The environment variables that set the field of this error. Empty if it is the file's."""
    field = re.split("[: ]", error, maxsplit=1)[0]
    names = [name for path, name in variables.items() if f"{path}.".startswith(f"{field}.")]
    return f"the environment ({', '.join(names)})" if names else ""


def _from_file(where: Path, *, may_be_absent: bool) -> dict[str, Any]:
    try:
        return parse_toml(where.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if may_be_absent:
            return {}
        raise ConfigError(f"{where}: there is no such file") from None
    except OSError as error:
        raise ConfigError(
            f"{where}: {error.strerror}; the controller must be able to read it"
        ) from None
    except (FieldError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: expected TOML: {error}") from None


def _settings(root: Fields, environ: Mapping[str, str]) -> Settings:
    root.only(
        "cluster",
        "broker",
        "kubernetes",
        "strategy",
        "probe",
        "ttl",
        "grpc",
        "warm_up_s",
        "extender",
        "decisions",
    )
    kubernetes = root.object("kubernetes")
    kubernetes.only("kubeconfig", "scheduler_name", "standalone")
    default = Settings()
    host, port, tls = _broker(root.object("broker"))
    strategy, options, seed = _strategy(root.object("strategy"))
    warm_up_s = root.number("warm_up_s")
    return Settings(
        cluster=_cluster(root, default.cluster),
        broker_host=host,
        broker_port=port,
        broker_tls=tls,
        kubeconfig=_file(kubernetes, "kubeconfig"),
        scheduler_name=kubernetes.text("scheduler_name", SCHEDULER_NAME),
        standalone=_standalone(kubernetes, root.has("extender")),
        strategy=strategy,
        options=options,
        seed=seed,
        warm_up_s=default.warm_up_s if warm_up_s is None else warm_up_s,
        anchors=root.object("probe").texts("anchors"),
        networks=_networks(root.object("probe")),
        limits=_limits(root.object("probe")),
        ttl=_ttl(root.object("ttl")),
        serve=_serve(root.object("grpc")),
        extender=_extender(root.object("extender")) if root.has("extender") else None,
        decisions=_decisions(root.object("decisions"), environ),
    )


def _cluster(root: Fields, default: str) -> str:
    name = root.text("cluster", default)
    try:
        return check_cluster(name)
    except ValueError as error:
        raise FieldError(str(error)) from None


def _strategy(strategy: Fields) -> tuple[str, dict[str, object], int | None]:
    strategy.only("name", "options", "seed")
    name = strategy.text("name", DEFAULT_STRATEGY)
    if name not in STRATEGIES:
        raise strategy.error("name", f"one of {', '.join(STRATEGIES)}")
    options = dict(strategy.object("options").items())
    try:
        build(STRATEGIES[name], options)
    except PluginError as error:
        raise FieldError(f"{strategy.at('name')}: {error}") from None
    except OptionError as error:
        raise FieldError(f"{strategy.at('options')}: {error}") from None
    return name, options, strategy.integer("seed", 0, (1 << 63) - 1)


def _broker(broker: Fields) -> tuple[str, int, BrokerTls | None]:
    broker.only("host", "port", "plaintext", "tls")
    host = broker.text("host", "localhost")
    files = _tls_files(broker)
    plaintext = broker.flag("plaintext", default=False)
    if files and plaintext:
        raise FieldError(f"{broker.at('plaintext')}: expected false beside broker.tls")
    if not (files or plaintext or is_loopback(host)):
        raise FieldError(
            f"{broker.at('tls')}: expected ca_file, cert_file and key_file, because {host} is "
            "another machine (or plaintext = true, where nobody else is on the network)"
        )
    port = broker.integer("port", 1, 65_535) or (8883 if files else 1883)
    return host, port, BrokerTls(*files) if files else None


def _serve(grpc: Fields) -> ServeSettings:
    grpc.only("address", "tls")
    files = _tls_files(grpc)
    address = grpc.text("address", DEFAULT_ADDRESS)
    try:
        return ServeSettings(address, TlsFiles(*files) if files else None)
    except ServeError as error:
        raise FieldError(f"{grpc.at('address')}: {error}") from None


def _extender(extender: Fields) -> ExtenderSettings:
    extender.only("address", "tls", "filters", "bind")
    files = _tls_files(extender)
    address = extender.text("address", DEFAULT_EXTENDER_ADDRESS)
    filters = extender.text("filters", "own")
    if filters not in ("own", "all"):
        raise extender.error("filters", "own or all")
    tls = TlsFiles(*files) if files else None
    bind = extender.flag("bind", default=False)
    if bind and tls is None:
        raise FieldError(
            f"{extender.at('bind')}: expected false without {extender.at('tls')}, because only "
            "clients with a certificate may have pods bound"
        )
    try:
        return ExtenderSettings(address, tls, every_filter=filters == "all", bind=bind)
    except ServeError as error:
        raise FieldError(f"{extender.at('address')}: {error}") from None


def _standalone(kubernetes: Fields, extends: bool) -> bool:
    standalone = kubernetes.flag("standalone", default=True)
    if not (standalone or extends):
        raise kubernetes.error("standalone", "true, or a section [extender] beside it")
    return standalone


def _decisions(decisions: Fields, environ: Mapping[str, str]) -> HistorySettings:
    decisions.only("path", "max_mb", "max_age_days")
    default = HistorySettings()
    # systemd may list several folders, separated by colons; the first is the unit's own.
    folder = environ.get("STATE_DIRECTORY", "").partition(":")[0] or _STATE_DIRECTORY
    path = decisions.text("path", f"{folder}/decisions.db")
    if not path.startswith("/") or "\0" in path:
        raise decisions.error("path", "an absolute path of a file")
    max_mb = decisions.integer("max_mb", 0, 1 << 20)
    max_age_days = decisions.number("max_age_days", highest=36_500)
    return HistorySettings(
        path=Path(path),
        max_mb=default.max_mb if max_mb is None else max_mb,
        max_age_days=default.max_age_days if max_age_days is None else max_age_days,
    )


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
    files = (found[0], found[1], found[2])
    try:
        BrokerTls(*files).context()
    except (OSError, ValueError) as error:
        raise FieldError(f"{tls.path}: expected {_PEM}: {error}") from None
    return files


def _file(parent: Fields, name: str) -> Path | None:
    if not parent.has(name):
        return None
    path = Path(parent.text(name))
    try:
        path.open("rb").close()
    except OSError as error:
        raise FieldError(f"{parent.at(name)}: {path}: {error.strerror}") from None
    return path


def _networks(probe: Fields) -> tuple[Network, ...]:
    networks = []
    for i, text in enumerate(probe.texts("networks")):
        try:
            networks.append(read_network(text))
        except ValueError as error:
            where = f"{probe.at('networks')}[{i}]"
            raise FieldError(f"{where}: expected a network such as 10.0.0.0/24: {error}") from None
    return tuple(networks)


def _limits(probe: Fields) -> ProbeLimits:
    probe.only("anchors", "networks", "interval_s", *_WHOLE_LIMITS)
    interval_s = probe.number("interval_s")
    if interval_s is not None and interval_s < 1:
        raise probe.error("interval_s", "a number of 1 or more")
    given: dict[str, int] = {
        name: value
        for name, (lowest, highest) in _WHOLE_LIMITS.items()
        if (value := probe.integer(name, lowest, highest)) is not None
    }
    limits = ProbeLimits(**given)
    return limits if interval_s is None else replace(limits, interval_s=interval_s)


def _ttl(ttl: Fields) -> TimesToLive:
    names = [each.name for each in fields(TimesToLive)]
    ttl.only(*names)
    return TimesToLive(**{n: v for n in names if (v := ttl.number(n)) is not None})

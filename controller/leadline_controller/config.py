"""The controller's settings: a TOML file, overridden by LEADLINE_* variables as the agent's are.
Every field is checked, and an error names it.

A variable is the setting's path in capitals with underscores: LEADLINE_BROKER_TLS_CA_FILE is
broker.tls.ca_file. So a systemd unit can name the files that systemd provides, such as credentials.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

from leadline_wire.codec import MOST_MBPS

from leadline_controller.api.home_assistant import DEFAULT_PREFIX, PublishSettings
from leadline_controller.api.settings import (
    DEFAULT_ADDRESS,
    DEFAULT_EXTENDER_ADDRESS,
    DEFAULT_HEALTH_ADDRESS,
    DEFAULT_KEDA_ADDRESS,
    DEFAULT_METRICS_ADDRESS,
    ExtenderSettings,
    HealthSettings,
    KedaSettings,
    MetricsSettings,
    ServeError,
    ServeSettings,
    TlsFiles,
)
from leadline_controller.api.web_settings import DEFAULT_WEB_ADDRESS, Login, WebSettings, WebTls
from leadline_controller.decisions.store import HistorySettings
from leadline_controller.framework.model import SCHEDULER_NAME
from leadline_controller.framework.options import OptionError, build
from leadline_controller.parsing.addresses import Network, is_loopback
from leadline_controller.parsing.documents import parse_toml
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.registry.lookup import LookupSettings
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.rescheduler import Mode, ReschedulingSettings
from leadline_controller.scheduling.service_profiles import read_profiles
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES
from leadline_controller.telemetry.session import BrokerTls, check_cluster
from leadline_controller.telemetry.state import TimesToLive

T = TypeVar("T")
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
_MOST_LINK_TIME = 0.1
_MOST_PEERS = 64
_MOST_BYTES_PER_DAY = 10**15
_HTTP_URL = re.compile(r"https?://[^\s/@]+(/[^\s#]*)?")
_PROFILES = Path("/etc/leadline/profiles.json")
_PEM = "PEM files and a key without a passphrase that belongs to the certificate"


class ConfigError(ValueError):
    """A setting that cannot be used. str() has the file, the field and what was expected."""


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _number(text: str) -> object:
    """The number, or the text itself, which the check of the setting then refuses."""
    for convert in (int, float):
        with suppress(ValueError):
            return convert(text)
    return text


def _names(text: str) -> object:
    return [name.strip() for name in text.split(",") if name.strip()]


_TLS_FILES = ("ca_file", "cert_file", "key_file")
# Every setting but those that are tables, and what its variable's text becomes.
VARIABLES: Mapping[str, Callable[[str], object]] = {
    "cluster": str,
    "broker.host": str,
    "broker.port": _number,
    "broker.plaintext": _flag,
    **{f"broker.tls.{name}": str for name in _TLS_FILES},
    "kubernetes.kubeconfig": str,
    "kubernetes.scheduler_name": str,
    "kubernetes.standalone": _flag,
    "kubernetes.deletion_cost": _flag,
    "kubernetes.preemption": _flag,
    "strategy.name": str,
    "strategy.seed": _number,
    "strategy.preferences": _number,
    "strategy.batch_window_s": _number,
    "strategy.suggest_interval_s": _number,
    "strategy.profiles": str,
    "probe.anchors": _names,
    "probe.networks": _names,
    "probe.interval_s": _number,
    "probe.link_time_share": _number,
    "probe.bytes_per_day": _number,
    **{f"probe.{name}": _number for name in _WHOLE_LIMITS},
    **{f"ttl.{each.name}": _number for each in fields(TimesToLive)},
    "grpc.address": str,
    **{f"grpc.tls.{name}": str for name in _TLS_FILES},
    "warm_up_s": _number,
    "extender.address": str,
    **{f"extender.tls.{name}": str for name in _TLS_FILES},
    "extender.filters": str,
    "extender.bind": _flag,
    "rescheduling.mode": str,
    "rescheduling.min_gain": _number,
    "rescheduling.worse_for_s": _number,
    "rescheduling.cooldown_s": _number,
    "rescheduling.timeout_s": _number,
    "rescheduling.workload_moves_per_hour": _number,
    "rescheduling.node_moves_per_hour": _number,
    "rescheduling.moves_per_hour": _number,
    "rescheduling.admins": _names,
    "images.enabled": _flag,
    "images.registries_file": str,
    "images.pull_secrets": _names,
    "images.requests_per_hour": _number,
    "images.cache_mb": _number,
    "keda.address": str,
    **{f"keda.tls.{name}": str for name in _TLS_FILES},
    "keda.requests_urls": _names,
    "keda.window_s": _number,
    "metrics.address": str,
    **{f"metrics.tls.{name}": str for name in _TLS_FILES},
    "metrics.peers": _number,
    "metrics.links": str,
    "health.address": str,
    "publish.home_assistant": _flag,
    "publish.discovery_prefix": str,
    "publish.interval_s": _number,
    "web.address": str,
    "web.password_file": str,
    "web.tls.cert_file": str,
    "web.tls.key_file": str,
    "web.tls.client_ca_file": str,
    "decisions.path": str,
    "decisions.max_mb": _number,
    "decisions.max_age_days": _number,
}
_TABLES = ("strategy.options", "probe.uplinks")
_INTERVALS = ("batch_window_s", "suggest_interval_s")
_MOST_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings.

    kubeconfig: None means the cluster that the controller runs in. warm_up_s: how long the first
    decision may wait for the metrics of every ready node. anchors: nodes against which the others
    test their bandwidth if they are free. budget, uplinks: what these tests may cost, and which
    links nodes share. seed: makes the choice between equal nodes repeatable. preferences: "on",
    "off", or the tolerance within which they decide, in the unit of the strategy's total.
    batch_window_s, suggest_interval_s: for strategies that plan several pods together; 0 is off.
    profiles: the file of services' execution times, which may be missing. networks: where boards
    may be probed, besides the addresses of their node objects. standalone: whether to place the
    pods of `scheduler_name`. deletion_cost: whether to annotate replicas of services that have a
    response time. preemption: whether to evict pods for one of higher priority. extender: None if
    kube-scheduler does not use one. keda: None if KEDA does not ask. metrics: None if Prometheus
    does not ask. health: None if kubelet does not ask. publish: None if the broker never had states
    of boards. web: None without a map. rescheduling: when running pods are moved. decisions: the
    database; in memory, unless `load` made the settings.
    images: how registries are asked.
    """

    cluster: str = "default"
    broker_host: str = "localhost"
    broker_port: int = 1883
    broker_tls: BrokerTls | None = None
    kubeconfig: Path | None = None
    scheduler_name: str = SCHEDULER_NAME
    standalone: bool = True
    deletion_cost: bool = False
    preemption: bool = True
    strategy: str = DEFAULT_STRATEGY
    options: Mapping[str, object] = field(default_factory=dict)
    seed: int | None = None
    preferences: str | float = "on"
    batch_window_s: float = 0.0
    suggest_interval_s: float = 0.0
    profiles: Path | None = None
    warm_up_s: float = 15.0
    anchors: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    limits: ProbeLimits = field(default_factory=ProbeLimits)
    budget: BandwidthBudget = field(default_factory=BandwidthBudget)
    uplinks: tuple[Uplink, ...] = ()
    ttl: TimesToLive = field(default_factory=TimesToLive)
    serve: ServeSettings = field(default_factory=lambda: ServeSettings(DEFAULT_ADDRESS))
    extender: ExtenderSettings | None = None
    rescheduling: ReschedulingSettings = field(default_factory=ReschedulingSettings)
    keda: KedaSettings | None = None
    metrics: MetricsSettings | None = None
    health: HealthSettings | None = None
    publish: PublishSettings | None = None
    web: WebSettings | None = None
    decisions: HistorySettings = field(default_factory=HistorySettings)
    images: LookupSettings = field(default_factory=LookupSettings)


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the settings. path: None means the default file, which may be missing. Raises
    ConfigError."""
    where = path or DEFAULT_PATH
    data = _from_file(where, may_be_absent=path is None)
    variables = _overlay(data, environ)
    try:
        return _settings(Fields(data, ""), environ)
    except FieldError as error:
        field = re.split("[: ]", str(error), maxsplit=1)[0]
        names = [name for path, name in variables.items() if f"{path}.".startswith(f"{field}.")]
        origin = f"the environment ({', '.join(names)})" if names else where
        raise ConfigError(f"{origin}: {error}") from None


def variable(path: str) -> str:
    """The variable of a setting."""
    return "LEADLINE_" + path.replace(".", "_").upper()


def _overlay(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Set the values of the variables in the file's data, in place. Returns path -> variable, of
    the variables that are set."""
    applied = {}
    for path, convert in VARIABLES.items():
        *sections, name = path.split(".")
        table: Any = data
        if (value := environ.get(variable(path))) is not None:
            for section in sections:
                # The check of the settings refuses anything but a table.
                table = table.setdefault(section, {}) if isinstance(table, dict) else None
            if isinstance(table, dict):
                table[name] = convert(value)
                applied[path] = variable(path)
    return applied


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
    _only_settings(root)
    with _named("", ValueError):
        cluster = check_cluster(root.text("cluster", "default"))
    kubernetes = _only_settings(root.object("kubernetes"))
    standalone = kubernetes.flag("standalone", default=True)
    if not (standalone or root.has("extender")):
        raise kubernetes.error("standalone", "true, or a section [extender] beside it")
    host, port, tls = _broker(_only_settings(root.object("broker")))
    by = _only_settings(root.object("strategy"))
    strategy, options, seed = _strategy(by)
    intervals = {name: by.number(name, _MOST_INTERVAL_S) for name in _INTERVALS}
    probe = _only_settings(root.object("probe"))
    ttl = _only_settings(root.object("ttl"))
    lifetimes = {each.name: ttl.number(each.name) for each in fields(TimesToLive)}
    grpc = _only_settings(root.object("grpc"))
    with _named(grpc.at("address"), ServeError):
        serve = ServeSettings(grpc.text("address", DEFAULT_ADDRESS), _tls(grpc, TlsFiles))
    return Settings(
        cluster=cluster,
        broker_host=host,
        broker_port=port,
        broker_tls=tls,
        kubeconfig=_file(kubernetes, "kubeconfig") if kubernetes.has("kubeconfig") else None,
        scheduler_name=kubernetes.text("scheduler_name", SCHEDULER_NAME),
        standalone=standalone,
        deletion_cost=kubernetes.flag("deletion_cost", default=False),
        preemption=kubernetes.flag("preemption", default=True),
        strategy=strategy,
        options=options,
        seed=seed,
        preferences=_preferences(by),
        profiles=_profiles(root.object("strategy")),
        **_given(warm_up_s=root.number("warm_up_s"), **intervals),
        anchors=probe.texts("anchors"),
        networks=_networks(probe),
        limits=_limits(probe),
        budget=BandwidthBudget(
            **_given(
                link_time_share=probe.number("link_time_share", _MOST_LINK_TIME),
                bytes_per_day=probe.integer("bytes_per_day", 0, _MOST_BYTES_PER_DAY),
            )
        ),
        uplinks=_uplinks(probe),
        ttl=TimesToLive(**_given(**lifetimes)),
        serve=serve,
        extender=_extender(root.object("extender")) if root.has("extender") else None,
        rescheduling=_rescheduling(_only_settings(root.object("rescheduling"))),
        keda=_keda(_only_settings(root.object("keda"))) if root.has("keda") else None,
        metrics=_metrics(_only_settings(root.object("metrics"))) if root.has("metrics") else None,
        health=_health(_only_settings(root.object("health"))) if root.has("health") else None,
        publish=_publish(_only_settings(root.object("publish"))) if root.has("publish") else None,
        web=_web(_only_settings(root.object("web")), environ) if root.has("web") else None,
        decisions=_decisions(_only_settings(root.object("decisions")), environ),
        images=_images(_only_settings(root.object("images")), environ),
    )


def _only_settings(table: Fields) -> Fields:
    """The table. Raises FieldError if it has anything but settings."""
    prefix = f"{table.path}." if table.path else ""
    known = [path for path in (*VARIABLES, *_TABLES) if path.startswith(prefix)]
    table.only(*dict.fromkeys(path.removeprefix(prefix).partition(".")[0] for path in known))
    return table


def _given(**values: object) -> dict[str, Any]:
    """The values that are set; the others keep their defaults."""
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def _named(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns these errors into a FieldError of the field `where`, or of the one they begin with."""
    try:
        yield
    except kinds as error:
        raise FieldError(f"{where}: {error}" if where else str(error)) from None


def _strategy(strategy: Fields) -> tuple[str, dict[str, object], int | None]:
    name = strategy.choice("name", *STRATEGIES, default=DEFAULT_STRATEGY)
    options = dict(strategy.object("options").data)
    with _named(strategy.at("name"), PluginError), _named(strategy.at("options"), OptionError):
        build(STRATEGIES[name], options)
    return name, options, strategy.integer("seed", 0, (1 << 63) - 1)


def _preferences(strategy: Fields) -> str | float:
    given = strategy.raw("preferences")
    if given is None or given in ("on", "off"):
        return given or "on"
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1e15:
        raise strategy.error("preferences", '"on", "off" or a number of 0 to 1e+15')
    return float(given)


def _profiles(strategy: Fields) -> Path:
    path = Path(strategy.text("profiles", str(_PROFILES)))
    if not path.is_absolute() or "\0" in str(path):
        raise strategy.error("profiles", "an absolute path of a file")
    try:
        read_profiles(path)
    except FileNotFoundError:
        if strategy.has("profiles"):
            raise FieldError(f"{strategy.at('profiles')}: {path}: there is no such file") from None
    except FieldError as error:
        raise FieldError(f"{strategy.at('profiles')}: {path}: {error}") from None
    return path


def _broker(broker: Fields) -> tuple[str, int, BrokerTls | None]:
    host = broker.text("host", "localhost")
    tls = _tls(broker, BrokerTls)
    plaintext = broker.flag("plaintext", default=False)
    if tls and plaintext:
        raise FieldError(f"{broker.at('plaintext')}: expected false beside broker.tls")
    if not (tls or plaintext or is_loopback(host)):
        raise FieldError(
            f"{broker.at('tls')}: expected ca_file, cert_file and key_file, because {host} is "
            "another machine (or plaintext = true, where nobody else is on the network)"
        )
    return host, broker.integer("port", 1, 65_535) or (8883 if tls else 1883), tls


def _extender(extender: Fields) -> ExtenderSettings:
    _only_settings(extender)
    tls = _tls(extender, TlsFiles)
    address = extender.text("address", DEFAULT_EXTENDER_ADDRESS)
    every_filter = extender.choice("filters", "own", "all", default="own") == "all"
    bind = extender.flag("bind", default=False)
    if bind and tls is None:
        raise FieldError(
            f"{extender.at('bind')}: expected false without {extender.at('tls')}, because only "
            "clients with a certificate may have pods bound"
        )
    with _named(extender.at("address"), ServeError):
        return ExtenderSettings(address, tls, every_filter, bind)


def _keda(keda: Fields) -> KedaSettings:
    urls = keda.texts("requests_urls")
    for i, url in enumerate(urls):
        if not _HTTP_URL.fullmatch(url):
            raise FieldError(
                f"{keda.at('requests_urls')}[{i}]: expected a URL such as "
                "http://10.42.0.7:9100/metrics"
            )
    window_s = keda.number("window_s", 3600)
    if window_s is not None and window_s < 1:
        raise keda.error("window_s", "a number of 1 to 3600")
    with _named(keda.at("address"), ServeError):
        return KedaSettings(
            keda.text("address", DEFAULT_KEDA_ADDRESS),
            _tls(keda, TlsFiles),
            urls,
            **_given(window_s=window_s),
        )


def _metrics(metrics: Fields) -> MetricsSettings:
    every_link = metrics.choice("links", "nearest", "all", default="nearest") == "all"
    with _named(metrics.at("address"), ServeError):
        return MetricsSettings(
            metrics.text("address", DEFAULT_METRICS_ADDRESS),
            _tls(metrics, TlsFiles),
            every_link=every_link,
            **_given(peers=metrics.integer("peers", 0, _MOST_PEERS)),
        )


def _health(health: Fields) -> HealthSettings:
    with _named(health.at("address"), ServeError):
        return HealthSettings(health.text("address", DEFAULT_HEALTH_ADDRESS))


def _publish(publish: Fields) -> PublishSettings:
    interval_s = publish.number("interval_s", _MOST_INTERVAL_S)
    if interval_s is not None and interval_s < 1:
        raise publish.error("interval_s", "a number of 1 to 3600")
    home_assistant = publish.flag("home_assistant", default=False)
    prefix = publish.text("discovery_prefix", DEFAULT_PREFIX)
    with _named(publish.at("discovery_prefix"), ValueError):
        return PublishSettings(home_assistant, prefix, **_given(interval_s=interval_s))


def _web(web: Fields, environ: Mapping[str, str]) -> WebSettings:
    login = tls = None
    if web.has("password_file"):
        credentials = environ.get("CREDENTIALS_DIRECTORY")
        with _named(web.at("password_file"), ServeError):
            login = Login.read(
                Path(web.text("password_file")), Path(credentials) if credentials else None
            )
    if web.has("tls"):
        files = _only_settings(web.object("tls"))
        for name in ("cert_file", "key_file"):
            if not files.has(name):
                raise FieldError(f"{files.at(name)}: expected a file")
        client_ca = _file(files, "client_ca_file") if files.has("client_ca_file") else None
        tls = WebTls(_file(files, "cert_file"), _file(files, "key_file"), client_ca)
        try:
            tls.server_context(login=login is not None)
        except ServeError as error:
            raise FieldError(f"{files.path}: expected {_PEM}: {error}") from None
    with _named(web.at("address"), ServeError):
        return WebSettings(web.text("address", DEFAULT_WEB_ADDRESS), tls, login)


def _decisions(decisions: Fields, environ: Mapping[str, str]) -> HistorySettings:
    path = decisions.text("path", f"{_state_folder(environ)}/decisions.db")
    if not path.startswith("/") or "\0" in path:
        raise decisions.error("path", "an absolute path of a file")
    limits = _given(
        max_mb=decisions.integer("max_mb", 0, 1 << 20),
        max_age_days=decisions.number("max_age_days", highest=36_500),
    )
    return HistorySettings(Path(path), **limits)


def _rescheduling(given: Fields) -> ReschedulingSettings:
    mode: Mode = given.choice("mode", "off", "manual", "automatic", default="off")
    least_s = {"worse_for_s": 0.0, "cooldown_s": 0.0, "timeout_s": 10.0}
    times = {name: given.number(name, 604_800.0) for name in least_s}
    for name, value in times.items():
        if value is not None and value < least_s[name]:
            raise given.error(name, f"{least_s[name]:g} seconds or more")
    moves = {
        "workload": given.integer("workload_moves_per_hour", 0, 200),
        "node": given.integer("node_moves_per_hour", 0, 200),
        "cluster": given.integer("moves_per_hour", 0, 200),
    }
    return ReschedulingSettings(
        mode=mode,
        **_given(min_gain=given.number("min_gain", 1.0), **times),
        budgets=HourlyBudgets(**_given(**moves)),
        admins=given.texts("admins"),
    )


def _images(images: Fields, environ: Mapping[str, str]) -> LookupSettings:
    secrets = images.texts("pull_secrets")
    if any(len(part) == 0 for key in secrets for part in key.split("/")) or any(
        key.count("/") != 1 for key in secrets
    ):
        raise images.error("pull_secrets", "a list of namespace/name")
    given = _given(
        requests_per_hour=images.integer("requests_per_hour", 1, 3600),
        cache_mb=images.number("cache_mb", 1024),
    )
    return LookupSettings(
        enabled=images.flag("enabled", default=True),
        registries_file=_file(images, "registries_file") if images.has("registries_file") else None,
        pull_secrets=secrets,
        path=Path(_state_folder(environ), "images.jsonl"),
        **given,
    )


def _state_folder(environ: Mapping[str, str]) -> str:
    # systemd may list several folders, separated by colons; the first is the unit's own.
    return environ.get("STATE_DIRECTORY", "").partition(":")[0] or _STATE_DIRECTORY


def _tls(parent: Fields, kind: Callable[[Path, Path, Path], T]) -> T | None:
    if not parent.has("tls"):
        return None
    tls = _only_settings(parent.object("tls"))
    found = []
    for name in _TLS_FILES:
        if not tls.has(name):
            raise FieldError(f"{tls.at(name)}: expected a file; all three are needed")
        found.append(_file(tls, name))
    ca_file, cert_file, key_file = found
    try:
        BrokerTls(ca_file, cert_file, key_file).context()
    except (OSError, ValueError) as error:
        raise FieldError(f"{tls.path}: expected {_PEM}: {error}") from None
    return kind(ca_file, cert_file, key_file)


def _file(parent: Fields, name: str) -> Path:
    path = Path(parent.text(name))
    try:
        path.open("rb").close()
    except OSError as error:
        raise FieldError(f"{parent.at(name)}: {path}: {error.strerror}") from None
    return path


def _networks(probe: Fields) -> tuple[Network, ...]:
    networks = []
    for i, text in enumerate(probe.texts("networks")):
        expected = f"{probe.at('networks')}[{i}]: expected a network such as 10.0.0.0/24"
        with _named(expected, ValueError):
            networks.append(ip_network(text))
    return tuple(networks)


def _uplinks(probe: Fields) -> tuple[Uplink, ...]:
    uplinks: dict[str, Uplink] = {}
    for entry in probe.objects("uplinks"):
        entry.only("name", "nodes", "mbps", "bytes_per_day")
        name, nodes = entry.name("name"), entry.texts("nodes")
        if not name or name in uplinks:
            raise entry.error("name", "a name that no other uplink has")
        if not nodes:
            raise entry.error("nodes", "the names of one node or more")
        if "" in nodes:
            raise FieldError(f"{entry.at('nodes')}[{nodes.index('')}]: expected a node's name")
        mbps = entry.number("mbps", MOST_MBPS)
        if mbps == 0:
            raise entry.error("mbps", "a number above 0")
        bytes_per_day = entry.integer("bytes_per_day", 0, _MOST_BYTES_PER_DAY)
        uplinks[name] = Uplink(name, frozenset(nodes), mbps, bytes_per_day)
    return tuple(uplinks.values())


def _limits(probe: Fields) -> ProbeLimits:
    interval_s = probe.number("interval_s")
    if interval_s is not None and interval_s < 1:
        raise probe.error("interval_s", "a number of 1 or more")
    whole = {name: probe.integer(name, *bounds) for name, bounds in _WHOLE_LIMITS.items()}
    return ProbeLimits(**_given(interval_s=interval_s, **whole))

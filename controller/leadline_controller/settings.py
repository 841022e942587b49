"""The controller's settings: a TOML file, overridden by LEADLINE_* variables as the agent's are.

`Settings` is the whole table; the sections of a room are fields of that room's dataclass. Whatever
a setting is called, may be and means is said where its field is, by `setting`. `make settings`
writes the page's table, the chart's schema and the role's argument specs from it.

A variable is the setting's path in capitals with underscores: LEADLINE_BROKER_TLS_CA_FILE is
broker.tls.ca_file. So a systemd unit can name the files that systemd provides, such as credentials.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from leadline_controller.cluster.service_profiles import read_profiles
from leadline_controller.framework.batch import decides_together
from leadline_controller.framework.model import SCHEDULER_NAME
from leadline_controller.framework.options import OptionError, build
from leadline_controller.history.recording_ring import RecordingSettings
from leadline_controller.history.store import HistorySettings
from leadline_controller.homeassistant.messages import PublishSettings
from leadline_controller.kube.signing import IssuingSettings
from leadline_controller.map.settings import WebSettings, WebTls
from leadline_controller.notifications.settings import NotifySettings
from leadline_controller.parsing.addresses import Network, is_loopback
from leadline_controller.parsing.documents import parse_toml
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.parsing.fields import FieldError, Fields, quoted, shown
from leadline_controller.parsing.settings import (
    LARGEST,
    Setting,
    absolute_path,
    readable_file,
    section,
    setting,
)
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.registry.lookup import LookupSettings
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.scheduling.shadow import ShadowSettings
from leadline_controller.serve.settings import (
    ExtenderSettings,
    GrpcSettings,
    HealthSettings,
    KedaSettings,
    MetricsSettings,
    ServeError,
    TlsFiles,
)
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES
from leadline_controller.telemetry.session import BrokerTls, check_cluster
from leadline_controller.telemetry.state import TimesToLive

DEFAULT_PATH = Path("/etc/leadline/controller.toml")
_STATE_DIRECTORY = "/var/lib/leadline-controller"
_PROFILES = Path("/etc/leadline/profiles.json")
_PEM = "PEM files and a key without a passphrase that belongs to the certificate"


class ConfigError(ValueError):
    """A setting that cannot be used. str() has the file, the field and what was expected."""


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"expected a network such as 10.0.0.0/24: {error}") from None


def _preferences(value: object) -> str | float:
    if value in ("on", "off"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e15:
        raise ValueError(f'expected "on", "off" or a number of 0 to 1e+15, got {shown(value)}')
    return float(value)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. A server whose settings are None is not there."""

    cluster: str = setting("default", "the cluster's level in the MQTT topics", read=check_cluster)
    broker_host: str = setting("localhost", "its name or address", name="broker.host")
    broker_port: int = setting(
        1883,
        "its port",
        name="broker.port",
        least=1,
        most=65_535,
        shown="8883 with TLS, else 1883",
    )
    broker_plaintext: bool = setting(
        False, "true: no TLS, for a network that nobody else uses", name="broker.plaintext"
    )
    broker_tls: BrokerTls | None = section(name="broker.tls")
    kubeconfig: Path | None = setting(
        None,
        "the login at the API server",
        name="kubernetes.kubeconfig",
        read=readable_file,
        shown="the cluster it runs in",
    )
    scheduler_name: str = setting(
        SCHEDULER_NAME,
        "pods with this `schedulerName` are placed",
        name="kubernetes.scheduler_name",
    )
    standalone: bool = setting(
        True,
        "false: Leadline places no pods itself and only answers kube-scheduler, see `extender`",
        name="kubernetes.standalone",
    )
    deletion_cost: bool = setting(
        False,
        "true: a [scale-down](replicas.md#scale-down-which-replica-goes-first) removes the newest "
        "replica of a service with `leadline.dev/response-time-ms`. The role and the chart then "
        "allow it to annotate pods, which `leadline.dev/deletion-order` needs, too",
        name="kubernetes.deletion_cost",
    )
    metrics_api: bool = setting(
        True,
        "false: the [metrics API](#what-running-pods-use) is not asked what running pods use",
        name="kubernetes.metrics_api",
    )
    preemption: bool = setting(
        True,
        "false: no pod is evicted to make room for one of higher priority; see "
        "[preemption.md](preemption.md)",
        name="kubernetes.preemption",
    )
    strategy: str = setting(
        "",
        "see `leadline strategies`. Without it an installation keeps "
        "[the one that it ran](choosing.md#which-one-an-installation-runs)",
        name="strategy.name",
        shown=f"the one that it ran; `{DEFAULT_STRATEGY}` in a new one",
    )
    options: Mapping[str, object] = setting(
        {}, "the strategy's, for example `{alpha = 0.25}`", name="strategy.options"
    )
    seed: int | None = setting(
        None,
        "with a seed, ties are broken the same way each time",
        name="strategy.seed",
        most=(1 << 63) - 1,
        shown="random",
    )
    letter: bool = setting(
        False,
        "true: comparisons [to the letter of the papers](strategies.md#what-counts-as-equal): no "
        "errors of measurement, and ties by chance alone",
        name="strategy.letter",
    )
    preferences: str | float = setting(
        "on",
        "whether a pod's [preferences](preferences.md) decide between nodes that the strategy "
        "finds nearly equal: `on`, `off`, or the tolerance, a number in the unit of the strategy's "
        "total",
        name="strategy.preferences",
        most=1e15,
        words={"on": "on", "off": "off"},
        read=_preferences,
    )
    assumed_load: bool = setting(
        True,
        "whether strategies see, beside what was measured, what pods are [expected to use]"
        "(strategies.md#assumed-load) that were placed since; false: the papers alone",
        name="strategy.assumed_load",
    )
    batch_window_s: float = setting(
        0.0,
        "for how long pending pods are collected, to be planned together by a strategy that can "
        "(`kubedsm`, `leadline`). 0 decides pod by pod",
        name="strategy.batch_window_s",
        most=3600,
    )
    suggest_interval_s: float = setting(
        0.0,
        "how often such a strategy suggests moves of running pods, if `rescheduling.mode` is "
        "`automatic`. 0: never",
        name="strategy.suggest_interval_s",
        most=3600,
    )
    profiles: Path | None = setting(
        None,
        "execution times of services, as "
        "[`leadline profile`](replicas.md#profiles-how-long-a-service-works-on-a-request) saves "
        "them; the default file may be missing",
        name="strategy.profiles",
        read=absolute_path,
        shown=f"`{_PROFILES}`",
    )
    shadow: ShadowSettings = section(ShadowSettings)
    warm_up_s: float = setting(
        15.0, "how long the first decision may wait for the metrics of every ready node"
    )
    anchors: tuple[str, ...] = setting(
        (),
        "nodes with which the others test their bandwidth if they are free; without any, all nodes "
        "serve alike",
        name="probe.anchors",
    )
    networks: tuple[Network, ...] = setting(
        (),
        'networks such as `["10.0.0.0/24"]` in which boards may be '
        "[probed](#where-boards-are-probed), besides the addresses of their node objects",
        name="probe.networks",
        read=_network,
    )
    limits: ProbeLimits = section(ProbeLimits, name="probe")
    budget: BandwidthBudget = section(BandwidthBudget, name="probe")
    uplinks: tuple[Uplink, ...] = setting(
        (),
        "links that nodes share, a list of tables: `name`, `nodes`, `mbps`, `bytes_per_day`; see "
        "[the budget](#the-budget-of-bandwidth-tests)",
        name="probe.uplinks",
    )
    ttl: TimesToLive = section(TimesToLive)
    serve: GrpcSettings = section(GrpcSettings, name="grpc")
    extender: ExtenderSettings | None = section()
    rescheduling: ReschedulingSettings = section(ReschedulingSettings)
    keda: KedaSettings | None = section()
    metrics: MetricsSettings | None = section()
    health: HealthSettings | None = section()
    issuing: IssuingSettings | None = section()
    publish: PublishSettings | None = section()
    web: WebSettings | None = section()
    notify: NotifySettings = section(NotifySettings)
    # In memory, unless `load` made the settings.
    decisions: HistorySettings = section(HistorySettings)
    images: LookupSettings = section(LookupSettings)
    recording: RecordingSettings = section(RecordingSettings)


@dataclass(frozen=True, slots=True)
class Row:
    """A setting as the file has it."""

    path: str
    type: Any  # of the field, without None
    default: Any  # MISSING if it must be there
    declared: Setting

    @property
    def is_section(self) -> bool:
        """Whether it is not one setting but those of a dataclass."""
        return is_dataclass(self.type) and self.declared.read is None

    @property
    def is_table(self) -> bool:
        """Whether it is a table or a list of tables, for which there is no variable."""
        return self.type == Mapping[str, object] or self.fields_of_entries is not None

    @property
    def fields_of_entries(self) -> Any:
        """The dataclass of each table in a list of tables; None for all else."""
        return next((each for each in get_args(self.type) if is_dataclass(each)), None)

    @property
    def variable(self) -> str:
        """The variable of the setting."""
        return "LEADLINE_" + self.path.replace(".", "_").upper()

    @property
    def words(self) -> Mapping[str, object]:
        """What each word in the file means, where only these are allowed."""
        if get_origin(self.type) is Literal:
            return {word: word for word in get_args(self.type)}
        return self.declared.words

    @property
    def range(self) -> str:
        """What a number may be."""
        least, most = self.declared.least, self.declared.most
        return f"{least:.16g} or more" if most == LARGEST else f"{least:.16g} to {most:.16g}"

    def of_text(self, text: str) -> object:
        """What a variable's text is in the file. The check refuses what is wrong."""
        if self.type is bool and not self.words:
            return {"true": True, "false": False}.get(text, text)
        if get_origin(self.type) is tuple:
            return [name.strip() for name in text.split(",") if name.strip()]
        if self.type in (int, float, str | float):
            for convert in (int, float):
                with suppress(ValueError):
                    return convert(text)
        return text

    def value(self, table: Fields, name: str) -> Any:
        """The field's value, of the file's table and the name in it. Raises FieldError."""
        if not table.has(name):
            raise table.error(name, self.declared.help)
        if self.words and self.declared.read is None:
            return self.words[table.choice(name, *self.words)]
        if self.type is bool:
            return table.flag(name, default=False)
        if self.type is int:
            return table.integer(name, int(self.declared.least), int(self.declared.most))
        if self.type is float:
            return self._number(table, name)
        if self.type == Mapping[str, object]:
            return dict(table.object(name).data)
        if entries := self.fields_of_entries:
            return tuple(_entry(entries, each) for each in table.objects(name))
        if (kind := get_origin(self.type)) in (tuple, frozenset):
            texts = enumerate(table.texts(name))
            return kind(self._read(text, f"{table.at(name)}[{i}]") for i, text in texts)
        given = table.raw(name) if self.type == str | float else table.text(name)
        return self._read(given, table.at(name))

    def _number(self, table: Fields, name: str) -> float:
        value = table.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise table.error(name, "a number")
        if not self.declared.least <= value <= self.declared.most:
            raise table.error(name, f"a finite number of {self.range}")
        return float(value)

    def _read(self, given: object, path: str) -> object:
        with _named(path, ValueError, ServeError):
            return given if self.declared.read is None else self.declared.read(given)


@cache
def rows(kind: Any = Settings, section: str = "") -> tuple[Row, ...]:
    """Every setting, in the order of the fields."""
    found: list[Row] = []
    for _, row in _rows_of(kind):
        path = f"{section}.{row.path}".strip(".")
        found += rows(row.type, path) if row.is_section else [replace(row, path=path)]
    return tuple(found)


# To read a class' types takes longer than all else in reading a file, and they stay the same.
@cache
def _rows_of(kind: Any) -> tuple[tuple[str, Row], ...]:
    """The dataclass' fields and their settings or sections, by their paths within it."""
    types, found = get_type_hints(kind), []
    for each in fields(kind):
        if (declared := each.metadata.get("setting")) is not None:
            made = each.default_factory
            default = each.default if made is MISSING else made()
            path = each.name if declared.name is None else declared.name
            without_none = [of for of in get_args(types[each.name]) if of is not NoneType]
            optional = NoneType in get_args(types[each.name])
            type_ = without_none[0] if optional else types[each.name]
            found.append((each.name, Row(path, type_, default, declared)))
    return tuple(found)


def _made(kind: Any, table: Fields) -> Any:
    """The dataclass, of the settings in its table. Raises FieldError."""
    given = {}
    for field, row in _rows_of(kind):
        inside, (*sections, name) = table, row.path.split(".")
        for each in sections:
            inside = inside.object(each)
        if not row.is_section:
            # What is not in the file, the class makes anew.
            if row.default is MISSING or inside.has(name):
                given[field] = row.value(inside, name)
        elif row.default is not None or inside.has(name):
            given[field] = _made(row.type, inside.object(name) if name else inside)
    with _named(table.at("address"), ServeError):
        made = kind(**given)
    with _named(f"{table.path}: expected {_PEM}", ServeError, OSError, ValueError):
        match made:
            case WebTls():
                made.server_context(login=False)
            case BrokerTls() | TlsFiles():
                BrokerTls(made.ca_file, made.cert_file, made.key_file).context()
    return made


def _entry(kind: Any, table: Fields) -> Any:
    table.only(*(row.path for _, row in _rows_of(kind)))
    return _made(kind, table)


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the settings. path: None means the default file, which may be missing. Raises
    ConfigError."""
    where = path or DEFAULT_PATH
    data = _from_file(where, may_be_absent=path is None)
    variables = _overlay(data, environ)
    try:
        root = Fields(data, "")
        _refuse_unknown(root, [row.path for row in rows()])
        return _checked(_made(Settings, root), root, environ)
    except FieldError as error:
        field = re.split("[: ]", str(error), maxsplit=1)[0]
        names = [name for path, name in variables.items() if f"{path}.".startswith(f"{field}.")]
        origin = f"the environment ({', '.join(names)})" if names else where
        raise ConfigError(f"{origin}: {error}") from None


def with_strategy(settings: Settings, name: str) -> Settings:
    """Settings that name no strategy, with the one that the installation keeps. Raises ConfigError
    where that is not installed, or where options or shadows do not go with it."""
    if name not in STRATEGIES:
        raise ConfigError(
            f"strategy.name: it is not set, and this installation ran {quoted(name)}, which is not "
            f"installed: install its package, or name one of {', '.join(STRATEGIES)}"
        )
    kept = replace(settings, strategy=name)
    try:
        _check_strategy(kept)
        _check_shadow(kept)
    except FieldError as error:
        raise ConfigError(
            f"{error}; strategy.name is not set, so the strategy is {name}, "
            "the one of this installation"
        ) from None
    return kept


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


def _overlay(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Set the values of the variables in the file's data, in place. Returns path -> variable, of
    the variables that are set."""
    applied = {}
    for row in rows():
        if row.is_table or (text := environ.get(row.variable)) is None:
            continue
        *sections, name = row.path.split(".")
        table: Any = data
        for each in sections:
            # The check refuses anything but a table.
            table = table.setdefault(each, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[name] = row.of_text(text)
            applied[row.path] = row.variable
    return applied


def _refuse_unknown(table: Fields, paths: list[str]) -> None:
    prefix = f"{table.path}." if table.path else ""
    inside = [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
    table.only(*dict.fromkeys(path.partition(".")[0] for path in inside))
    for name in table.data:
        if name not in inside:
            _refuse_unknown(table.object(name), paths)


@contextmanager
def _named(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns these errors into a FieldError of the field `where`."""
    try:
        yield
    except FieldError:
        raise
    except kinds as error:
        raise FieldError(f"{where}: {error}") from None


def _checked(settings: Settings, root: Fields, environ: Mapping[str, str]) -> Settings:
    """The settings, with what the environment or other settings say of them. Raises FieldError for
    those that do not go together."""
    if not (settings.standalone or settings.extender):
        raise root.object("kubernetes").error(
            "standalone", "true, or a section [extender] beside it"
        )
    _check_broker(settings)
    _check_strategy(settings)
    _check_shadow(settings)
    _check_uplinks(settings.uplinks)
    settings.notify.check()
    if settings.broker_tls and not root.object("broker").has("port"):
        settings = replace(settings, broker_port=8883)
    # systemd may list several folders, separated by colons; the first is the unit's own.
    state = environ.get("STATE_DIRECTORY", "").partition(":")[0] or _STATE_DIRECTORY
    decisions = settings.decisions.path or Path(state, "decisions.db")
    folder = settings.recording.folder or decisions.with_name("recordings")
    return replace(
        settings,
        profiles=_profiles(settings),
        decisions=replace(settings.decisions, path=decisions),
        recording=replace(settings.recording, folder=folder),
        images=replace(settings.images, path=Path(state, "images.jsonl")),
    )


def _check_broker(settings: Settings) -> None:
    if settings.broker_tls and settings.broker_plaintext:
        raise FieldError("broker.plaintext: expected false beside broker.tls")
    host = settings.broker_host
    if not (settings.broker_tls or settings.broker_plaintext or is_loopback(host)):
        raise FieldError(
            f"broker.tls: expected ca_file, cert_file and key_file, because {host} is another "
            "machine (or plaintext = true, where nobody else is on the network)"
        )


def _check_strategy(settings: Settings) -> None:
    name = settings.strategy
    if not name:  # `with_strategy` checks the options, once it is known of which strategy they are
        return
    if name not in STRATEGIES:
        raise FieldError(
            f"strategy.name: expected one of {', '.join(STRATEGIES)}, got {shown(name)}"
        )
    with _named("strategy.name", PluginError), _named("strategy.options", OptionError):
        build(STRATEGIES[name], settings.options)


def _check_shadow(settings: Settings) -> None:
    """Raises FieldError for a strategy that cannot be a shadow."""
    names = settings.shadow.strategies
    Fields(dict(settings.shadow.options), "shadow.options").only(*names)
    for i, name in enumerate(names):
        at = f"shadow.strategies[{i}]"
        if name not in STRATEGIES:
            raise FieldError(f"{at}: expected one of {', '.join(STRATEGIES)}, got {shown(name)}")
        given = settings.shadow.options.get(name, {})
        if not isinstance(given, Mapping):
            raise FieldError(f"shadow.options.{name}: expected a table")
        with _named(at, PluginError), _named(f"shadow.options.{name}", OptionError):
            strategy = build(STRATEGIES[name], given)
        if decides_together(strategy):
            raise FieldError(
                f"{at}: expected a strategy that decides pod by pod, got {shown(name)}"
            )
        if name == settings.strategy and given == settings.options:
            raise FieldError(
                f"{at}: expected another strategy than the one in force, got {shown(name)}"
            )
        if name in names[:i]:
            raise FieldError(f"{at}: expected each strategy once, got {shown(name)} again")


def _profiles(settings: Settings) -> Path:
    path = settings.profiles or _PROFILES
    try:
        read_profiles(path)
    except FileNotFoundError:
        if settings.profiles:
            raise FieldError(f"strategy.profiles: {path}: there is no such file") from None
    except FieldError as error:
        raise FieldError(f"strategy.profiles: {path}: {error}") from None
    return path


def _check_uplinks(uplinks: Sequence[Uplink]) -> None:
    seen: set[str] = set()
    for i, uplink in enumerate(uplinks):
        if uplink.name in seen:
            raise FieldError(
                f"probe.uplinks[{i}].name: expected a name that no other uplink has, "
                f"got {shown(uplink.name)}"
            )
        seen.add(uplink.name)
        if not uplink.nodes:
            raise FieldError(f"probe.uplinks[{i}].nodes: expected the names of one node or more")

"""The agent's settings: a TOML file, then LEADLINE_* variables, checked field by field.

An invalid value or an unknown setting stops the agent; the error names the file, the field and what
was expected. Settings contain no secrets, only the paths of their files.
"""

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline_agent.lease import is_unicast
from leadline_agent.text import one_line, read_file

MAX_FILE_BYTES, MAX_LINE = 64 * 1024, 1000
DEFAULT_PATH = Path("/etc/leadline/agent.toml")
_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?")
# A name of a Kubernetes object (RFC 1123) that the label kubernetes.io/hostname can have as value.
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"(?=.{{1,63}}\Z){_LABEL}(?:\.{_LABEL})*")
_HOST = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?|[0-9a-fA-F:]*:[0-9a-fA-F:.]*")


class ConfigError(ValueError):
    """An invalid setting; str() says where it is and what was expected."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the broker's authority, and this node's certificate and key."""

    ca_file: Path
    cert_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the broker is. Without `tls` it is on this machine, or plaintext is set."""

    host: str
    port: int
    tls: Tls | None


@dataclass(frozen=True, slots=True)
class Probe:
    """This board's limits on leases, and the address where peers reach it."""

    address: str
    max_ping_peers: int
    max_bandwidth_bytes: int
    max_bandwidth_duration_ms: int


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `interval_s` is the time between reports."""

    node: str
    cluster: str
    state_dir: Path
    interval_s: float
    buffer_max_bytes: int
    broker: Broker
    probe: Probe
    textfile: Path | None = None  # for node_exporter, None for none
    flows: Path | None = None  # what leadline-flows writes, None where it is not there
    early_reports: bool = True  # whether one comes before its time when the load jumps


@dataclass(frozen=True, slots=True)
class _Field:
    default: Any
    expected: str
    convert: Callable[[object], Any]  # raises ValueError


def _string(
    accepts: Callable[[str], object], expected: str, default: Any, make: type[str | Path] = str
) -> _Field:
    def convert(value: object) -> object:
        if not isinstance(value, str) or not accepts(value):
            raise ValueError
        return make(value)

    return _Field(default, expected, convert)


def _number(low: int, high: int, unit: str, default: int | None) -> _Field:
    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return _Field(default, f"a whole number{unit} from {low} to {high}", convert)


def _path(default: Path | None = None, ending: str = "") -> _Field:
    def accepts(text: str) -> bool:
        return text.startswith("/") and text.isprintable() and text.endswith(ending)

    expected = f"an absolute path that ends in {ending}" if ending else "an absolute path"
    return _string(accepts, expected, default, Path)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


_NAME_EXPECTED = "letters, digits, '-' and '.', 253 at most"
_HOST_EXPECTED = "a host name or an IP address"

_FIELDS: Mapping[str, _Field] = {
    "node": _string(_NAME.fullmatch, _NAME_EXPECTED, None),
    "cluster": _string(_NAME.fullmatch, _NAME_EXPECTED, "default"),
    "state_dir": _path(Path("/var/lib/leadline-agent")),
    "interval_s": _number(1, 3600, " of seconds", 10),
    "early_reports": _Field(True, "true or false", _flag),
    "buffer.max_bytes": _number(4096, 1 << 30, " of bytes", 1 << 20),
    "broker.host": _string(_HOST.fullmatch, _HOST_EXPECTED, "localhost"),
    "broker.port": _number(1, 65535, " (a TCP port)", None),
    "broker.plaintext": _Field(False, "true or false", _flag),
    "broker.tls.ca_file": _path(),
    "broker.tls.cert_file": _path(),
    "broker.tls.key_file": _path(),
    "probe.address": _string(is_unicast, "the IP address of one host", ""),
    "probe.max_ping_peers": _number(0, 256, " of peers", 32),
    "probe.max_bandwidth_bytes": _number(0, 1 << 34, " of bytes", 1 << 28),
    "probe.max_bandwidth_duration_ms": _number(0, 30_000, " of milliseconds", 10_000),
    "textfile.path": _path(ending=".prom"),
    "flows.path": _path(ending=".json"),
}


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read the settings. Raises ConfigError.

    `path` None is the default file, which may be missing; any other file must exist.
    """
    where = path or DEFAULT_PATH
    values = {key: field.default for key, field in _FIELDS.items()}
    given = _from_file(where, may_be_absent=path is None)
    values |= {key: _checked(key, value, str(where)) for key, value in given.items()}
    for key in _FIELDS:
        variable = "LEADLINE_" + key.replace(".", "_").upper()
        if variable in environ:
            values[key] = _checked(key, environ[variable], f"the environment ({variable})")
    if environ.get("STATE_DIRECTORY"):  # set by systemd: the folder that the unit may write to
        values["state_dir"] = Path(environ["STATE_DIRECTORY"].split(":")[0])
    return _settings(values, str(where))


def _from_file(path: Path, *, may_be_absent: bool) -> dict[str, object]:
    try:
        # Editors of Windows begin with a byte order mark.
        text = read_file(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        if may_be_absent:
            return {}
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the agent must be able to read it") from None
    except UnicodeDecodeError as error:  # such as of PowerShell, which writes UTF-16
        raise ConfigError(f"{path}: expected UTF-8 text, byte {error.start} is not") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    # The time of the TOML parser grows with the square of the length of a key.
    if any(len(line) > MAX_LINE for line in text.splitlines()):
        raise ConfigError(f"{path}: expected lines of at most {MAX_LINE} characters")
    try:
        return _flatten(tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # some numbers and depths raise these
        raise ConfigError(f"{path}: expected TOML: {error}") from None


def _flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        is_table = any(name.startswith(f"{prefix}{key}.") for name in _FIELDS)
        if isinstance(value, dict) and is_table:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _checked(key: str, value: object, where: str) -> object:
    field = _FIELDS.get(key)
    if field is None:
        tables = {name.split(".")[0] for name in _FIELDS if name.startswith(f"{key}.")}
        expected = "a table" if tables else f"one of {', '.join(_FIELDS)}"
        raise ConfigError(f"{where}: {one_line(key, 80)}: expected {expected}")
    try:
        return field.convert(value)
    except ValueError:
        raise ConfigError(
            f"{where}: {key}: expected {field.expected}, found {_displayed(value)}"
        ) from None


def _displayed(value: object) -> str:
    """A value for an error message, shortened. Very large numbers cannot be printed."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return repr(str(value)[:80])


def _settings(values: Mapping[str, Any], where: str) -> Settings:
    return Settings(
        node=values["node"] or _own_name(where),
        cluster=values["cluster"],
        state_dir=values["state_dir"],
        interval_s=values["interval_s"],
        buffer_max_bytes=values["buffer.max_bytes"],
        broker=_broker(values, where),
        probe=Probe(**_table(values, "probe.")),
        textfile=values["textfile.path"],
        flows=values["flows.path"],
        early_reports=values["early_reports"],
    )


def _table(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): values[key] for key in values if key.startswith(prefix)}


def _own_name(where: str) -> str:
    """The node's name as k3s and kubelets make it of the host name, in lower case."""
    host = socket.gethostname()
    name = host.strip().lower()
    if not _NODE_NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: node: expected the name of this board's node, because no node can have that "
            f"of the host, {_displayed(host)}"
        )
    return name


def _broker(values: Mapping[str, Any], where: str) -> Broker:
    host: str = values["broker.host"]
    tls = _tls(values, where)
    if tls and values["broker.plaintext"]:
        raise ConfigError(f"{where}: broker.plaintext: expected false beside broker.tls")
    if not (tls or values["broker.plaintext"] or _is_this_machine(host)):
        raise ConfigError(
            f"{where}: broker.tls: expected ca_file, cert_file and key_file, because {host} is "
            "another machine (or broker.plaintext = true, where nobody else is on the network)"
        )
    return Broker(host, values["broker.port"] or (8883 if tls else 1883), tls)


def _tls(values: Mapping[str, Any], where: str) -> Tls | None:
    files = _table(values, "broker.tls.")
    if not any(files.values()):
        return None
    for name, file in files.items():
        if file is None:
            raise ConfigError(f"{where}: broker.tls.{name}: expected a file: all three are needed")
        if not (file.is_file() and os.access(file, os.R_OK)):
            raise ConfigError(f"{where}: broker.tls.{name}: expected a readable file: {file}")
    return Tls(**files)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""LEADLINE_* environment variables, which override the settings in the file, as the agent's do.

A variable is the setting's path in capitals with underscores: LEADLINE_BROKER_TLS_CA_FILE is
broker.tls.ca_file. So a systemd unit can name the files that systemd provides, such as credentials.
"""

from collections.abc import Callable, Mapping
from typing import Any

PREFIX = "LEADLINE_"


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _number(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return _or_text(float, text)


def _integer(text: str) -> object:
    return _or_text(int, text)


def _names(text: str) -> object:
    return [name.strip() for name in text.split(",") if name.strip()]


def _or_text(convert: Callable[[str], object], text: str) -> object:
    """The converted text, or the text itself, which the check of the setting then refuses."""
    try:
        return convert(text)
    except ValueError:
        return text


_TLS = ("ca_file", "cert_file", "key_file")
# Every setting but strategy.options, which is a table.
FIELDS: Mapping[str, Callable[[str], object]] = {
    "cluster": str,
    "warm_up_s": _number,
    "broker.host": str,
    "broker.port": _integer,
    "broker.plaintext": _flag,
    **{f"broker.tls.{name}": str for name in _TLS},
    "kubernetes.kubeconfig": str,
    "kubernetes.scheduler_name": str,
    "kubernetes.standalone": _flag,
    "strategy.name": str,
    "strategy.seed": _integer,
    "probe.anchors": _names,
    "probe.networks": _names,
    "probe.interval_s": _number,
    "probe.duration_ms": _integer,
    "probe.max_bytes": _integer,
    "probe.ttl_ms": _integer,
    "probe.port": _integer,
    "probe.ping_peers": _integer,
    "probe.ping_interval_s": _integer,
    "probe.ping_count": _integer,
    "probe.ping_ttl_s": _integer,
    "ttl.report_s": _number,
    "ttl.rtt_s": _number,
    "ttl.bandwidth_s": _number,
    "grpc.address": str,
    **{f"grpc.tls.{name}": str for name in _TLS},
    "extender.address": str,
    **{f"extender.tls.{name}": str for name in _TLS},
    "extender.filters": str,
    "extender.bind": _flag,
    "decisions.path": str,
    "decisions.max_mb": _integer,
    "decisions.max_age_days": _number,
}


def variable(path: str) -> str:
    """The variable of a setting."""
    return PREFIX + path.replace(".", "_").upper()


def overlay(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Set the values of the variables in the file's data, in place. Returns path -> variable, of
    the variables that are set."""
    applied = {}
    for path, convert in FIELDS.items():
        name = variable(path)
        if name in environ and (table := _table(data, path)) is not None:
            table[path.rpartition(".")[2]] = convert(environ[name])
            applied[path] = name
    return applied


def _table(data: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The table that holds the setting, created if it is missing. None if the file has another
    value there, which the check of the settings then refuses."""
    at: Any = data
    for name in path.split(".")[:-1]:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            return None
    table: dict[str, Any] = at
    return table

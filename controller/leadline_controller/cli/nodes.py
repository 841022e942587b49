"""Nodes as plain data for JSON and YAML, and as tables: one line each, or everything about one."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from leadline_wire.v1 import control_pb2 as pb
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional
from leadline_controller.cli.history import Charts
from leadline_controller.cli.links import links_of
from leadline_controller.cli.output import DIM, FirstThatFits, Table, cell, table

_COLUMNS = (
    *("NAME", "AGENT", "CPU\n%", "MEM\n%", "TEMP\n°C", "PKT/S\ntx/rx", "DISK\nB/s"),
    *("BANDWIDTH\nMbit/s", "AGE", "PODS"),
)
_NUMBERS = frozenset((*_COLUMNS[2:], "LOST"))
_WIDE = ("TIER", "CPU\nrequested", "MEMORY\nrequested", "LOST", "VERSION", "ADDRESS", "MODEL")
_NOTES = "NOTES"
_AGENT_STYLE = {"online": "green", "offline": "red", "silent": "yellow", "unknown": DIM}


def document(status: pb.NodeStatus) -> dict[str, Any]:
    """One node; its metrics by name, each with its age in seconds. Unknown is None."""
    in_cluster = status.in_cluster
    return {
        "name": status.name,
        "in_cluster": in_cluster,
        "schedulable": status.schedulable if in_cluster else None,
        "ready": status.ready if in_cluster else None,
        "tier": status.tier or None,
        "agent": status.agent,
        "agent_version": status.agent_version or None,
        "hardware_model": status.hardware_model or None,
        "architecture": status.architecture or None,
        "kernel": status.kernel or None,
        "cores": status.cores or None,
        "memory_bytes": status.memory_bytes or None,
        "address": status.address or None,
        "report_interval_s": status.report_interval_s or None,
        "report_age_s": optional(status, "report_age_s"),
        "metrics": {
            metric.name: {
                "value": metric.value,
                "age_s": metric.age_s,
                "confidence": round(metric.confidence, 3),
            }
            | ({"lower_bound": True} if metric.lower_bound else {})
            | ({"suspect": True} if metric.suspect else {})
            | ({"host_limited": True} if metric.host_limited else {})
            | ({"source": metric.source} if metric.source else {})
            for metric in status.metrics
        },
        "lost_messages": status.lost_messages,
        "pods": status.pods,
        "allocatable": _resources(status.allocatable) if in_cluster else None,
        "requested": _resources(status.requested) if in_cluster else None,
        "contradicting": list(status.contradicting),
        "failed": dict(status.failed),
        "notes": list(status.notes),
    }


def _resources(resources: pb.Resources) -> dict[str, int]:
    return {
        "cpu_milli": resources.cpu_milli,
        "memory_bytes": resources.memory_bytes,
        "pods": resources.pods,
    }


class NodesTable:
    """One line a node. On a narrow terminal the notes, then the columns of `wide`, and then the
    others move into tables below, each of which begins with the name."""

    def __init__(self, statuses: Sequence[pb.NodeStatus], *, wide: bool = False) -> None:
        self._statuses = statuses
        self._wide = wide

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        if not self._statuses:
            yield Text("no nodes: the cluster has none, and no agent has sent a message")
            return
        bars = (True, False) if console.is_terminal else (False,)
        layouts = product((True, False) if self._wide else (False,), (True, False), bars)
        yield FirstThatFits(tuple(self._laid_out(*each)) for each in layouts)

    def _laid_out(self, wide: bool, notes: bool, bars: bool) -> Iterator[RenderableType]:
        columns = _COLUMNS + (_WIDE if wide else ()) + ((_NOTES,) if notes else ())
        rows = [tuple(_row(each, wide, notes, bars)) for each in self._statuses]
        yield table(columns, rows, numbers=_NUMBERS)
        if self._wide and not wide:
            yield Text()
            rows = [(each.name, *_wide(each)) for each in self._statuses]
            yield table(("NAME", *_WIDE), rows, numbers=_NUMBERS)
        if not notes:
            noted: dict[str, list[str]] = {}
            for status in self._statuses:
                for note in status.notes:
                    noted.setdefault(note, []).append(status.name)
            if noted:
                yield Text()
            yield from (cell(f"{note}: {', '.join(names)}") for note, names in noted.items())


def _row(status: pb.NodeStatus, wide: bool, notes: bool, bars: bool) -> Iterator[object]:
    known = _values(status)
    yield status.name
    agent = status.agent if status.agent != "unknown" else human.UNKNOWN
    yield cell(agent, _AGENT_STYLE.get(status.agent, ""))
    for metric in ("cpu_percent", "memory_percent"):
        yield _share(known.get(metric), bars=bars)
    yield human.number(known.get("cpu_celsius"))
    sent, received = (known.get(f"packets_{way}_per_s") for way in ("sent", "received"))
    unknown = sent is None and received is None
    yield human.UNKNOWN if unknown else f"{human.amount(sent)}/{human.amount(received)}"
    yield human.amount(known.get("disk_bytes_per_s"))
    yield _bandwidth(status)
    yield human.age(optional(status, "report_age_s"))
    yield status.pods
    if wide:
        yield from _wide(status)
    if notes:
        yield cell(", ".join(status.notes), "yellow")


def _share(percent: float | None, *, bars: bool) -> Text:
    text = cell(human.number(percent))
    if bars:
        style = ""
        if percent is not None:
            style = "red" if percent >= 90 else "yellow" if percent >= 70 else "green"
        text.append(f" {human.bar(percent)}", style=style)
    return text


def _wide(status: pb.NodeStatus) -> Iterator[object]:
    yield status.tier or human.UNKNOWN
    yield from _requested(status)
    yield status.lost_messages
    for text in (status.agent_version, status.address, status.hardware_model):
        yield text or human.UNKNOWN


def _requested(status: pb.NodeStatus) -> tuple[str, str]:
    """CPU and memory: how much of it pods request."""
    if not status.in_cluster:
        return human.UNKNOWN, human.UNKNOWN
    asked, room = status.requested, status.allocatable
    return (
        f"{human.cores(asked.cpu_milli)} of {human.cores(room.cpu_milli)}",
        f"{human.size(asked.memory_bytes)} of {human.size(room.memory_bytes)}",
    )


def node_details(response: pb.GetNodeResponse) -> Iterator[RenderableType]:
    """Everything about one node: its facts, metrics, history and links, and the pods placed
    there."""
    status = response.node
    yield _facts(status)
    yield Text()
    measured = [
        (
            *(metric.name, f"{_bound(metric)}{human.number(metric.value)}"),
            *(human.age(metric.age_s), f"{100 * metric.confidence:.0f} %"),
        )
        for metric in status.metrics
    ]
    columns = ("METRIC", "VALUE", "AGE", "CONFIDENCE")
    if measured:
        yield table(columns, measured, numbers=columns[1:])
    else:
        yield Text("nothing is measured now")
    if response.history.series:
        yield Text()
        yield Charts(response.history)
    if response.links:
        yield Text()
        yield links_of(status.name, response.links)
    if response.placed_pods:
        yield Text()
        yield Text("PODS PLACED HERE", style="bold")
        yield from map(cell, response.placed_pods)


def _facts(status: pb.NodeStatus) -> Table:
    cpu, memory = _requested(status)
    age_s = optional(status, "report_age_s")
    every = f", every {status.report_interval_s} s" if status.report_interval_s else ""
    hardware = (
        status.hardware_model,
        f"{status.cores} cores" if status.cores else "",
        human.size(status.memory_bytes) if status.memory_bytes else "",
        status.architecture,
        f"Linux {status.kernel}" if status.kernel else "",
    )
    facts = {
        "name": status.name,
        "agent": f"{status.agent} {status.agent_version}".strip(),
        "last report": human.UNKNOWN if age_s is None else f"{human.age(age_s)} ago{every}",
        "board": ", ".join(filter(None, hardware)) or human.UNKNOWN,
        "address": status.address or human.UNKNOWN,
        "interface": _mbps(status, "link_mbps"),
        "users' traffic": _mbps(status, "used_mbps"),
        "bandwidth": _certainty(status),
        "tier": status.tier or human.UNKNOWN,
        "CPU requested": cpu,
        "memory requested": memory,
        "pods": f"{status.pods} of {status.allocatable.pods}"
        if status.in_cluster
        else human.UNKNOWN,
        "messages lost": status.lost_messages,
        "notes": ", ".join(status.notes) or "none",
    }
    return table(("", ""), ((cell(name, "bold"), value) for name, value in facts.items()))


def _mbps(status: pb.NodeStatus, metric: str) -> str:
    mbps = _values(status).get(metric)
    return human.UNKNOWN if mbps is None else f"{human.number(mbps)} Mbit/s"


def _certainty(status: pb.NodeStatus) -> str:
    """The bandwidth, and how well it is known."""
    for metric in status.metrics:
        if metric.name == "bandwidth_mbps":
            how = "a lower bound" if metric.lower_bound else "exact"
            if metric.suspect:
                how = "suspect: the last tests disagree"
            elif metric.source == "counters":
                how = "which it carried; not tested"
            elif metric.source == "pulls":
                how = "at which it pulled an image; not tested"
            elif metric.source == "interface":
                how = "the speed of its interface; not tested"
            if metric.host_limited:
                how += "; host-limited"
            return f"{_bandwidth(status)} Mbit/s, {how}"
    return human.UNKNOWN


def summary(status: pb.NodeStatus) -> str:
    """One node in one line of prose."""
    known = _values(status)
    parts = [f"agent {status.agent}"]
    if "cpu_percent" in known:
        parts.append(f"CPU {human.number(known['cpu_percent'])} %")
    if "memory_percent" in known:
        parts.append(f"memory {human.number(known['memory_percent'])} %")
    if "bandwidth_mbps" in known:
        parts.append(f"bandwidth {_bandwidth(status)} Mbit/s")
    parts.append(f"{status.pods} pod{'' if status.pods == 1 else 's'}")
    return ", ".join((*parts, *status.notes))


def _values(status: pb.NodeStatus) -> dict[str, float]:
    return {metric.name: metric.value for metric in status.metrics}


def _bandwidth(status: pb.NodeStatus) -> str:
    for metric in status.metrics:
        if metric.name == "bandwidth_mbps":
            return f"{_bound(metric)}{human.number(metric.value)}"
    return human.UNKNOWN


def _bound(metric: pb.Measurement) -> str:
    return ">= " if metric.lower_bound else ""

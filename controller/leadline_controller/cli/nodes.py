"""Nodes as plain data for JSON and YAML, and as tables: one line each, or everything about one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import status_pb2
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional, plain
from leadline_controller.cli.history import Charts
from leadline_controller.cli.links import links_of
from leadline_controller.cli.listing import Listed
from leadline_controller.cli.output import DIM, FirstThatFits, Table, cell, table
from leadline_controller.inspect.problem_kinds import KINDS
from leadline_controller.inspect.problems import of_boards

_COLUMNS = (
    *("NAME", "AGENT", "CPU\n%", "MEM\n%", "TEMP\n°C", "PKT/S\ntx/rx", "DISK\nB/s"),
    *("BANDWIDTH\nMbit/s", "AGE", "PODS"),
)
_NUMBERS = frozenset((*_COLUMNS[2:], "LOST"))
_WIDE = (
    "TIER",
    "PREDICTED\nms",
    "CPU\nrequested",
    "MEMORY\nrequested",
    "LOST",
    "VERSION",
    "ADDRESS",
    "MODEL",
)
_NOTES = "NOTES"
_FACTS = (
    "name in_cluster schedulable ready tier? agent agent_version? hardware_model? architecture? "
    "kernel? cores? memory_bytes? address? report_interval_s? report_age_s"
)
_OF_THE_CLUSTER = ("schedulable", "ready", "allocatable", "requested")
_NOT_TESTED = {
    "counters": "which it carried",
    "pulls": "at which it pulled an image",
    "interface": "the speed of its interface",
}
_AGENT_STYLE = {"online": "green", "offline": "red", "silent": "yellow", "unknown": DIM}

# Column -> path in the document of a node.
SORTED_BY = {
    **{"name": "name", "agent": "agent", "cpu": "metrics.cpu_percent.value"},
    **{"mem": "metrics.memory_percent.value", "temp": "metrics.cpu_celsius.value"},
    **{"pkt/s": "metrics.packets_sent_per_s.value", "disk": "metrics.disk_bytes_per_s.value"},
    **{"bandwidth": "metrics.bandwidth_mbps.value", "age": "report_age_s", "pods": "pods"},
    **{"tier": "tier", "lost": "lost_messages", "version": "agent_version"},
    **{"address": "address", "model": "hardware_model"},
}


def listed(statuses: Sequence[pb.NodeStatus]) -> Listed[pb.NodeStatus]:
    """The nodes as a listing."""
    return Listed(
        "node",
        statuses,
        key=lambda status: status.name,
        document=document,
        whole=lambda documents: {"nodes": documents},
        tables=lambda nodes, wide: [NodesTable(nodes, wide=wide)],
    )


def listed_problems(
    statuses: Sequence[pb.NodeStatus], told: status_pb2.GetStatusResponse
) -> Listed[pb.NodeStatus]:
    """The nodes that are ill as a listing, each with what is wrong. told: what `leadline doctor`
    knows."""
    problems: dict[str, list[str]] = {
        status.name: ["not ready"] for status in statuses if status.in_cluster and not status.ready
    }
    for board, kind, what in of_boards(told):
        if KINDS[kind].severity != "note":
            problems.setdefault(board, []).append(what)

    def tables(nodes: Sequence[pb.NodeStatus], wide: bool) -> Iterator[RenderableType]:
        if not nodes:
            yield Text(f"no board is ill, of {len(statuses)}")
        elif wide:
            yield NodesTable(nodes, wide=True)
        else:
            rows = (
                (
                    status.name,
                    human.age(optional(status, "report_age_s")),
                    status.pods,
                    cell(", ".join(problems[status.name]), "yellow"),
                )
                for status in nodes
            )
            yield table(("NAME", "AGE", "PODS", "PROBLEMS"), rows, numbers=("AGE", "PODS"))

    return replace(
        listed([status for status in statuses if status.name in problems]),
        document=lambda status: document(status) | {"problems": problems[status.name]},
        tables=tables,
    )


def document(status: pb.NodeStatus) -> dict[str, Any]:
    """One node; its metrics by name, each with its age in seconds. Unknown is None."""
    return {
        **plain(status, _FACTS),
        "metrics": {metric.name: _metric(metric) for metric in status.metrics},
        **plain(status, "lost_messages pods"),
        "allocatable": plain(status.allocatable),
        "requested": plain(status.requested),
        **plain(status, "contradicting failed predicted_ms notes"),
        **({} if status.in_cluster else dict.fromkeys(_OF_THE_CLUSTER)),
    }


def _metric(metric: pb.Measurement) -> dict[str, Any]:
    said = {"value": metric.value, "age_s": metric.age_s, "confidence": round(metric.confidence, 3)}
    return said | {
        name: value
        for name in ("lower_bound", "suspect", "host_limited", "source", "in_words")
        if (value := getattr(metric, name))
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
    yield _predicted(status, "\n")
    yield from _requested(status)
    yield status.lost_messages
    for text in (status.agent_version, status.address, status.hardware_model):
        yield text or human.UNKNOWN


def _predicted(status: pb.NodeStatus, between: str, unit: str = "") -> str:
    """Each service with the prediction for its next replica."""
    known = sorted(status.predicted_ms.items())
    return between.join(f"{name} {human.number(ms)}{unit}" for name, ms in known) or human.UNKNOWN


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
        "predicted response": _predicted(status, ", ", " ms"),
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
            if how := _NOT_TESTED.get(metric.source):
                return f"{_bandwidth(status)} Mbit/s, {how}; not tested"
            return metric.in_words or f"{_bandwidth(status)} Mbit/s"
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

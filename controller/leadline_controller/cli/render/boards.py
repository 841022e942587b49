"""Tables of nodes: one line each, or everything about one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from leadline_wire.v1 import control_pb2 as pb
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from leadline_controller.cli.render import human
from leadline_controller.cli.render.links import links_of
from leadline_controller.cli.render.tables import DIM, FirstThatFits, cell, table

_COLUMNS = (
    "NAME",
    "AGENT",
    "CPU\n%",
    "MEM\n%",
    "TEMP\n°C",
    "PKT/S\ntx/rx",
    "DISK\nB/s",
    "BANDWIDTH\nMbit/s",
    "AGE",
    "PODS",
)
_NUMBERS = frozenset((*_COLUMNS[2:], "LOST"))
_WIDE = ("TIER", "CPU\nrequested", "MEMORY\nrequested", "LOST", "VERSION", "ADDRESS", "MODEL")
_NOTES = "NOTES"
_AGENT_STYLE = {"online": "green", "offline": "red", "unknown": DIM}


class _Layout(NamedTuple):
    bars: bool
    notes: bool
    wide: bool


class NodesTable:
    """One line a node. On a narrow terminal the notes, and then the columns of `wide`, move into
    tables below."""

    def __init__(self, statuses: Sequence[pb.NodeStatus], *, wide: bool = False) -> None:
        self._statuses = statuses
        self._wide = wide

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        if not self._statuses:
            yield Text("no nodes: the cluster has none, and no agent has sent a message")
            return
        ways_with_bars = (True, False) if console.is_terminal else (False,)
        layout = [
            _Layout(bars, notes, wide)
            for wide in ((True, False) if self._wide else (False,))
            for notes in (True, False)
            for bars in ways_with_bars
        ]
        yield FirstThatFits([tuple(self._shown(each)) for each in layout])

    def _shown(self, layout: _Layout) -> Iterator[RenderableType]:
        columns = _COLUMNS + (_WIDE if layout.wide else ()) + ((_NOTES,) if layout.notes else ())
        yield self._filled(columns, lambda status: _row(status, layout))
        if self._wide and not layout.wide:
            yield Text()
            yield self._filled(("NAME", *_WIDE), lambda x: (cell(x.name), *_wide(x)))
        if not layout.notes:
            yield from self._noted()

    def _filled(
        self, columns: tuple[str, ...], row: Callable[[pb.NodeStatus], Iterable[Text]]
    ) -> Table:
        made = table(*columns, numbers=_NUMBERS, folding=("NAME", _NOTES, "ADDRESS", "MODEL"))
        for status in self._statuses:
            made.add_row(*row(status))
        return made

    def _noted(self) -> Iterator[Text]:
        """Each note with the names of its nodes."""
        noted: dict[str, list[str]] = {}
        for status in self._statuses:
            for note in status.notes:
                noted.setdefault(note, []).append(status.name)
        if noted:
            yield Text()
        yield from (cell(f"{note}: {', '.join(names)}") for note, names in noted.items())


def node_details(response: pb.GetNodeResponse) -> Iterator[RenderableType]:
    """Everything about one node: its facts, metrics and links, and the pods placed there."""
    status = response.node
    yield _facts(status)
    yield Text()
    yield _measured(status.metrics)
    if response.links:
        yield Text()
        yield links_of(status.name, response.links)
    if response.placed_pods:
        yield Text()
        yield Text("PODS PLACED HERE", style="bold")
        yield from (cell(pod) for pod in response.placed_pods)


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


def _row(status: pb.NodeStatus, layout: _Layout) -> Iterator[Text]:
    known = _values(status)
    yield cell(status.name)
    agent = status.agent if status.agent != "unknown" else human.UNKNOWN
    yield cell(agent, _AGENT_STYLE.get(status.agent, ""))
    for metric in ("cpu_percent", "memory_percent"):
        yield _share(known.get(metric), bars=layout.bars)
    yield cell(human.number(known.get("cpu_celsius")))
    sent, received = (known.get(f"packets_{way}_per_s") for way in ("sent", "received"))
    unknown = sent is None and received is None
    yield cell(human.UNKNOWN if unknown else f"{human.amount(sent)}/{human.amount(received)}")
    yield cell(human.amount(known.get("disk_bytes_per_s")))
    yield cell(_bandwidth(status))
    yield cell(_report_age(status))
    yield cell(status.pods)
    if layout.wide:
        yield from _wide(status)
    if layout.notes:
        yield cell(", ".join(status.notes), "yellow")


def _wide(status: pb.NodeStatus) -> Iterator[Text]:
    there = status.in_cluster
    yield cell(status.tier or human.UNKNOWN)
    yield cell(_cpu_requested(status) if there else human.UNKNOWN)
    yield cell(_memory_requested(status) if there else human.UNKNOWN)
    yield cell(status.lost_messages)
    for text in (status.agent_version, status.address, status.hardware_model):
        yield cell(text or human.UNKNOWN)


def _share(percent: float | None, *, bars: bool) -> Text:
    text = cell(human.number(percent))
    if bars:
        style = "" if percent is None else _level(percent)
        text.append(f" {human.bar(percent)}", style=style)
    return text


def _level(percent: float) -> str:
    if percent >= 90:
        return "red"
    return "yellow" if percent >= 70 else "green"


def _facts(status: pb.NodeStatus) -> Table:
    there = status.in_cluster
    facts = {
        "name": status.name,
        "agent": f"{status.agent} {status.agent_version}".strip(),
        "last report": f"{_report_age(status)} ago" if status.HasField("report_age_s") else "-",
        "board": status.hardware_model or human.UNKNOWN,
        "address": status.address or human.UNKNOWN,
        "tier": status.tier or human.UNKNOWN,
        "CPU requested": _cpu_requested(status) if there else human.UNKNOWN,
        "memory requested": _memory_requested(status) if there else human.UNKNOWN,
        "pods": f"{status.pods} of {status.allocatable.pods}" if there else human.UNKNOWN,
        "messages lost": status.lost_messages,
        "notes": ", ".join(status.notes) or "none",
    }
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for name, value in facts.items():
        made.add_row(Text(name, style="bold"), cell(value))
    return made


def _measured(metrics: Iterable[pb.Measurement]) -> RenderableType:
    made = table("METRIC", "VALUE", "AGE", numbers=("VALUE", "AGE"))
    for metric in metrics:
        bound = ">= " if metric.lower_bound else ""
        value = f"{bound}{human.number(metric.value)}"
        made.add_row(cell(metric.name), cell(value), cell(human.age(metric.age_s)))
    return made if made.row_count else Text("nothing is measured now")


def _values(status: pb.NodeStatus) -> Mapping[str, float]:
    return {metric.name: metric.value for metric in status.metrics}


def _bandwidth(status: pb.NodeStatus) -> str:
    for metric in status.metrics:
        if metric.name == "bandwidth_mbps":
            return f"{'>= ' if metric.lower_bound else ''}{human.number(metric.value)}"
    return human.UNKNOWN


def _report_age(status: pb.NodeStatus) -> str:
    return human.age(status.report_age_s if status.HasField("report_age_s") else None)


def _cpu_requested(status: pb.NodeStatus) -> str:
    requested, allocatable = status.requested.cpu_milli, status.allocatable.cpu_milli
    return f"{human.cores(requested)} of {human.cores(allocatable)}"


def _memory_requested(status: pb.NodeStatus) -> str:
    requested, allocatable = status.requested.memory_bytes, status.allocatable.memory_bytes
    return f"{human.size(requested)} of {human.size(allocatable)}"

"""What Prometheus reads, made when it asks; docs/metrics.md has every name.

The official client library makes all metrics but those with a series for each board, link or
account: it takes 6 us for each of their 25,000 samples at 1,000 boards, a hundredth of a core.
These are gauges and one counter, so they are lines of a name, labels and a value.
"""

import math
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from leadline_controller import __version__
from leadline_controller.framework.view import Floats, Ints
from leadline_controller.inspect.parts import Parts
from leadline_controller.metrics.instruments import Instruments
from leadline_controller.probing.spending import AccountStatus
from leadline_controller.serve.settings import MetricsSettings
from leadline_controller.telemetry.link_status import PairTable
from leadline_controller.telemetry.nearest import nearest
from leadline_controller.telemetry.state import BoardTable
from leadline_controller.traffic.edges import MINUTE_S, TrafficEdge

_BYTES_PER_MBIT = 125_000
_QUEUES = ("active", "backoff", "unschedulable", "in_progress", "held")
_MAX_LINKS = 20_000  # series of each metric
_MAX_EDGES = 100
# Column of the state -> metric, and by what its values are multiplied.
_COLUMNS: Mapping[str, tuple[str, str, float]] = {
    "cpu_percent": ("cpu_usage_ratio", "Busy share of all cores.", 0.01),
    "memory_percent": ("memory_usage_ratio", "Share of memory that programs cannot get.", 0.01),
    "cpu_celsius": ("cpu_temperature_celsius", "Temperature of the processor.", 1.0),
    "bandwidth_mbps": (
        "bandwidth_bytes_per_second",
        "What the board's link can do.",
        _BYTES_PER_MBIT,
    ),
    "used_mbps": (
        "network_usage_bytes_per_second",
        "Traffic of the fastest interface, its busier direction.",
        _BYTES_PER_MBIT,
    ),
    "disk_bytes_per_s": ("disk_usage_bytes_per_second", "Read and written together.", 1.0),
    "load_1m": ("load1", "Load average of one minute.", 1.0),
    "frequency_mhz": ("cpu_frequency_hertz", "Mean of the cores.", 1e6),
}
_FLAGS = {
    "throttled": "Whether heat or voltage slow the processor down.",
    "under_voltage": "Whether the supply voltage is too low.",
}
_SPENDING: Mapping[str, tuple[str, Callable[[AccountStatus], float]]] = {
    "spent_bytes": ("Bytes of bandwidth tests in 24 hours.", lambda a: a.day_bytes),
    "left_bytes": ("Bytes before the limit of a day is reached.", lambda a: a.day_bytes_left),
    "link_time_ratio": ("Share of the link's time in 24 hours.", lambda a: a.day_share),
}


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """A running controller."""

    inspection: Parts
    instruments: Instruments
    settings: MetricsSettings
    anchors: Collection[str] = ()  # boards to which every link is shown
    link_time_share: float = 0.0  # that tests may take


class MetricsReader:
    """Reads all metrics of a controller. `begin` must be called in the event loop; what it returns
    makes the answer, for which a thread is better: 1,000 boards take 30 ms."""

    def __init__(self, source: MetricsSource) -> None:
        self._source = source
        self._shown: frozenset[tuple[str, str]] = frozenset()

    def begin(self) -> Callable[[bool], bytes]:
        """Read what only the event loop may read. The function returned makes the answer, in
        OpenMetrics if its argument is true."""
        families = list(self._read_controller())

        def rendered(openmetrics: bool) -> bytes:
            text = "".join(self._each(openmetrics))
            metrics = _Metrics([*families, *self._read_state()], self._source.instruments)
            # OpenMetrics ends with a mark.
            return text.encode() + (generate_openmetrics if openmetrics else generate_latest)(
                metrics
            )

        return rendered

    # In the event loop.

    def _read_controller(self) -> Iterator[Metric]:
        source, inspection = self._source, self._source.inspection
        build = {"version": __version__, "python_version": platform.python_version()}
        yield _labelled("build_info", "Always 1.", [(build, 1)])
        strategy = inspection.rule.strategy.name
        how = {"strategy": strategy, "scheduler_name": inspection.scheduler_name}
        yield _labelled("scheduling_info", "Always 1.", [(how, 1)])
        yield _gauge("leader", "Whether this controller leads.", inspection.leadership.leads())
        cluster = inspection.state
        yield _gauge("cluster_synced", "Whether nodes and pods are listed.", cluster.listed)
        states = dict.fromkeys(("ready", "not_ready", "unschedulable"), 0)
        for node in cluster.nodes().values():
            states["ready" if node.ready else "not_ready"] += 1
            states["unschedulable"] += node.unschedulable
        yield _by("nodes", "Nodes of the cluster.", "state", states)
        if inspection.scheduler is not None:
            queue = inspection.scheduler.queue()
            sizes = {state: getattr(queue, state) for state in _QUEUES}
            yield _by("pending_pods", "Pods that wait to be placed, by queue.", "queue", sizes)
        rescheduler = inspection.rescheduler
        moves = CounterMetricFamily(
            "leadline_moves", "Moves of running pods, by how they ended.", labels=["outcome"]
        )
        for ending, count in rescheduler.endings.items():
            moves.add_metric([ending], count)
        yield moves
        is_paused = rescheduler.journal.is_paused(rescheduler.now_unix_s())
        yield _gauge("rescheduling_paused", "Whether nothing is moved.", is_paused)
        answers = inspection.session.status().answers(inspection.clock.now_s())
        yield _gauge("mqtt_connected", "Whether the broker is connected and answers.", answers)
        dropped = CounterMetricFamily(
            "leadline_traffic_edges_dropped", "Edges that were dropped as there were too many."
        )
        dropped.add_metric([], inspection.traffic_graph.dropped)
        yield dropped
        if inspection.shadow is not None:
            shadows = CounterMetricFamily(
                "leadline_shadow_decisions",
                "Decisions of strategies that decide without effect, by how they compare.",
                labels=["strategy", "result"],
            )
            for key, count in inspection.shadow.counts().items():
                shadows.add_metric(key, count)
            yield shadows
        database = inspection.history.status()
        if database.path is not None:
            yield _gauge("history_size_bytes", "Of the database's files.", database.size_bytes)
            most = database.max_bytes
            yield _gauge("history_limit_bytes", "The largest size of the database.", most)
        is_writable = not database.problem
        yield _gauge("history_writable", "Whether the disk can be written.", is_writable)
        yield _gauge(
            "probe_allowed_link_time_ratio",
            "Share of its link's time that tests may take from each node.",
            source.link_time_share,
        )
        now = inspection.decisions.now()
        unix_s = now.unix_s(now)
        if unix_s is not None:
            yield _gauge("time_seconds", "The controller's wall clock.", unix_s)

    # On any thread.

    def _read_state(self) -> Iterator[Metric]:
        source, telemetry = self._source, self._source.inspection.telemetry
        contradicting = {what: len(nodes) for what, nodes in telemetry.contradicting.items()}
        yield _by(
            "boards_contradicting",
            "Boards whose measurements contradict those of their peers.",
            "what",
            contradicting,
        )
        for (name, label, help_text), counts in zip(
            (
                ("accepted", "kind", "Messages that count, by the kind of their topic."),
                ("refused", "reason", "Messages that do not count, by why."),
            ),
            telemetry.message_counts(),
            strict=True,
        ):
            messages = CounterMetricFamily(
                f"leadline_mqtt_messages_{name}", help_text, labels=[label]
            )
            for key, count in counts.items():
                messages.add_metric([key], count)
            yield messages
        history = source.inspection.history
        waiting = max(0, history.waiting_bytes())
        yield _gauge("history_waiting_bytes", "What waits to be written, about.", waiting)
        losses = CounterMetricFamily(
            "leadline_history_losses", "What was not kept, by what it was.", labels=["what"]
        )
        for what, count in history.losses().items():
            losses.add_metric([what], count)
        yield losses
        ends = {each.setting: each.ends_unix_s() for each in source.inspection.certificates}
        yield _by(
            "certificate_expiry_timestamp_seconds",
            "When the certificates end that the controller uses.",
            "use",
            {setting: end for setting, end in ends.items() if end is not None},
        )

    def _each(self, openmetrics: bool) -> Iterator[str]:
        """The metrics with a series for each board, link or account."""
        inspection, settings = self._source.inspection, self._source.settings
        yield from _boards(inspection.telemetry.boards(inspection.clock.now_s()), openmetrics)
        links = inspection.telemetry.pairs(inspection.clock.now_s(), by_broker=False)
        if settings.every_link:
            most, anchors, self._shown = len(links.names), [], frozenset()
        else:
            most, anchors = settings.peers, list(self._source.anchors)
        boards, peers, pairs = nearest(
            links.names, links.ends, links.near_ms, most, anchors, self._shown
        )
        boards, peers, pairs = (each[:_MAX_LINKS] for each in (boards, peers, pairs))
        names = np.array(links.names, dtype=object)
        ends = list(zip(names[boards].tolist(), names[peers].tolist(), strict=True))
        self._shown = frozenset(ends)
        yield from _links(links, ends, pairs)
        budget = inspection.probe_scheduler.budget(inspection.clock.now_s())
        for prefix, label, accounts in (
            ("probe", "node", budget.nodes),
            ("uplink_probe", "uplink", budget.uplinks),
        ):
            labels = [f'{{{label}="{_escaped(account.name)}"}}' for account in accounts]
            for name, (text, value) in _SPENDING.items():
                values = [float(value(account)) for account in accounts]
                yield _lines(f"{prefix}_{name}", text, labels, values)
        running = len(budget.running)
        yield _lines("probe_running_tests", "Bandwidth tests in progress.", [""], [running])
        yield from _traffic(inspection.traffic_graph.edges(inspection.clock.now_s()))


@dataclass(frozen=True, slots=True)
class _Metrics(Collector):
    """What the library encodes."""

    families: Sequence[Metric]
    instruments: Instruments

    def collect(self) -> Iterable[Metric]:
        yield from self.families
        yield from self.instruments.registry.collect()


def _boards(table: BoardTable, openmetrics: bool) -> Iterator[str]:
    labels = [f'{{node="{_escaped(name)}"}}' for name in table.names]
    infos = [
        f'{{node="{_escaped(agent.node)}",model="{_escaped(agent.hardware_model)}",'
        f'agent_version="{_escaped(agent.version)}"}}'
        for agent in table.agents
    ]
    yield _lines("board_info", "Always 1.", infos, [1.0] * len(infos))
    online = [math.nan if a.online is None else float(a.online) for a in table.agents]
    yield _lines("board_online", "Whether the agent is connected.", labels, online)
    ages_s = np.where(np.isfinite(table.age_s), np.maximum(table.age_s, 0.0), math.nan)
    help_text = "Since the newest report was measured."
    yield _lines("board_report_age_seconds", help_text, labels, ages_s.tolist())
    for column, (name, help_text, factor) in _COLUMNS.items():
        if column in table.columns:
            values = (table.columns[column] * factor).tolist()
            yield _lines(f"board_{name}", help_text, labels, values)
    is_known = ~np.isnan(table.columns["bandwidth_mbps"])
    bounds = np.where(is_known, table.is_bound, math.nan).tolist()
    help_text = "Whether the link can do more than its bandwidth, nobody knows how much."
    yield _lines("board_bandwidth_lower_bound", help_text, labels, bounds)
    for flag, help_text in _FLAGS.items():
        flags = [
            math.nan if reading is None else float(reading.flags.get(flag, math.nan))
            for reading in table.reports
        ]
        yield _lines(f"board_{flag}", help_text, labels, flags)
    success = [
        (f'{label[:-1]},collector="{_escaped(collector)}"}}', float(is_well))
        for label, reading in zip(labels, table.reports, strict=True)
        if reading is not None
        for collector, is_well in reading.collectors.items()
    ]
    help_text = "Whether the collector read what it must; a probe has one only when it failed."
    names, values = [name for name, _ in success], [is_well for _, is_well in success]
    yield _lines("board_collector_success", help_text, names, values)
    help_text = "Messages that the board sent and that never came."
    yield _lines(
        "board_lost_messages", help_text, labels, table.lost, "counter", openmetrics=openmetrics
    )


def _traffic(edges: Sequence[TrafficEdge]) -> Iterator[str]:
    """The largest of these edges, the largest first."""
    shown = [
        (
            f'{{source="{_escaped(edge.source.name)}",'
            f'destination="{_escaped(edge.destination.name)}",port="{edge.port}"}}',
            rates,
        )
        for edge in edges[:_MAX_EDGES]
        if (rates := edge.rates.get(MINUTE_S)) is not None
    ]
    labels = [label for label, _ in shown]
    for name, help_text, values in (
        ("bytes", "Both directions.", [each.mbps * _BYTES_PER_MBIT for _, each in shown]),
        ("packets", "Both directions.", [each.packets_per_s for _, each in shown]),
        ("connections", "Those that began.", [each.connections_per_s for _, each in shown]),
    ):
        yield _lines(f"traffic_{name}_per_second", help_text, labels, values)


def _links(links: PairTable, ends: Sequence[tuple[str, str]], pairs: Ints) -> Iterator[str]:
    """The links between these boards and peers, which are the pairs with these indexes."""
    escaped = {name: _escaped(name) for name in links.names}
    bare = [f'{{node="{escaped[a]}",peer="{escaped[b]}"' for a, b in ends]
    labels = [f"{each}}}" for each in bare]
    stale = links.is_stale[pairs].tolist()
    sourced = [
        f'{each},source="{"stale" if is_stale else "measured"}"}}'
        for each, is_stale in zip(bare, stale, strict=True)
    ]
    is_lost = np.isinf(links.rtt_ms)
    rtt_ms = np.where(is_lost, math.nan, links.rtt_ms)
    rtt_s, error_s = ((each[pairs] / 1000).tolist() for each in (rtt_ms, links.error_ms))
    yield _lines("link_rtt_seconds", "Round trip.", sourced, rtt_s)
    help_text = "The true round trip is within this of it in 90 % of the pairs."
    yield _lines("link_rtt_error_seconds", help_text, labels, error_s)
    loss = links.loss[pairs].tolist()
    yield _lines("link_loss_ratio", "Share of packets lost.", labels, loss)
    mbps = (links.tested.get((a, b) if a < b else (b, a), math.nan) for a, b in ends)
    values = [each * _BYTES_PER_MBIT for each in mbps]
    help_text = "Of the last bandwidth test between the two."
    yield _lines("link_bandwidth_bytes_per_second", help_text, labels, values)
    counts: Floats = np.array(
        [
            np.count_nonzero(~is_lost & ~links.is_stale),
            np.count_nonzero(links.is_stale),
            np.count_nonzero(is_lost),
        ],
        dtype=np.float64,
    )
    sources = [f'{{source="{each}"}}' for each in ("measured", "stale", "unreachable")]
    yield _lines("links", "Pairs of boards, by what is known.", sources, counts.tolist())


def _lines(
    name: str,
    help_text: str,
    labels: Sequence[str],
    values: Sequence[float],
    kind: str = "gauge",
    *,
    openmetrics: bool = False,
) -> str:
    """A metric in either text format, whose only difference here is the name of a counter. NaN is
    unknown and has no line."""
    sample = f"leadline_{name}{'_total' if kind == 'counter' else ''}"
    shown = f"leadline_{name}" if openmetrics else sample
    lines = [f"# HELP {shown} {help_text}\n# TYPE {shown} {kind}\n"]
    lines += [
        f"{sample}{label} {value:.7g}\n"
        for label, value in zip(labels, values, strict=True)
        if value == value
    ]
    return "".join(lines)


def _escaped(text: str) -> str:
    """The text as the value of a label."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"leadline_{name}", help_text, value=float(value))


def _by(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(name, help_text, [({label: key}, value) for key, value in values.items()])


def _labelled(
    name: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> Metric:
    family = Metric(f"leadline_{name}", help_text, "gauge")
    for labels, value in samples:
        family.add_sample(family.name, dict(labels), float(value))
    return family

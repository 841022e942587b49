"""What a snapshot of a live cluster states beyond what people write into one by hand: see
docs/snapshots.md for each field. Raises FieldError for what no writer would have written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

import numpy as np
from msgspec import Struct

from leadline_controller.framework.assumed_load import Expectations, Lives, PodUse
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import Layer
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.options import OptionValue
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Starts
from leadline_controller.framework.view import AssumedLoad, ClusterView, Floats, Ints, NodeTable
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.typed import decode
from leadline_controller.telemetry.coordinates import (
    DIMENSIONS,
    Coordinates,
    EstimatesOf,
    RttEstimates,
    Trials,
)

MAX_VALUE = 1e15  # far above any measurement; sums and squares stay finite
_MAX_COUNT = 10**6
NODE_FIELDS = (
    *("metric_ages_s", "metrics_with_assumed", "bandwidth_is_bound", "bandwidth_most_mbps"),
    *("bandwidth_host_limited", "recently_placed", "rates_unknown", "placed_in_run"),
    *("charged_in_run", "features", "download_queue", "pulls", "addresses"),
    *("throttling", "throttling_error", "absence_ms"),
)


@dataclass(frozen=True, slots=True)
class StatedRule:
    """By what the cluster decided; None or empty where the file does not say."""

    strategy: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    preferences: str | float | None = None  # as the setting
    letter: bool = False
    assumed_load: bool = True
    seed: int | None = None


_MOST_ENDED = 2**53  # a whole number up to this is exact


def read_rule(root: Fields) -> StatedRule | None:
    """The rule, None if the file has none."""
    if not root.has("rule"):
        return None
    rule = root.object("rule")
    rule.only("strategy", "options", "preferences", "letter", "assumed_load", "seed")
    options = rule.object("options")
    for name, value in options.data.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise options.error(name, "a number or a word")
    preferences = rule.raw("preferences")
    if preferences is not None and preferences not in ("on", "off"):
        # YAML reads these words without quotes as true and false.
        preferences = (
            {True: "on", False: "off"}[preferences]
            if isinstance(preferences, bool)
            else rule.number("preferences")
        )
    return StatedRule(
        strategy=rule.text("strategy") if rule.has("strategy") else None,
        options=dict(options.data),
        preferences=preferences,
        letter=rule.flag("letter", default=False),
        assumed_load=rule.flag("assumed_load", default=True),
        seed=rule.integer("seed", -(2**63), 2**63),
    )


def columns_of(entries: Sequence[Fields], name: str, *, capped: bool = False) -> dict[str, Floats]:
    """Of each of METRICS the numbers in this field, NaN where there is none. capped: whether a
    share is at most 100 %."""
    measured = [entry.object(name) for entry in entries]
    for metrics in measured:
        metrics.only(*METRICS)

    def column(metric: str) -> Floats:
        highest = 100.0 if capped and metric.endswith("_percent") else MAX_VALUE
        numbers = [metrics.number(metric, highest) for metrics in measured]
        return np.array([nan if v is None else v for v in numbers], dtype=np.float64)

    return {metric: column(metric) for metric in METRICS}


def read_metrics(entries: Sequence[Fields]) -> NodeMetrics:
    """What was measured. Times are on a clock on which the snapshot was taken at 0."""

    def known(name: str) -> bool:
        return any(entry.has(name) for entry in entries)

    metrics = NodeMetrics.of(columns_of(entries, "metrics", capped=True))
    if known("metric_errors"):
        errors = columns_of(entries, "metric_errors", capped=True)
        metrics = replace(metrics, errors=np.nan_to_num(np.stack(tuple(errors.values()), axis=1)))
    if known("metric_ages_s"):
        ages_s = np.stack(tuple(columns_of(entries, "metric_ages_s").values()), axis=1)
        metrics = replace(metrics, measured_at_s=np.where(np.isnan(ages_s), -np.inf, -ages_s))
    if known("bandwidth_is_bound"):
        is_bound = [entry.flag("bandwidth_is_bound", default=False) for entry in entries]
        stated = _numbers(entries, "bandwidth_most_mbps")
        most = np.where(is_bound, np.where(np.isnan(stated), np.inf, stated), nan)
        measured = metrics.bandwidth_mbps
        most = np.where(np.isnan(most) | np.isnan(measured), measured, most)
        metrics = replace(metrics, bandwidth_most_mbps=most)
    if known("bandwidth_host_limited"):
        limited = [entry.flag("bandwidth_host_limited", default=False) for entry in entries]
        metrics = replace(metrics, bandwidth_host_limited=np.array(limited, dtype=np.bool_))
    if known("throttling") or known("throttling_error"):
        times = np.maximum(np.nan_to_num(_numbers(entries, "throttling"), nan=1.0), 1.0)
        error = np.nan_to_num(_numbers(entries, "throttling_error"))
        metrics = replace(metrics, throttling=times, throttling_error=error)
    if known("absence_ms"):
        absence_ms = np.nan_to_num(_numbers(entries, "absence_ms"))
        metrics = replace(metrics, absence_ms=absence_ms)
    return metrics


def _numbers(entries: Sequence[Fields], name: str) -> Floats:
    values = [entry.number(name, MAX_VALUE) for entry in entries]
    return np.array([nan if value is None else value for value in values], dtype=np.float64)


def counts(entries: Sequence[Fields], name: str) -> Ints:
    """A whole number of each node, 0 where there is none."""
    return np.array([x.integer(name, 0, _MAX_COUNT) or 0 for x in entries], dtype=np.int64)


def charged(entries: Sequence[Fields]) -> dict[str, Ints]:
    """What this run's pods are charged beyond their requests, base units by resource; a charge may
    be less than the request."""
    each = [entry.object("charged_in_run") for entry in entries]
    names = sorted({name for amounts in each for name in amounts.data})
    limit = 2**53
    return {
        name: np.array([of.integer(name, -limit, limit) or 0 for of in each], dtype=np.int64)
        for name in names
    }


def with_load(view: ClusterView, root: Fields, entries: Sequence[Fields]) -> ClusterView:
    """The view in which what is assumed of pods counts, as the file states it. The same view if it
    states nothing."""
    stated = {"metrics_with_assumed", "rates_unknown", "recently_placed"}
    expects = root.has("expected_use") or root.has("starts")
    if not expects and not any(stated & x.data.keys() for x in entries):
        return view
    sums = columns_of(entries, "metrics_with_assumed")
    summed = [
        np.where(np.isnan(sums[name]), getattr(view.metrics, name), sums[name]) for name in METRICS
    ]
    expected = read_expectations(root)
    return replace(
        view,
        metrics=view.metrics.with_values(summed),
        assumed=AssumedLoad(view.metrics, expected, counts(entries, "rates_unknown")),
        recently_placed=counts(entries, "recently_placed"),
    )


def read_expectations(root: Fields) -> Expectations:
    """What pods are expected to use, by workload."""
    usage: dict[Service, tuple[float, float]] = {}
    learned: dict[Service, PodUse] = {}
    lives: dict[Service, Lives] = {}
    usual_s: dict[Service, float] = {}
    for entry in root.objects("expected_use"):
        entry.only("namespace", "labels", "uid", "measured", "learned", "lives", "start_s")
        workload = read_workload(entry)
        if entry.has("measured"):
            cpu_cores, memory_bytes = _use(entry.object("measured"), PodUse._fields[:2])
            usage[workload] = cpu_cores, memory_bytes
        if entry.has("learned"):
            learned[workload] = PodUse(*_use(entry.object("learned"), PodUse._fields))
        if entry.has("lives"):
            stated = entry.object("lives")
            stated.only(*Lives._fields)
            lives[workload] = Lives(
                stated.number("ran_s", MAX_VALUE) or 0.0,
                stated.integer("ended", 0, _MOST_ENDED) or 0,
            )
        if entry.has("start_s"):
            usual_s[workload] = entry.number("start_s", MAX_VALUE) or 0.0
    stated = root.object("starts")
    stated.only("others_s", "classes")
    factors = dict(map(_factor, stated.objects("classes")))
    others_s = stated.number("others_s", MAX_VALUE) or 0.0
    return Expectations(usage, learned, lives, Starts(usual_s, factors, others_s))


def _factor(entry: Fields) -> tuple[str, float]:
    entry.only("class", "factor")
    return entry.text("class"), entry.number("factor", MAX_VALUE) or 0.0


def read_workload(entry: Fields) -> Service:
    """The workload with this namespace and these labels, or this uid of a pod or its owner."""
    pairs = entry.text_map("labels").items()
    if entry.has("uid"):
        pairs = {"": entry.text("uid")}.items()
    return entry.text("namespace"), frozenset(pairs)


def _use(use: Fields, names: Sequence[str]) -> tuple[float, ...]:
    use.only(*names)
    values = (use.number(name, MAX_VALUE) for name in names)
    return tuple(nan if value is None else value for value in values)


def with_queues(
    images: ImageTable, entries: Sequence[Fields], sizes_mb: Mapping[str, float]
) -> ImageTable:
    """With the download queues and the speeds of pulls that nodes state."""
    queued = {digest: set(nodes) for digest, nodes in images.queued.items()}
    queue_mb, queue_s = dict(images.queue_mb), dict(images.queue_s)
    for at, entry in enumerate(entries):
        queue = entry.object("download_queue")
        queue.only("layers", "mb", "ready_s")
        layers = queue.texts("layers")
        for digest in layers:
            queued.setdefault(digest, set()).add(at)
        size_mb = queue.number("mb", MAX_VALUE)
        if size_mb is None and layers:
            size_mb = sum(sizes_mb.get(digest, 0.0) for digest in layers)
        if size_mb is not None:
            queue_mb[at] = size_mb
        if (ready_s := queue.number("ready_s", MAX_VALUE)) is not None:
            queue_s[at] = ready_s
    pulls = [entry.object("pulls") for entry in entries]
    for each in pulls:
        each.only("mbps", "overhead_s", "delay_s")
    columns = {name: _numbers(pulls, name) for name in ("mbps", "overhead_s", "delay_s")}
    if any(each.data for each in pulls):
        images = replace(
            images,
            pull_mbps=columns["mbps"],
            overhead_s=columns["overhead_s"],
            delay_s=columns["delay_s"],
        )
    return replace(
        images,
        queued={digest: frozenset(nodes) for digest, nodes in queued.items()},
        queue_mb=queue_mb,
        queue_s=queue_s,
    )


def by_architecture(
    rows: Sequence[tuple[str, str, tuple[Layer, ...]]],
) -> dict[str, dict[str, tuple[Layer, ...]]]:
    """The layers of images that differ by architecture; rows: name, architecture, layers."""
    found: dict[str, dict[str, tuple[Layer, ...]]] = {}
    for name, architecture, layers in rows:
        if architecture:
            found.setdefault(name, {})[architecture] = layers
    return found


class _Model(Struct):
    nodes: list[str]
    positions_ms: list[list[float]]
    heights_ms: list[float | None]
    pairs: list[tuple[int, int, float]] = []


def read_estimates(root: Fields, table: NodeTable) -> EstimatesOf | None:
    """The model of the round trips that were not measured; None if the file has none."""
    if not root.has("estimates"):
        return None
    stated = root.object("estimates")
    stated.only("nodes", "positions_ms", "heights_ms", "pairs")
    model, where = decode(dict(stated.data), _Model, stated.path), stated.path
    count = len(model.nodes)
    if len(set(model.nodes)) < count:
        raise FieldError(f"{where}.nodes: expected each node once")
    lengths = {len(model.positions_ms), len(model.heights_ms), count}
    if len(lengths) > 1 or any(len(each) != DIMENSIONS for each in model.positions_ms):
        raise FieldError(
            f"{where}: expected {DIMENSIONS} coordinates in positions_ms, and one of heights_ms, "
            "for each of nodes"
        )
    if not all(abs(each) <= MAX_VALUE for place in model.positions_ms for each in place):
        raise FieldError(f"{where}.positions_ms: expected finite numbers")
    if not all(each is None or 0 < each <= MAX_VALUE for each in model.heights_ms):
        raise FieldError(f"{where}.heights_ms: expected finite numbers above 0, or null")
    for number, (a, b, ms) in enumerate(model.pairs):
        if not (0 <= a < count and 0 <= b < count and a != b and 0 < ms <= MAX_VALUE):
            raise FieldError(
                f"{where}.pairs[{number}]: expected two places in nodes, and milliseconds above 0"
            )
    ends = np.array([(a, b) for a, b, _ in model.pairs], dtype=np.int64).reshape(-1, 2)
    heights_ms = [nan if each is None else each for each in model.heights_ms]
    estimates = RttEstimates(
        tuple(model.nodes),
        ends,
        np.array([ms for *_, ms in model.pairs], dtype=np.float64),
        Coordinates(
            np.array(model.positions_ms, dtype=np.float64).reshape(-1, DIMENSIONS),
            np.array(heights_ms, dtype=np.float64),
        ),
        Trials(),
    )
    return EstimatesOf(estimates, table.names)

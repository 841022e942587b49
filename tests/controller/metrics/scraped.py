"""What Prometheus reads of a controller."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from leadline_controller.framework.model import Pod
from leadline_controller.history.log import PENDING
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings
from leadline_controller.metrics.instruments import Instruments
from leadline_controller.metrics.reader import MetricsReader, MetricsSource
from leadline_controller.scheduling.queue import QueueStatus
from leadline_controller.serve.certificates import CertificateFile
from leadline_controller.serve.settings import MetricsSettings
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.session import BrokerStatus
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.controller.inspect.harness import ControllerHarness, FakeParts, example_controller
from tests.controller.traffic.traffic_builder import Cluster, flow, replica


def controllers_metrics(folder: Path) -> str:
    """What a controller writes that has every metric."""
    harness = example_controller()
    flags = {"throttled": False, "under_voltage": False}
    reading = BoardReading({"cpu_celsius": 40.0, "used_mbps": 1.0}, flags=flags)
    harness.telemetry.report("n1", harness.stamp("n1"), reading)
    harness.telemetry.count_refusal("topic")
    harness.telemetry.accepted_kinds["report"] += 1
    instruments = Instruments()
    harness.decisions._sink = instruments.count
    harness.place(Pod("default", "huge", uid="u", requests={"cpu": 10**9}), PENDING)
    harness.source.shadow = SimpleNamespace(counts=lambda: {("netsched", "same"): 3})
    history = Recorder(HistorySettings(folder / "decisions.db"))
    web, db = replica("web", 1, 5), replica("db", 2, 6)
    cluster = Cluster(2, [web, db])
    cluster.report("n1", flow(web.ip, db.ip))
    cluster.update()
    parts = replace(known(harness), history=history, traffic_graph=cluster.graph)
    source = MetricsSource(parts, instruments, MetricsSettings())
    return MetricsReader(source).begin()(False).decode()


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class _Certificate(CertificateFile):
    def ends_unix_s(self) -> float:
        return 2e9


def known(harness: ControllerHarness) -> FakeParts:
    """The harness' controller, with a queue, a broker and a certificate."""
    broker = BrokerStatus("broker:8883", True, since_s=0.0, heard_s=harness.now_s)
    return replace(
        harness.source,
        queue=QueueStatus(active=2),
        broker=broker,
        certificates=[_Certificate("broker.tls.cert_file", Path("/broker.crt"))],
    )


def reader(harness: ControllerHarness, **changed: Any) -> MetricsReader:
    settings = MetricsSettings("127.0.0.1:0", None, **changed)
    return MetricsReader(MetricsSource(known(harness), Instruments(), settings))


def samples(families: Iterable[Any]) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def read(reader: MetricsReader) -> Samples:
    return samples(read_text(reader.begin()(False).decode()))


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((f"leadline_{name}", frozenset(labels.items())), math.nan)

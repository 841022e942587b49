"""What a scrape of a controller costs at 1,000 boards and an interval of 15 s: CPU time and bytes.

Beside it, the same samples encoded by the official client library alone.
"""

import gzip
import time
from collections.abc import Callable
from functools import partial
from random import Random

from leadline_controller.framework.ports import Relisted
from leadline_controller.metrics.instruments import Instruments
from leadline_controller.metrics.reader import MetricsReader, MetricsSource
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.serve.settings import MetricsSettings
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import decode
from leadline_controller.telemetry.paths import PingRound
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.controller.inspect.harness import ControllerHarness, account, node
from tests.support.boards import report

BOARDS, PEERS, ROUNDS = 1000, 16, 5
INTERVAL_S = 15.0


class _Encoded:
    """Samples that the library has read."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def main() -> None:
    """Measure and print."""
    reader = MetricsReader(source(BOARDS))
    text = reader.begin()(True)
    print(f"{BOARDS} boards, {PEERS} measured peers of each")
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    packed = len(gzip.compress(text, 1)) / 1e6
    print(f"{samples} samples, {len(text) / 1e6:.2f} MB, compressed {packed:.2f} MB")
    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    library = partial(generate_latest, _Encoded(list(families)))
    for what, call in (
        ("in the event loop", reader.begin),
        ("in the thread", partial(reader.begin(), True)),
        ("the library alone encodes", library),
    ):
        took_s = least_s(call)
        share = 100 * took_s / INTERVAL_S
        print(f"{what:26} {1000 * took_s:7.1f} ms, {share:.2f} % of a core")


def least_s(call: Callable[[], object]) -> float:
    """The CPU time of the quickest of some calls."""
    took_s = []
    for _ in range(ROUNDS):
        begun_s = time.process_time()
        call()
        took_s.append(time.process_time() - begun_s)
    return min(took_s)


def source(boards: int) -> MetricsSource:
    """A controller that has heard this many boards, each of which pings PEERS others."""
    harness, random = ControllerHarness(), Random(1)
    names = [f"board-{number:04}" for number in range(boards)]
    harness.cluster.apply(Relisted(tuple(node(name) for name in names), ()))
    for name in names:
        agent = Agent(name, version="0.1.0", hardware_model="Raspberry Pi 4 Model B Rev 1.4")
        harness.telemetry.birth(agent, harness.stamp(name))
        told = report(1)
        told.cpu.busy_percent, told.temperature.cpu_celsius = random.random() * 100, 40.3
        harness.telemetry.report(name, harness.stamp(name), decode(told))
    for at, name in enumerate(names):
        peers = [names[(at + random.randrange(1, boards)) % boards] for _ in range(PEERS)]
        rounds = {peer: PingRound(random.uniform(0.2, 30.0), 5, 5) for peer in peers}
        harness.telemetry.rtts(name, harness.stamp(name), rounds)
        test = BandwidthTest(name, peers[0], random.uniform(5.0, 940.0), 1.0, harness.now_s)
        harness.telemetry.bandwidth(test)
    harness.telemetry.estimate_rtts(harness.now_s)
    harness.budget = ProbingStatus(nodes=tuple(account(name) for name in names))
    settings = MetricsSettings("127.0.0.1:0")
    return MetricsSource(harness.source, Instruments(), settings, anchors=names[:1])

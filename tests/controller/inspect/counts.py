"""Traffic that boards are said to have counted, in place of the graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.services import workload_name
from leadline_controller.traffic.edges import HOUR_S, MINUTE_S, End, Rates, TrafficEdge


@dataclass
class FakeCounts:
    """The edges and reports of a test, whenever they are asked for."""

    counted: list[TrafficEdge] = field(default_factory=list)
    ages_s: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0

    def edges(self, now_s: float) -> list[TrafficEdge]:
        assert now_s > 0
        return self.counted

    def reporting(self, now_s: float) -> Mapping[str, float]:
        assert now_s > 0
        return self.ages_s


def end_of(pod: Pod) -> End:
    """The workload of a pod."""
    return End(workload_name(pod), workload_of(pod))


def edge(
    source: End,
    destination: End,
    mbps: float = 10.0,
    *,
    requests_per_s: tuple[float, float] = (2.0, 30.0),
    counted_s: float = 0.0,
    one_sided: bool = False,
    port: int = 80,
) -> TrafficEdge:
    """As much in the last minute, and half of it in the hour; a day is not known."""
    return TrafficEdge(
        source,
        destination,
        port=port,
        rates={MINUTE_S: Rates(mbps, 100 * mbps, 3.0), HOUR_S: Rates(mbps / 2, 50 * mbps, 1.5)},
        requests_per_s=requests_per_s,
        counted_s=counted_s,
        one_sided=one_sided,
    )

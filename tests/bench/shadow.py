"""What a shadow costs: pods bound a second, and how long a decision takes, with and without one.

The real scheduler binds a burst on a cluster in memory, so nothing else takes time. The rounds with
and without a shadow take turns, as the machine's speed varies. In a burst the shadow has its share
of a core at most, and beside the API server's answers a real scheduler has time for it.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from leadline_controller import wiring
from leadline_controller.framework.model import CPU, PODS, Pod, PodAnnotations
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.scheduling.shadow import SAME, SKIPPED, ShadowSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.sequence import Stamp

from tests.bench.decision import cluster
from tests.support.memory_cluster import MemoryCluster
from tests.support.tasks import until

SIZES, BURST, ROUNDS = (20, 100, 1000), 500, 5
SHADOWS = ("netsched", "response-time")
_SWITCH_INTERVAL_S = 0.0005  # the daemon's


@dataclass(frozen=True)
class Round:
    """A burst: its rate, the median decision, the 99th percentile, and the decisions seen."""

    bound_per_s: float
    decide_ms: float
    slow_ms: float
    seen: float


async def burst(size: int, shadows: Sequence[str], share: float) -> Round:
    """Bind the burst with these shadows."""
    nodes = cluster(size).table.nodes
    there = MemoryCluster(nodes)
    settings = Settings(
        strategy="dacs", seed=1, warm_up_s=0.0, shadow=ShadowSettings(tuple(shadows), share)
    )
    controller = wiring.Controller(settings, there)
    telemetry, now_s = controller.telemetry, controller.clock.now_s()
    telemetry.set_members({each.name for each in nodes}, now_s)
    for number, each in enumerate(nodes):
        values = {name: float(1 + number % 50) for name in METRICS[:-1]}
        telemetry.report(each.name, Stamp(bytes(16), 1, 1, 1, now_s), BoardReading(values))
    took_ms = list[float]()
    decide = controller.step.decide

    def timed(*given: object) -> object:
        begun_s = time.perf_counter()
        found = decide(*given)  # type: ignore[arg-type]
        took_ms.append(1000 * (time.perf_counter() - begun_s))
        return found

    controller.step.decide = timed  # type: ignore[method-assign,assignment]
    async with controller.storing_decisions(), wiring.running(*controller.placing()):
        await until(lambda: controller.state.listed)
        begun_s = time.perf_counter()
        for number in range(BURST):
            there.put_pod(a_pod(number, size))
        await until(lambda: len(took_ms) >= BURST and all(each.node_name for each in there.pods))
        took_s = time.perf_counter() - begun_s
        counts = controller.shadow.counts() if controller.shadow is not None else {}
    skipped = sum(count for (name, what), count in counts.items() if what == SKIPPED)
    seen = 1 - skipped / max(1, BURST * len(shadows))
    assert not shadows or any(what == SAME for _, what in counts)
    return Round(BURST / took_s, median(took_ms), quantiles(took_ms, n=100)[98], seen)


def a_pod(number: int, size: int) -> Pod:
    """A small pod with a user."""
    user = PodAnnotations(user_node=f"node-{number * 37 % size}", data_mb=1.0)
    return Pod(
        "default",
        f"pod-{number}",
        f"uid-{number}",
        {CPU: 1, PODS: 1},
        labels={"app": f"app-{number % 5}"},
        annotations=user,
    )


def main() -> None:
    """Print the table."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    logging.disable(logging.WARNING)
    print(
        f"a burst of {BURST} pods, dacs, shadows {', '.join(SHADOWS)}; medians of {ROUNDS} rounds"
    )
    print(
        f"{'nodes':>6}{'share':>7}{'bound/s':>9}{'without':>9}{'ratio':>7}{'decision ms':>13}",
        end="",
    )
    print(f"{'without':>9}{'p99 ms':>8}{'without':>9}{'seen %':>8}")
    for size in SIZES:
        for share in (0.1, 0.5):
            rounds: dict[tuple[str, ...], list[Round]] = {SHADOWS: [], (): []}
            for number in range(ROUNDS):
                for shadows in (SHADOWS, ()) if number % 2 else ((), SHADOWS):
                    rounds[shadows].append(asyncio.run(burst(size, shadows, share)))
            beside, alone = rounds[SHADOWS], rounds[()]
            rate, bare = (median(each.bound_per_s for each in x) for x in (beside, alone))
            ratio = median(
                a.bound_per_s / b.bound_per_s for a, b in zip(beside, alone, strict=True)
            )
            ms, bare_ms = (median(each.decide_ms for each in x) for x in (beside, alone))
            slow, bare_slow = (median(each.slow_ms for each in x) for x in (beside, alone))
            seen = 100 * median(each.seen for each in beside)
            print(
                f"{size:>6,}{share:>7}{rate:>9.0f}{bare:>9.0f}{ratio:>7.2f}{ms:>13.3f}{bare_ms:>9.3f}"
                f"{slow:>8.2f}{bare_slow:>9.2f}{seen:>8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

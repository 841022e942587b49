"""What a bandwidth test's result, a report and a plan cost, over 100, 1,000 and 10,000 boards.

Beliefs as in a cluster that has run for a while: each board was in some tests. A result that agrees
is usual; one that does not weighs the tests of all peers anew. A plan is of all boards, or of 500
at a time, as the scheduler makes one for more.
"""

import time
from collections.abc import Callable
from random import Random
from statistics import median

from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget
from leadline_controller.telemetry.bandwidth import NodeBandwidths
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.link_bandwidth import NodeLink

SIZES = (100, 1000, 10_000)
PLANNED_AT_ONCE = 500
TIMES = 200


def us(run: Callable[[int], object], times: int = TIMES) -> float:
    """The median microseconds of a run."""
    taken = []
    for turn in range(times):
        start = time.perf_counter()
        run(turn)
        taken.append(time.perf_counter() - start)
    return median(taken) * 1e6


def main() -> None:
    """One row for each size."""
    print(f"{'':>8}{'agrees':>10}{'does not':>10}{'report':>10}{'plan':>10}   median us")
    for size in SIZES:
        print(row(size), flush=True)


def row(size: int) -> str:
    """The costs with so many boards."""
    random, names = Random(1), [f"n{at:05}" for at in range(size)]  # no secret
    speeds: dict[str, float | None] = dict.fromkeys(names, 100.0)
    bandwidths, now_s = NodeBandwidths(1800.0), 0.0

    def test(mbps: float, seconds: float) -> None:
        nonlocal now_s
        now_s += 22.0 / size
        client, server = random.sample(names, 2)
        bandwidths.add(BandwidthTest(client, server, mbps, seconds, now_s, 0.4), speeds)

    for _ in range(4 * size):
        test(95.0, 0.01)
    agrees = us(lambda _: test(95.0, 0.003))
    contradicts = us(lambda _: test(5.0, 0.1))
    report = us(lambda turn: bandwidths.carry(names[turn % size], 20.0, 100.0, now_s))
    planner = BandwidthPlanner(BandwidthBudget())

    def plan(turn: int) -> None:
        first = turn * PLANNED_AT_ONCE % size
        links = [
            NodeLink(
                *(name, 100.0, bandwidths.of(name, now_s)),
                belief=bandwidths.belief(name, now_s),
                last_peer=bandwidths.last_peer(name),
                is_measured=bandwidths.is_measured(name),
            )
            for name in names[first : first + PLANNED_AT_ONCE]
        ]
        at_s = now_s + turn / 2
        for number, each in enumerate(planner.plan(links, lambda *_: 0.4, at_s)):
            planner.start(each, f"{turn}-{number}", at_s, at_s + 0.4)

    for turn in range(2 * size // PLANNED_AT_ONCE + 20):  # until what is due waits for its budget
        plan(turn)
    costs = (agrees, contradicts, report, us(lambda turn: plan(turn + 1000), 40))
    return f"{size:>8,}" + "".join(f"{each:>10,.0f}" for each in costs)


if __name__ == "__main__":
    main()

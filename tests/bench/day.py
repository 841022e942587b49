"""A simulated day of many boards: what the tests of bandwidth break, and what they cost.

The real planner, leases, grants, ingestor and state, and the agents' real rules, on a simulated
clock: see tests/controller/probing/day.py. An auditor that sees only the transfers counts overlaps,
budgets that were exceeded, and boards whose bandwidth is unknown without a reason. The planner
ticks twice a second, as in the controller, unless the line says otherwise.

One run: `python -m tests.bench.day boards=5000 hours=24`.
"""

import gc
import logging
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.telemetry.state import TimesToLive

from tests.controller.probing.day import Day
from tests.controller.probing.day_audit import DAY_S, HOUR_S
from tests.controller.probing.day_boards import Plan

PLANS = (
    Plan(boards=5000, hours=1.0, estimate_every_s=300.0, leader_every_s=1200.0),
    Plan(boards=500, hours=24.0, estimate_every_s=300.0, leader_every_s=7200.0, tick_s=2.0),
)
# Checks each 10 minutes, and reports and pings each 10 to 15 minutes, because a day at the defaults
# has 10 million tests and 400 million messages. The budgets, the leases and all faults are as in an
# hour, and so is what is promised: no bandwidth is older than half an hour.
WHOLE_DAY = Plan(
    boards=5000,
    hours=24.0,
    tick_s=4.0,
    report_every_s=600.0,
    estimate_every_s=3600.0,
    limits=ProbeLimits(interval_s=600.0, ping_interval_s=1800, ping_ttl_s=5400),
    ttl=TimesToLive(report_s=1300.0, rtt_s=6000.0),
)
_SHOWN_EVERY_S = 2 * HOUR_S


def show(plan: Plan) -> None:
    """Run one day and print its table, and those of its parts if it is long."""
    start_s = time.process_time()
    day = Day(plan)
    gc.collect()
    gc.freeze()  # millions of objects that stay

    def part() -> None:
        table(day, time.process_time() - start_s)
        day.after(_SHOWN_EVERY_S, part)

    if plan == WHOLE_DAY:
        day.after(_SHOWN_EVERY_S, part)
    day.run()
    day.now_s = plan.hours * HOUR_S
    table(day, time.process_time() - start_s)


def table(day: Day, took_s: float) -> None:
    """Print what happened up to now. took_s: CPU time."""
    plan, audit, run_s = day.plan, day.audit, day.now_s
    print(
        f"\n{plan.boards:,} boards, {run_s / HOUR_S:g} of {plan.hours:g} h, {len(day.uplinks)} "
        f"declared uplinks, a tick each {plan.tick_s:g} s, a check each "
        f"{plan.limits.interval_s:g} s, seed {plan.seed}: {took_s:.0f} s of CPU"
    )
    budgets = audit.broken_budgets(run_s)
    unknown = audit.minutes
    for what, count in (
        ("tests that transferred", audit.transfers),
        ("overlapping tests on a node or uplink", len(audit.overlaps)),
        ("leases of two leaders on a board at once", len(audit.conflicts)),
        ("leases for a board that waited in vain, refused", len(audit.early)),
        ("leases that ran twice", len(audit.replays)),
        ("budgets broken", len(budgets)),
        ("board-minutes without a bandwidth and a reason", len(audit.overdue)),
    ):
        print(f"  {what:<50}{count:>12,}")
    for line in (*audit.overlaps[:3], *audit.replays[:3], *budgets[:3], *audit.overdue[:3]):
        print(f"    {line}")
    nodes = audit.allowances.keys() - {uplink.name for uplink in day.uplinks}
    uplinks = audit.allowances.keys() - nodes
    print(
        "  of the allowance, %: the median and the most of any; link time in an hour and in 24 h,"
    )
    print("  bytes in 24 h")
    for kind, names in (("nodes", nodes), ("uplinks", uplinks)):
        shares = []
        for name in names:
            allowance = audit.allowances[name]
            hour_s, _ = audit.most(name, HOUR_S)
            day_s, day_bytes = audit.most(name, DAY_S)
            shares.append(
                (
                    hour_s / (allowance.share * min(HOUR_S, run_s)),
                    day_s / (allowance.share * min(DAY_S, run_s)),
                    day_bytes / max(allowance.bytes_per_day, 1),
                )
            )
        for column, label in zip(
            np.array(shares).T, ("hour, link time", "24 h, link time", "24 h, bytes"), strict=True
        ):
            most = f"{100 * np.median(column):.0f} / {100 * column.max():.0f}"
            print(f"    {kind + ', ' + label:<48}{most:>12}")
    total = sum(unknown.values())
    print("  board-minutes, by what the leader knows of the bandwidth")
    for reason, count in unknown.most_common():
        print(f"    {reason:<48}{count:>12,}{100 * count / total:>9.3f} %")
    ages = np.quantile(audit.ages_s, (0.5, 0.99, 1.0)) / 60
    print("  age of a known bandwidth, min: median, 99 %, oldest")
    print(f"    {ages[0]:.1f}, {ages[1]:.1f}, {ages[2]:.1f}")
    noticed = np.array(day.noticed_s)
    seen = noticed[np.isfinite(noticed)]
    if seen.size:
        median, most = np.quantile(seen, (0.5, 0.9))
        print(
            f"  throttled links noticed: {seen.size} of {noticed.size}, "
            f"after {median:.0f} s (median), {most:.0f} s (90 %)"
        )
    print(
        "  faults: " + ", ".join(f"{count:,} {what}" for what, count in sorted(day.counts.items()))
    )
    sys.stdout.flush()


def main(plans: tuple[Plan, ...] = PLANS) -> None:
    """Print the tables."""
    logging.disable(logging.WARNING)
    for plan in plans:
        show(plan)


if __name__ == "__main__":
    given = dict(each.split("=") for each in sys.argv[1:] if "=" in each)
    numbers: dict[str, Any] = {
        key: int(x) if key in ("boards", "seed") else float(x) for key, x in given.items()
    }
    plan = WHOLE_DAY if "whole" in sys.argv[1:] else PLANS[0]
    main((replace(plan, **numbers),) if len(sys.argv) > 1 else PLANS)

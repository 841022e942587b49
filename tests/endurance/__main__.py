"""Endurance: `python -m tests.endurance simulated --hours 72 --boards 200 --seed 0`, which takes
minutes, or `python -m tests.endurance real --minutes 120` on real parts, or
`python -m tests.endurance moves --strategy leadline --strategy dacs`: how often pods move in a
week."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.endurance.moves import RETURN_S, Found
from tests.endurance.moves import Run as MovesRun
from tests.endurance.moves import simulate as simulate_moves
from tests.endurance.samples import HEAD, flat
from tests.endurance.simulated import JOURNAL_MB, Endurance, Run, simulate
from tests.endurance.week_boards import DAY_S
from tests.support.check import Check

SHOWN_LINES = 12


def simulated(run: Run) -> bool:
    """Run it, print its table and what was found. Returns whether all held."""
    print(f"{run.boards} boards for {run.hours:g} simulated hours, seed {run.seed}", flush=True)
    print(HEAD, flush=True)
    begin_s, cpu_s = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="leadline-endurance-") as folder:
        found = simulate(run, Path(folder), partial(print, flush=True))
    took_s, cpu_s = time.monotonic() - begin_s, time.process_time() - cpu_s
    print(f"\n{took_s / 60:.1f} min, {cpu_s / 60:.1f} min of CPU")
    return report(found, run)


def report(found: Endurance, run: Run) -> bool:
    """Print what happened and what was found. Returns whether all held."""
    book = found.book
    waits_s = sorted(book.waits_s)
    if waits_s:
        median_s, late_s = (waits_s[int(len(waits_s) * share)] for share in (0.5, 0.99))
        print(
            f"the last {len(waits_s)} pods waited {median_s:.3f} s (median), {late_s:.1f} s (99 %)"
        )
    print("what happened: " + ", ".join(f"{n:,} {what}" for what, n in found.counts.items()))
    print("the ports: " + ", ".join(f"{n:,} {what}" for what, n in sorted(book.counts.items())))
    print("the log's lines:")
    for line, count in found.log.lines.most_common(SHOWN_LINES):
        print(f"  {count:>9,}  {line}")
    for line in found.log.errors:
        print(f"  {line}")
    print("what must not happen:")
    for what, count in book.violations.items():
        print(f"  {count:>9,}  {what}")
    for line in book.lines:
        print(f"    {line}")
    nothing = Check("bookkeeper", "nothing", f"{sum(book.violations.values())} violations",
                    not book.violations)  # fmt: skip
    return all_held([nothing, *flat(found.samples, (run.max_mb + JOURNAL_MB) << 20)])


MOVES_HEAD = (
    f"{'strategy':<24}{'seed':>5}{'moves':>7}{'back in 2 h':>13}{'in a day':>10}{'network ms':>12}"
    f"{'work ms':>9}{'CPU s':>7}  what was worse"
)


def moves(runs: Iterable[MovesRun], *, lists: bool) -> None:
    """Print a line for each run. lists: and its moves."""
    print(MOVES_HEAD, flush=True)
    for run in runs:
        begin_s = time.process_time()
        found = simulate_moves(run)
        print(moves_line(run, found, time.process_time() - begin_s), flush=True)
        for move in found.moves if lists else ():
            print(f"  {move}")
        for earlier, back in found.returns():
            print(f"  it comes back: {earlier}\n{'':>16} {back}")


def moves_line(run: MovesRun, found: Found, cpu_s: float) -> str:
    """What one run found, below `MOVES_HEAD`. cpu_s: what it took."""
    causes = Counter(move.cause for move in found.moves)
    backs = [sum(1 for _ in found.returns(within_s)) for within_s in (RETURN_S, DAY_S)]
    return (
        f"{run.strategy:<24}{run.seed:>5}{len(found.moves):>7}{backs[0]:>13}{backs[1]:>10}"
        f"{found.network_ms:>12.2f}{found.work_ms:>9.2f}{cpu_s:>7.0f}  "
        + ", ".join(f"{what} {count}" for what, count in causes.most_common())
    )


def all_held(checks: Iterable[Check]) -> bool:
    """Print them all. Returns whether each held."""
    held = True
    for check in checks:
        print(check)
        held = held and check.held
    return held


def main() -> None:
    """Exit code 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    run = Run()
    one = kinds.add_parser("simulated")
    one.add_argument("--hours", type=float, default=run.hours)
    one.add_argument("--boards", type=int, default=run.boards)
    one.add_argument("--seed", type=int, default=run.seed)
    one.add_argument("--churn", type=float, default=run.churn_per_s)
    one.add_argument("--busy-share", type=float, default=run.busy_share)
    one.add_argument("--faults", type=float, default=run.faults)
    one.add_argument("--sample-s", type=float, default=run.sample_s)
    real = kinds.add_parser("real")
    real.add_argument("--minutes", type=float, default=120.0)
    of_week = kinds.add_parser("moves")
    of_week.add_argument("--strategy", action="append")
    of_week.add_argument("--hours", type=float, default=168.0)
    of_week.add_argument("--boards", type=int, default=12)
    of_week.add_argument("--seeds", type=int, default=3)
    of_week.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.kind == "moves":
        runs = (
            MovesRun(strategy, given.hours, given.boards, seed)
            for seed in range(given.seeds)
            for strategy in given.strategy or ("leadline", "dacs")
        )
        moves(runs, lists=given.list)
        sys.exit()
    if given.kind == "simulated":
        run = Run(
            hours=given.hours,
            boards=given.boards,
            seed=given.seed,
            churn_per_s=given.churn,
            busy_share=given.busy_share,
            faults=given.faults,
            sample_s=given.sample_s,
        )
        held = simulated(run)
    else:
        from tests.endurance.real import endure

        held = all_held(endure(given.minutes, partial(print, flush=True)))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()

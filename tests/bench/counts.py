"""How many pods each board gets, by every strategy: before, to the letter of the papers and of what
was measured alone, and after, with what is assumed of pods just placed and with shared points.

Idle, equal boards report each ten seconds; decisions are the controller's own. Three of four links
are slow where it says so. `python -m tests.bench.counts netsched kcss` prints these two.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.strategies import STRATEGIES

from tests.support.loaded_boards import Controller, LoadedBoards, pods

FREE_MBPS, SLOW_MBPS = 93.0, 4.0
AT_ONCE_S, ONE_A_SECOND_S = 0.02, 1.0
DRAWS = {4: 20, 400: 2}
REQUESTS = {CPU: 50, MEMORY: 50 * 1024**2}


def counts(
    name: str, boards: int, count: int, every_s: float, seed: int, *, equal: bool, letter: bool
) -> list[int]:
    """The pods on each board, the fullest first; with unequal links, the free boards first."""
    draw = np.random.default_rng(seed)
    is_free = draw.permutation(boards) < (boards if equal else boards // 4)
    mbps = np.where(is_free, FREE_MBPS, SLOW_MBPS) * draw.normal(1, 0.01, boards)
    controller = Controller(assumes_load=not letter)
    loaded = LoadedBoards(boards, seed, [controller], mbps=mbps.tolist(), rtt_ms=0.5)
    rule = Rule(STRATEGIES[name](), FILTERS, Random(seed), letter=letter)
    for each in pods(count):
        if every_s >= ONE_A_SECOND_S:
            controller.state.run.begin()
        requests = {**each.requests, **REQUESTS}
        loaded.place(replace(each, requests=requests), rule, within_s=every_s)
    found = zip(~is_free, loaded.counts(), strict=True)
    return [pods for _, pods in sorted(found, key=lambda board: (board[0], -board[1]))]


def text(drawn: Sequence[Sequence[int]]) -> str:
    """The first draw's counts, and the most on one board in any draw as a multiple of the mean."""
    first, worst = drawn[0], max(max(each) for each in drawn)
    used = sum(1 for each in first if each)
    shown = "/".join(map(str, first)) if len(first) < 9 else f"{used} used, {max(first)} at most"
    return f"{shown} ({worst / (sum(first) / len(first)):.2f})"


def rows(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What is counted, before and after."""
    for name in names:
        for boards, count in ((4, 30), (4, 90), (400, 300)):
            for pace, every_s in (("at once", AT_ONCE_S), ("one a second", ONE_A_SECOND_S)):
                for links, equal in (("equal", True), ("one in four free", False)):
                    case = name, boards, count, every_s
                    before, after = (
                        text(
                            [
                                counts(*case, seed, equal=equal, letter=letter)
                                for seed in range(DRAWS[boards])
                            ]
                        )
                        for letter in (True, False)
                    )
                    yield f"{name}, {count} on {boards} {pace}, {links}", before, after


def main() -> None:
    """Print the table."""
    print("pods by board in one draw (the most on one board over the mean, in any draw)")
    chosen = [name for name in sys.argv[1:] if name in STRATEGIES]
    for case, before, after in rows(chosen or list(STRATEGIES)):
        print(f"{case:62} {before:32} {after}", flush=True)


if __name__ == "__main__":
    main()

"""What came out of `tests.system.dacs_lab` beside the DACS paper, as tables in Markdown.

python -m tests.system.dacs_report SCENARIO FILE_OF_RUNS
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from leadline_experiments.dacs.claims import BASELINES, COMPLETION_S, FASTEST, GAINS, claims, label
from leadline_experiments.dacs.methods import Key, ScenarioResult
from leadline_experiments.dacs.simulation import ITERATIONS, WORKERS, Outcome, ServedRequest
from leadline_experiments.result import gain_percent

from tests.system.dacs_lab import METHODS, SCENARIOS, STOCK, Run, play

KUBE_DEFAULT: Key = ("kube-default", "")
OURS: Key = ("leadline", "")  # not of the paper


def read(file: Path) -> Iterator[Run]:
    """The runs that a file has."""
    for line in file.read_text().splitlines():
        told = json.loads(line)
        outcome = told.pop("outcome")
        requests = {
            load: [ServedRequest(*each) for each in served]
            for load, served in outcome.pop("requests").items()
        }
        key = tuple(told.pop("key"))
        yield Run(key=key, outcome=Outcome(**outcome, requests=requests), **told)


def without_start(run: Run) -> Run:
    """The run as if all pods had been ready when they were created."""
    requests = {
        load: [
            each._replace(done_s=each.done_s - ready_s)
            for each, ready_s in zip(served, run.ready_s, strict=True)
        ]
        for load, served in run.outcome.requests.items()
    }
    return replace(run, outcome=replace(run.outcome, requests=requests))


def repetitions(number: int, runs: Sequence[Run]) -> list[ScenarioResult]:
    """The nth runs of all methods, in the form of the simulated experiment."""
    by_key: dict[Key, list[Outcome]] = defaultdict(list)
    for run in runs:
        by_key[run.key].append(run.outcome)
    whole = min(map(len, by_key.values()))
    return [
        _result(number, {key: [each[at]] for key, each in by_key.items()}) for at in range(whole)
    ]


def _result(number: int, outcomes: Mapping[Key, Sequence[Outcome]]) -> ScenarioResult:
    table_keys = dict.fromkeys(("nas", "") if key[0] == "nas" else key for key in outcomes)
    return ScenarioResult(SCENARIOS[number], outcomes, tuple(table_keys))


def spread(values: Sequence[float], form: str) -> str:
    """The median, the least and the largest."""
    least, most = format(min(values), form), format(max(values), form)
    return f"{median(values):{form}}" + (f" ({least} to {most})" if least != most else "")


def report(number: int, runs: Sequence[Run]) -> Iterator[str]:
    """All tables of a scenario."""
    yield f"\n## Scenario {number}"
    times = repetitions(number, runs)
    served = spread([run.served_share for run in runs], ".2f")
    yield f"{len(times)} repetitions; of the CPU time due to the fullest board it got {served}"
    yield from _rtts(number, runs)
    yield from _delays(times)
    yield from _completion(number, times)
    if not METHODS.keys() - {OURS} <= times[0].runs.keys():
        return  # the paper's claims are about all of its methods
    started = repetitions(number, [without_start(run) for run in runs])
    yield from _gains(number, times, started)
    yield from _claims(number, times, started)


def _rtts(number: int, runs: Sequence[Run]) -> Iterator[str]:
    yield "\n| between | the table, ms | measured, ms |\n| --- | ---: | ---: |"
    for a, b in SCENARIOS[number].rtt_ms:
        pair = f"{min(a, b)}-{max(a, b)}"
        measured = [run.rtt_ms[pair] for run in runs if run.rtt_ms]
        yield f"| {pair} | {SCENARIOS[number].rtt_ms[a, b]:g} | {spread(measured, '.1f')} |"


def _delays(times: Sequence[ScenarioResult]) -> Iterator[str]:
    yield (
        "\n| method | pods on n1/n2/n3 | processing, low load, s | high load, s | network, ms |\n"
        "| --- | --- | --- | --- | ---: |"
    )

    def over(key: Key, value: Callable[..., float], *of: str) -> float:
        return median(each.mean(key, value, *of) for each in times)

    for key in times[0].runs:
        counts = {"/".join(str(run.pods(w)) for w in WORKERS) for t in times for run in t.of(key)}
        cells = [
            " / ".join(f"{over(key, Outcome.processing_s, load, w):.1f}" for w in WORKERS)
            for load in ITERATIONS
        ]
        network = spread([each.mean(key, Outcome.network_s) * 1000 for each in times], ".0f")
        yield f"| {' | '.join((label(key), ', '.join(sorted(counts)), *cells, network))} |"


def _completion(number: int, times: Sequence[ScenarioResult]) -> Iterator[str]:
    loads = " | ".join(f"{load}: paper, s | mean, s | last, s" for load in ITERATIONS)
    yield f"\n| method | {loads} |\n| --- |{' ---: |' * 3 * len(ITERATIONS)}"
    for key in times[0].table_keys:
        papers = COMPLETION_S.get(KUBE_DEFAULT if key == STOCK else key)
        cells = []
        for at, load in enumerate(ITERATIONS):
            cells.append(f"{papers[number - 1][at]:.2f}" if papers else "")
            for value in (Outcome.completion_s, Outcome.last_completion_s):
                cells.append(spread([each.mean(key, value, load) for each in times], ".1f"))
        yield f"| {label(key)} | {' | '.join(cells)} |"


def _gains(
    number: int, times: Sequence[ScenarioResult], started: Sequence[ScenarioResult]
) -> Iterator[str]:
    best: Key = ("dacs", FASTEST[number - 1][0])
    yield (
        f"\n| {label(best)} takes less time than | load | paper, % | mean, % | until the last, % "
        "| mean without starts, % |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for key in (STOCK, *BASELINES):
        for at, load in enumerate(ITERATIONS):
            paper = GAINS[KUBE_DEFAULT[0] if key == STOCK else key[0]][number - 1][at]
            cells = [
                spread(
                    [gain_percent(e.mean(best, v, load), e.mean(key, v, load)) for e in of], ".1f"
                )
                for of, v in (
                    (times, Outcome.completion_s),
                    (times, Outcome.last_completion_s),
                    (started, Outcome.completion_s),
                )
            ]
            yield f"| {label(key)} | {load} | {paper:.1f} | {' | '.join(cells)} |"


def _claims(
    number: int, times: Sequence[ScenarioResult], started: Sequence[ScenarioResult]
) -> Iterator[str]:
    """The claims that miss, by the runs of all repetitions."""
    with_starts, without = (
        list(claims(_result(number, {k: [r for e in of for r in e.runs[k]] for k in of[0].runs})))
        for of in (times, started)
    )
    held = [sum(claim.holds for claim in each) for each in (with_starts, without)]
    yield f"\nOf {len(without)} claims {held[0]} hold, and {held[1]} without the starts.\n"
    yield "| claim that misses | paper | here | without starts |\n| --- | --- | --- | --- |"
    for claim, other in zip(with_starts, without, strict=True):
        if not (claim.holds and other.holds):
            ours = (f"{each.ours}{' (holds)' * each.holds}" for each in (claim, other))
            yield f"| {' | '.join((f'{claim.where}: {claim.says}', claim.paper, *ours))} |"


def main() -> None:
    """Run the methods in both scenarios, add the runs to a folder's files, and print the tables.
    The paper's claims are compared only where all methods ran."""
    parser = argparse.ArgumentParser(prog="tests.system.dacs_report", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=1, help="0: only print")
    parser.add_argument("--method", action="append", help="such as 'dacs alpha=1'; by default all")
    parser.add_argument("--low", type=int, default=ITERATIONS["low load"])
    parser.add_argument("--high", type=int, default=ITERATIONS["high load"])
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    keys = [key for key in METHODS if given.method is None or label(key) in given.method]
    loads = dict(zip(ITERATIONS, (given.low, given.high), strict=True))
    for number, scenario in SCENARIOS.items():
        file = given.folder / f"scenario-{number}.jsonl"
        if given.times:
            with file.open("a") as out:
                for run in play(scenario, keys, loads, given.times):
                    print(json.dumps(asdict(run)), file=out, flush=True)
        print("\n".join(report(number, list(read(file)))), flush=True)


if __name__ == "__main__":
    main()

"""How well replays predict what really happened: the runs of `make judge`, each replayed under the
strategies of the others. `python -m tests.lab.replay.judged FOLDER` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, median

from leadline_controller.history.recording_files import read_recording
from leadline_lab.replay.outcomes import Outcome
from leadline_lab.replay.past import Past
from leadline_lab.replay.replaying import replay

MEASURES = ("ready_s", "transfer_s")
FAR = 0.05  # pairs of strategies whose means differ by less may come in any order


@dataclass(frozen=True)
class Prediction:
    """The mean of a measure under a strategy, replayed from a recording of another one. real: the
    mean of its runs."""

    recorded: str
    number: int
    strategy: str
    measure: str
    predicted: float
    real: float
    real_range: tuple[float, float]  # of the means of its runs

    @property
    def error(self) -> float:
        """(predicted - real) / real."""
        return self.predicted / self.real - 1


@dataclass(frozen=True)
class Judged:
    """All predictions, and of each measure the share of the pairs of strategies that came in the
    right order, and how many they are. clearly: of those pairs of which each run of the one was
    above all of the other."""

    predictions: Sequence[Prediction]
    ordered: Mapping[str, tuple[float, int]]
    clearly: Mapping[str, tuple[float, int]]

    def errors(self, measure: str) -> list[float]:
        """The errors without their signs, of replays under another strategy, sorted."""
        return sorted(
            abs(each.error)
            for each in self.predictions
            if each.measure == measure and each.strategy != each.recorded
        )


def judged(folder: Path) -> Judged:
    """Replay each recording of a folder."""
    runs = json.loads((folder / "runs.json").read_text())
    strategies = list(dict.fromkeys(run["strategy"] for run in runs))
    real = {
        (strategy, measure): [
            mean(run[measure].values()) for run in runs if run["strategy"] == strategy
        ]
        for strategy in strategies
        for measure in MEASURES
    }
    found: list[Prediction] = []
    for run in runs:
        recorded, number = run["strategy"], run["number"]
        past = Past.of(read_recording(folder / f"{recorded}-{number}.recording"))
        for strategy in strategies:
            outcome = replay(past, strategy, number)
            for measure, value in _means(outcome, set(run["nodes"])).items():
                means = real[strategy, measure]
                ends = min(means), max(means)
                found.append(
                    Prediction(recorded, number, strategy, measure, value, mean(means), ends)
                )
    ordered, clearly = (
        {measure: _ordered(found, measure, are_far) for measure in MEASURES}
        for are_far in (_are_far, _are_apart)
    )
    return Judged(found, ordered, clearly)


def _means(outcome: Outcome, pods: set[str]) -> dict[str, float]:
    ours = [each for each in outcome.pods if each.pod.partition("/")[2] in pods]
    ready_s = [each.ready_s - each.created_s for each in ours if each.ready_s is not None]
    transfer_s = [each.transfer_s for each in ours if each.transfer_s is not None]
    assert len(ready_s) == len(transfer_s) == len(pods)
    return {"ready_s": mean(ready_s), "transfer_s": mean(transfer_s)}


def _ordered(
    found: Sequence[Prediction], measure: str, are_far: Callable[[Prediction, Prediction], bool]
) -> tuple[float, int]:
    """Of the pairs of strategies of each recording whose real means differ."""
    right = [
        (one.predicted < other.predicted) == (one.real < other.real)
        for one, other in _pairs([each for each in found if each.measure == measure])
        if are_far(one, other)
    ]
    return (mean(right) if right else 1.0), len(right)


def _are_far(one: Prediction, other: Prediction) -> bool:
    return abs(one.real - other.real) > FAR * min(one.real, other.real)


def _are_apart(one: Prediction, other: Prediction) -> bool:
    is_below = one.real_range[1] < other.real_range[0]
    return _are_far(one, other) and (is_below or other.real_range[1] < one.real_range[0])


def _pairs(found: Sequence[Prediction]) -> Iterator[tuple[Prediction, Prediction]]:
    for one, other in combinations(found, 2):
        if (one.recorded, one.number) == (other.recorded, other.number):
            yield one, other


def lines(judge: Judged) -> Iterator[str]:
    """The means of each strategy, real and as each recording predicts them, and the errors."""
    strategies = list(dict.fromkeys(each.strategy for each in judge.predictions))
    for measure in MEASURES:
        yield f"{measure}: mean under each strategy, s"
        yield f"{'':24}" + "".join(f"{name[:11]:>12}" for name in strategies)
        of_measure = [each for each in judge.predictions if each.measure == measure]
        real = {each.strategy: each.real for each in of_measure}
        yield f"{'real':24}" + "".join(f"{real[name]:12.2f}" for name in strategies)
        for run in dict.fromkeys((each.recorded, each.number) for each in of_measure):
            predicted = {
                each.strategy: each.predicted
                for each in of_measure
                if (each.recorded, each.number) == run
            }
            row = "".join(f"{predicted[name]:12.2f}" for name in strategies)
            yield f"{run[0][:21]:21} {run[1]} {row}"
        errors, (share, pairs) = judge.errors(measure), judge.ordered[measure]
        clear, apart = judge.clearly[measure]
        yield (
            f"error of the mean: {mean(errors):.1%}, median {median(errors):.1%}, largest "
            f"{errors[-1]:.1%}, of {len(errors)}"
        )
        yield (
            f"in the right order: {share:.0%} of {pairs} pairs, {clear:.0%} of the {apart} whose "
            "runs do not overlap"
        )
        yield ""


def main() -> None:
    """Print what came out."""
    for line in lines(judged(Path(sys.argv[1]))):
        print(line)


if __name__ == "__main__":
    main()

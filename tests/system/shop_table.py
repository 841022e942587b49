"""What the runs of the lab's shop have shown, as a table of medians. `python -m
tests.system.shop_table FOLDER` prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.system.shop_model import percentile

BEST = "best"
# A rate is the mean of a minute that began some seconds later, of users by chance.
_TOLERANCE = 0.15
_LEAST_ASKED = 1.0


@dataclass(frozen=True)
class Run:
    """What users saw. nodes: service -> board. modelled_ms: the mean of the model there."""

    network: str
    method: str
    nodes: Mapping[str, str]
    took_ms: Sequence[float]
    modelled_ms: float

    def quantile_ms(self, share: float) -> float:
        """The time that this share of the requests does not exceed."""
        return percentile(self.took_ms, share)

    def __str__(self) -> str:
        where = " ".join(f"{name}:{at}" for name, at in self.nodes.items())
        return (
            f"{self.network:6} {self.method:24} p50 {self.quantile_ms(0.5):7.1f} ms  "
            f"p95 {self.quantile_ms(0.95):7.1f} ms  of {len(self.took_ms)}  "
            f"model {self.modelled_ms:6.1f} ms  {where}"
        )


@dataclass(frozen=True)
class Requests:
    """Requests a second from one service to another: as it says itself, and between which numbers
    boards' counts place them."""

    network: str
    caller: str
    to: str
    asked: float
    least: float
    most: float

    @property
    def is_held(self) -> bool:
        """Whether the truth is between the two, or too small to say."""
        if self.asked < _LEAST_ASKED:
            return True
        return (1 - _TOLERANCE) * self.least <= self.asked <= (1 + _TOLERANCE) * self.most

    def __str__(self) -> str:
        return (
            f"{self.network:6} {self.caller} to {self.to}: {self.asked:.2f} requests/s, counted "
            f"{self.least:.2f} to {self.most:.2f}, {self.most / max(self.asked, 0.01):.1f} packets "
            "a request"
        )


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Of each network and method the medians of its runs, as rows of Markdown. Of the best ones
    the run with the least mean counts, as it is what could be had."""
    yield "| network | method | p50 ms | p95 ms | mean ms | the model's mean ms |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.network, run.method), []).append(run)
    for (network, method), found in sorted(groups.items(), key=lambda each: each[0][0]):
        name, chosen = method, found
        if method == BEST:
            name, chosen = f"best of {len(found)}", [min(found, key=_mean_ms)]
        numbers = (
            median(each.quantile_ms(0.5) for each in chosen),
            median(each.quantile_ms(0.95) for each in chosen),
            median(_mean_ms(each) for each in chosen),
            median(each.modelled_ms for each in chosen),
        )
        cells = " | ".join(f"{number:.1f}" for number in numbers)
        yield f"| {network} | {name} | {cells} |"


def _mean_ms(run: Run) -> float:
    return sum(run.took_ms) / len(run.took_ms)


def main() -> None:
    """Print the table of FOLDER/runs.json."""
    (folder,) = sys.argv[1:]
    print(*table(read(Path(folder))), sep="\n")


def read(folder: Path) -> Sequence[Run]:
    """The runs that a folder has."""
    return [Run(**each) for each in json.loads((folder / "runs.json").read_text())]


if __name__ == "__main__":
    main()

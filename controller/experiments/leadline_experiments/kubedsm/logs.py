"""What the authors of KubeDSM logged: each service's pods, and those on edge nodes, every 15 s.

The counts are facts from their published placement logs (github.com/AUT-Cloud-Lab/MineDraft, folder
reports), ten runs of each workload: KubeDSM of October and its variants of November 2024, and the
baselines of February 2025. The authors logged the baselines in October 2024 too. Those of BEF, SEF
and CF are left out, because their program counted resources wrongly then: up to 13 cores of pods
are on an edge node with 4. With the later ones, deviations come out as the paper states them.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from leadline_controller.framework.view import Floats, Ints

SAMPLE_S = 15.0
K8S_2024 = "kube-default 2024-10-19"


class Log(NamedTuple):
    """One run."""

    pods: Ints  # of services A, B, C and D, shape (samples, 4), at least one each
    on_edge: Ints  # those of them on edge nodes

    @property
    def shares(self) -> Floats:
        """The share of each service's pods on the edge, shape (samples, 4)."""
        return self.on_edge / self.pods


Logs = Mapping[str, Mapping[str, Sequence[Log]]]


@cache
def logs() -> Logs:
    """Runs by method, or variant or setting of KubeDSM, and by name of the workload."""
    packed = files(__package__).joinpath("logs.json.gz").read_bytes()
    runs = json.loads(gzip.decompress(packed))["runs"]
    return {
        method: {name: [_unpacked(text) for text in texts] for name, texts in workloads.items()}
        for method, workloads in runs.items()
    }


def _unpacked(text: str) -> Log:
    """See "about" in the file."""

    def samples() -> Iterator[list[int]]:
        pods = ""
        for entry in text.split():
            pods = entry[1:5] if len(entry) == 9 else pods
            for _ in range(int(entry[0], 36)):
                yield [int(digit, 36) for digit in pods + entry[-4:]]

    counts = np.array(list(samples()), dtype=np.int64)
    return Log(counts[:, :4], counts[:, 4:])


def mean_over_runs(runs: Sequence[Floats]) -> Floats:
    """The mean over runs of each sample, and of these the mean over time, as the authors average
    them. runs: shape (samples, ...), of different lengths. Shape (...)."""
    longest = max(map(len, runs))
    padded = np.full((len(runs), longest, *runs[0].shape[1:]), np.nan)
    for row, run in zip(padded, runs, strict=True):
        row[: len(run)] = run
    mean: Floats = np.nanmean(padded, axis=0).mean(axis=0)
    return mean

"""What Section 5 says of Fig. 5 to 8, held against what came out.

The text prints no number of them, so its sentences are what can be held: which scheduler is
the better one in which step, what rises and what falls, and what comes out equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from leadline_experiments.response_time.testbed import (
    LEVELS,
    THRESHOLD_MS,
    Service,
)
from leadline_experiments.result import (
    Claim,
    count_claim,
    gain_claim,
    gain_percent,
    order_claim,
)

OURS, DEFAULT = "response-time", "kube-default"
PEAK = LEVELS.index(max(LEVELS))


@dataclass(frozen=True, slots=True)
class Shown:
    """What a method showed, a value for each step. nodes: of the first run's replicas.
    removed: nodes of its replicas taken away, in that order."""

    response_ms: Sequence[float]
    deviation_ms: Sequence[float]
    throughput: Sequence[float]
    nodes: Sequence[Sequence[str]]
    removed: Sequence[str]


def all_claims(
    web: tuple[Service, Mapping[str, Shown]], detection: tuple[Service, Mapping[str, Shown]]
) -> Sequence[Claim]:
    """All that the paper says, of what each service showed."""
    return [
        *_placement_claims("Fig. 3", *web),
        *_web_claims(web[1]),
        *_placement_claims("Fig. 4", *detection),
        *_detection_claims(detection[1]),
    ]


def _placement_claims(table: str, service: Service, shown: Mapping[str, Shown]) -> Iterator[Claim]:
    """How many replicas there are, where they go, and which go first (Sections 3.2, 4.2, 5)."""
    ours, default = shown[OURS], shown[DEFAULT]
    for name in (OURS, DEFAULT):
        yield count_claim(
            table,
            name,
            "each step up brings a replica, each step down takes one away",
            LEVELS,
            [len(nodes) for nodes in shown[name].nodes],
        )
    predicted = service.predicted_ms
    group = sorted(
        (n for n in predicted if predicted[n] <= THRESHOLD_MS), key=predicted.__getitem__
    )
    yield _same(
        table,
        OURS,
        "replicas go to the nodes under the threshold, the fastest first, then to the first again",
        (*group, *group[:1] * max(LEVELS))[: max(LEVELS)],
        ours.nodes[PEAK],
    )
    yield _same(
        table,
        OURS,
        "a scale-down takes the replica created last",
        tuple(reversed(ours.nodes[PEAK]))[: len(ours.removed)],
        ours.removed,
    )
    yield _same(
        table,
        DEFAULT,
        "the default spreads its replicas over all nodes",
        sorted(predicted),
        sorted(default.nodes[PEAK]),
    )
    yield order_claim(
        table,
        "step 1",
        "the default's first node violates the threshold",
        ("threshold", DEFAULT),
        {"threshold": THRESHOLD_MS, DEFAULT: default.response_ms[0]},
    )


def _web_claims(shown: Mapping[str, Shown]) -> Iterator[Claim]:
    """Section 5.1."""
    ours, default = shown[OURS], shown[DEFAULT]
    response, throughput = "Fig. 5", "Fig. 6"
    yield _first_replica(response, shown)
    yield _steps(response, OURS, "the response time rises with the replicas", ours.response_ms, 1)
    yield _steps(
        response, DEFAULT, "the response time falls with the replicas", default.response_ms, -1
    )
    yield _steps(
        response, OURS, "the way down has the same pattern", ours.response_ms, -1, down=True
    )
    yield _steps(
        response, DEFAULT, "the way down has the same pattern", default.response_ms, 1, down=True
    )
    gaps = _gaps(shown)
    yield order_claim(
        response,
        "step 4",
        "the schedulers are most alike with the most replicas (least difference, ms)",
        ("step 4", "steps 1-3"),
        {"step 4": gaps[PEAK], "steps 1-3": min(gaps[:PEAK])},
    )
    yield from _more_throughput(throughput, shown, range(PEAK))
    yield _steps(
        throughput,
        OURS,
        "the throughput grows until there are three replicas",
        ours.throughput[:PEAK],
        1,
    )
    yield _equal(
        throughput,
        OURS,
        "it is stable from three replicas on",
        ours.throughput[PEAK - 1],
        ours.throughput[PEAK],
    )
    yield _equal(
        throughput,
        "step 4",
        "both have the same throughput with the most replicas",
        default.throughput[PEAK],
        ours.throughput[PEAK],
    )


def _detection_claims(shown: Mapping[str, Shown]) -> Iterator[Claim]:
    """Section 5.2."""
    ours, default = shown[OURS], shown[DEFAULT]
    response, throughput = "Fig. 7", "Fig. 8"
    yield _first_replica(response, shown)
    yield _steps(
        response, DEFAULT, "more replicas make the default faster", default.response_ms[:PEAK], -1
    )
    gaps = _gaps(shown)
    for step in (1, 2):
        yield order_claim(
            response,
            f"step {step + 1}",
            "the schedulers are closer than with the first replica (difference, ms)",
            (f"step {step + 1}", "step 1"),
            {f"step {step + 1}": gaps[step], "step 1": gaps[0]},
        )
    yield order_claim(
        response,
        "step 4",
        "with the most replicas the proposed scheduler is the faster one",
        (OURS, DEFAULT),
        {name: shown[name].response_ms[PEAK] for name in (OURS, DEFAULT)},
    )
    yield _equal(
        throughput,
        "step 3",
        "both have the same throughput with three replicas",
        default.throughput[PEAK - 1],
        ours.throughput[PEAK - 1],
    )
    others = [step for step in range(len(LEVELS)) if step != PEAK - 1]
    yield from _more_throughput(throughput, shown, others)


def _first_replica(table: str, shown: Mapping[str, Shown]) -> Claim:
    return order_claim(
        table,
        "step 1",
        "the first replica answers sooner than the default's",
        (OURS, DEFAULT),
        {name: shown[name].response_ms[0] for name in (OURS, DEFAULT)},
    )


def _more_throughput(
    table: str, shown: Mapping[str, Shown], steps: Sequence[int]
) -> Iterator[Claim]:
    for step in steps:
        yield order_claim(
            table,
            f"step {step + 1}",
            "the proposed scheduler has more throughput",
            (DEFAULT, OURS),
            {name: shown[name].throughput[step] for name in (OURS, DEFAULT)},
        )


def _steps(
    table: str, case: str, says: str, values: Sequence[float], sign: int, *, down: bool = False
) -> Claim:
    """A claim that the values rise (sign 1) or fall (-1), on the steps up or on those down."""
    first = PEAK if down else 0
    last = len(values) if down else min(PEAK + 1, len(values))
    ours = {f"step {step + 1}": values[step] for step in range(first, last)}
    return order_claim(table, case, says, tuple(ours)[::sign], ours)


def _gaps(shown: Mapping[str, Shown]) -> list[float]:
    pairs = zip(shown[OURS].response_ms, shown[DEFAULT].response_ms, strict=True)
    return [abs(ours - default) for ours, default in pairs]


def _equal(table: str, case: str, says: str, before: float, after: float) -> Claim:
    return gain_claim(table, case, says, 0.0, -gain_percent(after, before))


def _same(table: str, case: str, says: str, expected: Sequence[str], found: Sequence[str]) -> Claim:
    paper, ours = "/".join(expected), "/".join(found)
    return Claim(table, case, says, "exact", paper, ours, paper == ours)

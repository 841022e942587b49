"""Comparisons of strategies as messages of the inspection service."""

import math

from leadline_wire.v1 import shadow_pb2 as pb

from leadline_controller.history.comparison import Comparison, Later
from leadline_controller.inspect.parts import Parts


def age_s(request: pb.CompareStrategiesRequest) -> float:
    """How old decisions may be. Raises ValueError for a time that makes no sense."""
    if not math.isfinite(request.since_s) or request.since_s < 0:
        raise ValueError("since_s: expected seconds, 0 for all")
    return request.since_s or math.inf


def response(
    source: Parts, found: list[Comparison], *, truncated: bool
) -> pb.CompareStrategiesResponse:
    """The comparisons, and which strategies decide now."""
    return pb.CompareStrategiesResponse(
        strategies=source.shadow.names if source.shadow is not None else (),
        strategy=source.rule.strategy.name,
        comparisons=map(_comparison, found),
        truncated=truncated,
    )


def _comparison(found: Comparison) -> pb.ShadowComparison:
    return pb.ShadowComparison(
        strategy=found.strategy,
        decided_by=found.decided_by,
        better=found.better,
        decisions=found.decisions,
        missed=found.missed,
        same=found.same,
        tied=found.tied,
        different=found.different,
        pending=found.pending,
        scored=found.scored,
        gain=found.gain,
        rank=found.rank,
        later=map(_later, found.later),
        workloads=[
            pb.DifferingWorkload(name=x.name, different=x.different, decisions=x.decisions)
            for x in found.workloads
        ],
        boards=[
            pb.DifferingBoards(
                node=x.name, shadow=x.other, different=x.different, decisions=x.decisions
            )
            for x in found.boards
        ],
        verdicts=found.verdicts,
    )


def _later(found: Later) -> pb.LaterMeasured:
    return pb.LaterMeasured(
        name=found.name,
        decisions=found.decisions,
        hours=found.hours,
        chosen=found.node,
        shadow=found.choice,
        pods=found.pods,
        difference=found.difference,
        low=found.low,
        high=found.high,
    )

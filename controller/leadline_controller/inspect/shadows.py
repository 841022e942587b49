"""Comparisons of strategies as messages of the inspection service."""

import math

from leadline_wire.v1 import shadow_pb2 as pb

from leadline_controller.history.comparison import Comparison
from leadline_controller.inspect.messages import message
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
    return message(
        pb.ShadowComparison,
        found,
        later=[
            message(pb.LaterMeasured, each, chosen=each.node, shadow=each.choice)
            for each in found.later
        ],
        workloads=[message(pb.DifferingWorkload, each) for each in found.workloads],
        boards=[
            message(pb.DifferingBoards, each, node=each.name, shadow=each.other)
            for each in found.boards
        ],
    )

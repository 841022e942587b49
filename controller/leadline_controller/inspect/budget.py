"""Budgets as messages of the inspection service."""

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.inspect.messages import message
from leadline_controller.probing.scheduler import ProbingStatus


def response(probing: ProbingStatus) -> pb.GetBudgetResponse:
    """What probing costs, without who leads."""
    return pb.GetBudgetResponse(
        nodes=[message(pb.BudgetStatus, each) for each in probing.nodes],
        uplinks=[message(pb.BudgetStatus, each) for each in probing.uplinks],
        running=[message(pb.RunningTest, each) for each in probing.running],
    )

"""Budgets as messages of the inspection service."""

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.probing.spending import AccountStatus


def response(probing: ProbingStatus) -> pb.GetBudgetResponse:
    """What probing costs, without who leads."""
    return pb.GetBudgetResponse(
        nodes=map(_status, probing.nodes),
        uplinks=map(_status, probing.uplinks),
        running=[
            pb.RunningTest(
                client=test.client,
                server=test.server,
                max_bytes=test.max_bytes,
                uplinks=test.uplinks,
            )
            for test in probing.running
        ],
    )


def _status(account: AccountStatus) -> pb.BudgetStatus:
    return pb.BudgetStatus(
        name=account.name,
        allowed_share=account.allowed_share,
        share=account.share,
        hour_share=account.hour_share,
        day_share=account.day_share,
        bytes_per_day=account.bytes_per_day,
        bytes=account.bytes,
        day_bytes=account.day_bytes,
        day_bytes_left=account.day_bytes_left,
        tests=account.tests,
        age_s=account.age_s,
        pings_per_minute=account.pings_per_minute,
    )

"""Show which pods would be better elsewhere, and move them."""

import time

import click
from leadline_wire.v1 import rescheduling_pb2 as pb
from leadline_wire.v1.rescheduling_pb2_grpc import ReschedulingStub

from leadline_controller.cli import rescheduling as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import Format, emit, output_option, working

_POLL_S = 1.0
_NOW = "now"


@click.command(epilog="Example: leadline reschedule --dry-run")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing; the default.")
@click.option(
    "--apply",
    "plan_id",
    metavar="[PLAN]",
    is_flag=False,
    flag_value=_NOW,
    help="Carry out just this plan, if it would be the same now; without an id whatever would be "
    "moved now.",
)
@output_option
@connection_options
def reschedule(dry_run: bool, plan_id: str | None, output: Format, endpoint: Endpoint) -> None:
    """Show which running pods would be better on another node, what each gains and how its users
    notice, and why the others stay; or move them."""
    if dry_run and plan_id is not None:
        raise BadInput("--dry-run and --apply: expected one of them")
    if plan_id in (None, _NOW):
        plan = ask(endpoint, lambda stub: stub.GetPlan, pb.GetPlanRequest, service=ReschedulingStub)
        if plan_id is None or not plan.moves:
            emit(
                output,
                lambda: shown.plan_document(plan),
                lambda wide: shown.plan_tables(plan, wide=wide),
            )
            return
        plan_id = plan.id
    state = ask(
        endpoint,
        lambda stub: stub.ApplyPlan,
        pb.ApplyPlanRequest,
        service=ReschedulingStub,
        id=plan_id,
    ).state
    with working(f"moving pods by plan {plan_id}"):
        while state.running == plan_id:
            time.sleep(_POLL_S)
            state = ask(
                endpoint,
                lambda stub: stub.GetReschedulingState,
                pb.GetReschedulingStateRequest,
                service=ReschedulingStub,
            )
    emit(output, lambda: shown.state_document(state), lambda _: shown.outcome_tables(state))
    ended = [each for each in state.outcomes if each.ending != "moved"]
    if state.last != plan_id:
        raise Failed(f"plan {plan_id} was not carried out; see `leadline reschedule --dry-run`")
    if ended:
        raise Failed(f"{len(ended)} of {len(state.outcomes)} moves did not end as planned")

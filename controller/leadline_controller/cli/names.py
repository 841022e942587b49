"""The names of nodes and pods that a shell completes and that an error suggests, asked of the
controller. A shell wants names at once and no other word; where the controller does not answer
there are none."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from difflib import get_close_matches
from typing import Any

import click
import grpc
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import traffic_pb2
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from leadline_controller.cli.client import endpoint_of
from leadline_controller.cli.errors import NotFound

_TIMEOUT_S = 2.0
_MOST_PODS = 2000
_GONE = ("gone", "deleted")  # outcomes of pods that are no more
_SUGGESTED = 3
_ALIKE = 0.75  # as difflib has it: 1 is the same


def nodes(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The nodes whose names begin so."""
    found = _asked(context, "ListNodes", pb.ListNodesRequest())
    return [node.name for answer in found for node in answer.nodes if node.name.startswith(typed)]


def pods(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The pods whose names begin so: in --namespace, else namespace/name."""
    found = _asked(context, "ListPlacements", pb.ListPlacementsRequest(limit=_MOST_PODS))
    keys = [each.pod for answer in found for each in answer.placements if each.outcome not in _GONE]
    own = f"{context.params.get('namespace') or 'default'}/"
    names = [key.removeprefix(own) for key in keys if typed and key.startswith(own + typed)]
    return names or [key for key in keys if key.startswith(typed)]


def ends(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The workloads, nodes and addresses with traffic whose names begin so: in --namespace, else
    as the controller has them."""
    found = _asked(context, "GetTraffic", traffic_pb2.GetTrafficRequest())
    edges = [edge for answer in found for edge in answer.edges]
    names = sorted({each.source for each in edges} | {each.destination for each in edges})
    own = f"{context.params.get('namespace') or 'default'}/"
    near = [name.removeprefix(own) for name in names if typed and name.startswith(own + typed)]
    return near or [name for name in names if name.startswith(typed)]


@contextmanager
def suggesting(known: Callable[[click.Context, Any, str], list[str]], name: str) -> Iterator[None]:
    """Where the controller knows no such name, adds those that may be meant: in another namespace,
    or spelled nearly so. known: `nodes`,
    `pods` or `ends`."""
    try:
        yield
    except NotFound as error:
        names = known(click.get_current_context(), None, "")
        near = [each for each in names if each.partition("/")[2] == name.partition("/")[2] != ""]
        near += [x for x in get_close_matches(name, names, _SUGGESTED, _ALIKE) if x not in near]
        meant = f"; did you mean {' or '.join(near[:_SUGGESTED])}?" if near else ""
        raise NotFound(error.message + meant) from None


def _asked(context: click.Context, method: str, request: Any) -> Iterator[Any]:
    """The answer, if there is one. context: of the command, with the options that are typed."""
    options = (context.params.get(name) for name in ("address", "ca", "cert", "key"))
    with (
        redirect_stderr(io.StringIO()),  # it is the terminal on which somebody types
        suppress(click.ClickException, grpc.RpcError),
        endpoint_of(*options).channel() as channel,
    ):
        yield getattr(InspectionStub(channel), method)(request, timeout=_TIMEOUT_S)

"""The way from the CLI to a running controller, and what to say when there is none."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

# gRPC writes its own lines about failed handshakes; ours is the one that a person can use.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click
import grpc
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from leadline_controller.api.settings import (
    DEFAULT_ADDRESS,
    MAX_ANSWER_BYTES,
    ServeError,
    TlsFiles,
    is_local,
)
from leadline_controller.cli.errors import BadInput, Failed, Unreachable
from leadline_controller.cli.output import working

Answer = TypeVar("Answer")
TIMEOUT_S = 10.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # Pods and node names are no business of a web proxy that the environment names.
    ("grpc.enable_http_proxy", 0),
)
_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which controller to ask. Raises BadInput when the parts don't fit together."""

    address: str = DEFAULT_ADDRESS
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        try:
            local = is_local(self.address)
        except ServeError as problem:
            raise BadInput(f"--address {problem}") from None
        if not local and self.tls is None:
            raise BadInput(
                f"--address {self.address}: that is another machine, so it needs "
                "--ca, --cert and --key"
            )

    def channel(self) -> grpc.Channel:
        """A channel that connects on first use. Raises BadInput."""
        if self.tls is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS)
        try:
            credentials = self.tls.client_credentials()
        except ServeError as problem:
            raise BadInput(str(problem)) from None
        return grpc.secure_channel(self.address, credentials, options=_OPTIONS)


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[InspectionStub]:
    """The controller's service. Raises Unreachable, Failed or BadInput in
    place of gRPC's errors."""
    with endpoint.channel() as channel:
        try:
            yield InspectionStub(channel)
        except grpc.RpcError as problem:
            raise _explained(problem, endpoint) from None
        except UnicodeEncodeError:
            raise BadInput("expected a name in UTF-8, as all names in Kubernetes are") from None


def ask(endpoint: Endpoint, question: Callable[[InspectionStub], Answer]) -> Answer:
    """One question, put while a terminal shows that we wait. Raises as `connected` does."""
    with working(f"asking the controller at {endpoint.address}"), connected(endpoint) as stub:
        return question(stub)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --address, --ca, --cert and --key, and hand it an `endpoint`."""

    @functools.wraps(command)
    def with_endpoint(
        *arguments: Any,
        address: str,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        **options: Any,
    ) -> Any:
        endpoint = Endpoint(address, _tls(ca, cert, key))
        return command(*arguments, endpoint=endpoint, **options)

    described: Callable[..., Any] = with_endpoint
    for name, text in (
        ("key", "Private key of --cert (PEM)."),
        ("cert", "Client certificate to show (PEM)."),
        ("ca", "Authority of the controller's certificate (PEM)."),
    ):
        envvar = f"LEADLINE_{name.upper()}"
        described = click.option(f"--{name}", type=_FILE, envvar=envvar, help=text)(described)
    return click.option(
        "--address",
        default=DEFAULT_ADDRESS,
        envvar="LEADLINE_ADDRESS",
        show_default=True,
        show_envvar=True,
        help="Where the controller answers: host:port or unix:/path.",
    )(described)


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> TlsFiles | None:
    if ca is not None and cert is not None and key is not None:
        return TlsFiles(ca, cert, key)
    if ca is None and cert is None and key is None:
        return None
    raise BadInput("--ca, --cert and --key go together: give all three, or none")


def _explained(problem: grpc.RpcError, endpoint: Endpoint) -> Failed | BadInput | Unreachable:
    code = problem.code() if isinstance(problem, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = " ".join(str(problem.details() if isinstance(problem, grpc.Call) else "").split())
    where = endpoint.address
    if code == grpc.StatusCode.UNAVAILABLE:
        trust = ", check --ca, --cert and --key" if endpoint.tls else ""
        return Unreachable(
            f"cannot reach the controller at {where}: start it with `leadline-controller run`"
            f"{trust}, or name it with --address"
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unreachable(
            f"the controller at {where} did not answer within {TIMEOUT_S:g} s; "
            "see its log, or name another one with --address"
        )
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return Failed(f"what answers at {where} does not know this question; is it older?")
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return BadInput(details)
    return Failed(details or f"the controller at {where} answered {code.name}")

"""The gRPC client of the commands that ask a running controller."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

# gRPC writes lines of its own about failed handshakes; the command prints one that helps.
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
    # Names of pods and nodes must not go through a web proxy that the environment sets.
    ("grpc.enable_http_proxy", 0),
)
_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which controller to ask. Raises BadInput for a remote address without TLS files."""

    address: str = DEFAULT_ADDRESS
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        try:
            local = is_local(self.address)
        except ServeError as problem:
            raise BadInput(f"--address {problem}") from None
        if not local and self.tls is None:
            raise BadInput(
                f"--address {self.address}: it is on another machine, so it needs "
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
    """The controller's service. gRPC's errors become Unreachable, Failed or BadInput."""
    with endpoint.channel() as channel:
        try:
            yield InspectionStub(channel)
        except grpc.RpcError as problem:
            raise _explained(problem, endpoint) from None
        except UnicodeEncodeError:
            raise BadInput("expected a name in UTF-8, as all names in Kubernetes are") from None


def ask(endpoint: Endpoint, question: Callable[[InspectionStub], Answer]) -> Answer:
    """The answer to one request, with a spinner on a terminal. Raises as `connected` does."""
    with working(f"asking the controller at {endpoint.address}"), connected(endpoint) as stub:
        return question(stub)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --address, --ca, --cert and --key to a command, which gets them as `endpoint`."""

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
        return Failed(f"the server at {where} does not know this request; is it an older leadline?")
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return BadInput(details)
    return Failed(details or f"the controller at {where} answered {code.name}")

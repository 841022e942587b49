"""The gRPC client of the commands that ask a running controller."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

# gRPC writes lines of its own about failed handshakes; the command prints one that helps.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click
import grpc
from google.protobuf.message import Message
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from leadline_controller.cli.errors import BadInput, Failed, NotFound, Unreachable
from leadline_controller.cli.output import working
from leadline_controller.cli.unreachable import SEE, cause_of, is_open
from leadline_controller.serve.settings import (
    DEFAULT_ADDRESS,
    DEFAULT_REMOTE_ADDRESS,
    MAX_ANSWER_BYTES,
    ServeError,
    TlsFiles,
    is_local,
)

Answer = TypeVar("Answer")
Command = Callable[..., Any]
TIMEOUT_S = 10.0
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # Names of pods and nodes must not go through a web proxy that the environment sets.
    ("grpc.enable_http_proxy", 0),
    # So that a watch notices a machine that lost its power.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
)


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
def connected(
    endpoint: Endpoint, service: Callable[[grpc.Channel], Any] = InspectionStub
) -> Iterator[Any]:
    """The stub of a service of the controller. Raises as `reaching` does."""
    with reaching(endpoint) as channel:
        yield service(channel)


@contextmanager
def reaching(endpoint: Endpoint) -> Iterator[grpc.Channel]:
    """A channel to the controller. gRPC's errors become Unreachable, Failed or BadInput."""
    with endpoint.channel() as channel:
        try:
            yield channel
        except grpc.RpcError as problem:
            raise _explained(problem, endpoint) from None
        except UnicodeEncodeError:
            raise BadInput("expected a name in UTF-8, as all names in Kubernetes are") from None


def ask(
    endpoint: Endpoint,
    method: Callable[[Any], Callable[..., Answer]],
    request: Callable[..., Message],
    *,
    service: Callable[[grpc.Channel], Any] = InspectionStub,
    timeout_s: float = TIMEOUT_S,
    **fields: object,
) -> Answer:
    """The answer to one request, of this type and with these fields. Has a spinner on a terminal.
    Raises as `connected` does."""
    with (
        working(f"asking the controller at {endpoint.address}"),
        connected(endpoint, service) as stub,
    ):
        answer = method(stub)(request(**fields), timeout=timeout_s)
    if fields.get("selector") and not getattr(answer, "selector", ""):
        raise Failed(
            f"the controller at {endpoint.address} does not know selectors; update it, or leave "
            "--selector out"
        )
    return answer


def selected(endpoint: Endpoint, selector: str) -> Callable[[str], bool]:
    """Whether a node of this name has such labels; always true without a selector. Raises as `ask`
    does."""
    if not selector:
        return lambda _: True
    answer = ask(endpoint, lambda stub: stub.ListNodes, pb.ListNodesRequest, selector=selector)
    return {node.name for node in answer.nodes}.__contains__


def optional(message: Message, field: str) -> Any:
    """The field of an answer, None if it is not set."""
    return getattr(message, field) if message.HasField(field) else None


def plain(message: Message, names: str = "") -> dict[str, Any]:
    """Fields of an answer as plain data, all without `names`. One that is not set is None; so is
    an empty one whose name has a question mark."""
    made: dict[str, Any] = {}
    for asked in names.split() or [field.name for field in message.DESCRIPTOR.fields]:
        name = asked.removesuffix("?")
        has_presence = message.DESCRIPTOR.fields_by_name[name].has_presence
        value = optional(message, name) if has_presence else getattr(message, name)
        if isinstance(value, Message):
            value = plain(value)
        elif hasattr(value, "items"):
            value = dict(value)
        elif not isinstance(value, int | float | str | None):
            value = [plain(each) if isinstance(each, Message) else each for each in value]
        made[name] = value if value or name == asked else None
    return made


def duration_s(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float:
    """The seconds of an option's duration, such as 90s, 10m or 1.5h; 0 without one."""
    if text is None:
        return 0.0
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)([smhd]?)", text)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{text!r}: expected a duration such as 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS_S[found[2]]


def _file_option(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{name}", type=click.Path(path_type=Path), envvar=f"LEADLINE_{name.upper()}", help=text
    )


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --address, --ca, --cert and --key to a command, which gets them as `endpoint`."""

    @click.option(
        "--address",
        envvar="LEADLINE_ADDRESS",
        show_default=DEFAULT_ADDRESS,
        show_envvar=True,
        help="Where the controller answers: host:port or unix:/path.",
    )
    @_file_option("ca", "Authority of the controller's certificate (PEM).")
    @_file_option("cert", "Client certificate to show (PEM).")
    @_file_option("key", "Private key of --cert (PEM).")
    @functools.wraps(command)
    def with_endpoint(
        *arguments: Any,
        address: str | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        **options: Any,
    ) -> Any:
        return command(*arguments, endpoint=endpoint_of(address, ca, cert, key), **options)

    return with_endpoint


def endpoint_of(
    address: str | None, ca: Path | None, cert: Path | None, key: Path | None
) -> Endpoint:
    """Whom the values of --address, --ca, --cert and --key name. Raises BadInput."""
    tls = TlsFiles(ca, cert, key) if ca and cert and key else None
    if tls is None and (ca or cert or key):
        raise BadInput("--ca, --cert and --key go together: give all three, or none")
    return Endpoint(_default_address(tls) if address is None else address, tls)


def _default_address(tls: TlsFiles | None) -> str:
    """Where this machine's controller answers: at its socket; who shows a certificate, and a
    controller of an older release or with such settings, at a port."""
    if tls is not None:
        return DEFAULT_REMOTE_ADDRESS
    if is_open(DEFAULT_ADDRESS) or cause_of(DEFAULT_REMOTE_ADDRESS, None) is not None:
        return DEFAULT_ADDRESS
    click.echo(
        f"a controller without certificates answers at {DEFAULT_REMOTE_ADDRESS}, where the next "
        f"leadline will not look: update it and leave grpc.address out of its settings, so that it "
        f"answers at {DEFAULT_ADDRESS}, or name the address with --address",
        err=True,
    )
    return DEFAULT_REMOTE_ADDRESS


def _explained(problem: grpc.RpcError, endpoint: Endpoint) -> Failed | BadInput | Unreachable:
    code, details = grpc.StatusCode.UNKNOWN, ""
    if isinstance(problem, grpc.Call):
        code, details = problem.code(), " ".join(str(problem.details()).split())
    where = endpoint.address
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        cause = cause_of(where, endpoint.tls)
        if cause is not None:
            remedy = cause.remedy
            if not is_local(where):
                remedy = remedy.replace(f"see {SEE}", f"on its machine see {SEE}")
            return Unreachable(f"cannot reach the controller at {where}: {cause.why}; {remedy}")
        if code == grpc.StatusCode.UNAVAILABLE:
            return Unreachable(f"the controller at {where} does not answer: {details}; see {SEE}")
        return Unreachable(f"the controller at {where} did not answer in time; see {SEE}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return Failed(f"the server at {where} does not know this request; is it an older leadline?")
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return BadInput(details)
    if code == grpc.StatusCode.NOT_FOUND:
        return NotFound(details)
    if details.startswith("Concurrent RPC limit"):  # gRPC's own words
        return Failed(f"the controller at {where} has too many calls in progress; try again later")
    return Failed(details or f"the controller at {where} answered {code.name}")

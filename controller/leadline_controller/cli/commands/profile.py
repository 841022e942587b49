"""Measure how long a service works on a request, on each board."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from leadline_wire.v1 import replicas_pb2 as pb
from leadline_wire.v1.replicas_pb2_grpc import ReplicasStub

from leadline_controller.cli.client import TIMEOUT_S, Endpoint, connection_options, reaching
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.http_timing import TimingError, timed
from leadline_controller.cli.output import Format, emit, output_option, table, track, working
from leadline_controller.cluster.service_profiles import (
    BoardProfile,
    ServiceProfile,
    document,
    read_profiles,
    with_profile,
    write_profiles,
)
from leadline_controller.parsing.fields import FieldError

_TIMES = ("WORK", "DEVIATION")


@click.command(
    epilog="Example: leadline profile --pods app=web --port 8080 --path /detect "
    "--save /etc/leadline/profiles.json"
)
@click.option("--pods", required=True, metavar="LABELS", help="The service's pods, as app=web.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Their namespace.")
@click.option("--port", type=click.IntRange(1, 65_535), default=80, show_default=True)
@click.option("--path", default="/", show_default=True, help="The page to request.")
@click.option(
    "--requests",
    type=click.IntRange(3, 10_000),
    default=20,
    show_default=True,
    help="For each replica, one after the other.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 600),
    default=10.0,
    show_default=True,
    help="Seconds for each request.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also put the profile into this file, for the controller's strategy.profiles.",
)
@output_option
@connection_options
def profile(
    pods: str,
    namespace: str,
    port: int,
    path: str,
    requests: int,
    timeout_s: float,
    save: Path | None,
    output: Format,
    endpoint: Endpoint,
) -> None:
    """Measure the execution time of a service on each board that has a replica of it: the time of
    a request over HTTP less the round trip from here. This machine must reach the pods. Boards of
    one class (label leadline.dev/class) are summed up; a board without a replica then counts as
    its class."""
    if not path.startswith("/") or any(ord(each) <= 32 or ord(each) > 126 for each in path):
        raise BadInput(f"--path {path!r}: expected a path such as /detect")
    labels = dict(_label(each) for each in pods.split(","))
    before = _saved(save)
    with (
        working(f"asking the controller at {endpoint.address}"),
        reaching(endpoint) as channel,
    ):
        request = pb.ListReplicasRequest(namespace=namespace, labels=labels)
        replicas = list(ReplicasStub(channel).ListReplicas(request, timeout=TIMEOUT_S).replicas)
    if not replicas:
        raise Failed(
            f"no pod in {namespace} has the labels {pods} and an address; start a replica on each "
            "board, or on one of each class"
        )
    boards: dict[str, BoardProfile] = {}
    for replica in track(replicas, "measuring replicas"):
        try:
            found = timed(replica.address, port, path, requests, timeout_s)
        except TimingError as error:
            raise Failed(f"{replica.pod} on {replica.node}: {error}") from None
        known = boards.get(replica.node)
        if known is None or found.ms < known.ms:  # of two replicas, the one that is less disturbed
            boards[replica.node] = BoardProfile(
                replica.node_class, found.ms, found.deviation_ms, found.rtt_ms, requests
            )
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    measured = ServiceProfile(namespace, labels, boards, now)
    if save is not None:
        try:
            write_profiles(save, with_profile(before, measured))
        except OSError as error:
            raise Failed(f"--save {save}: {error.strerror}") from None
    emit(output, lambda: document([measured]), lambda _: _tables(measured))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.strip().partition("=")
    if not (key and equals):
        raise BadInput(f"--pods {text!r}: expected labels such as app=web,tier=edge")
    return key, value


def _saved(file: Path | None) -> list[ServiceProfile]:
    """What the file has. Read first, so that nothing is measured for a file that can't be used."""
    if file is None:
        return []
    try:
        return read_profiles(file)
    except FileNotFoundError:
        return []
    except FieldError as error:
        raise BadInput(f"--save {file}: {error}") from None


def _tables(service: ServiceProfile) -> Iterable[Any]:
    yield table(
        ("NODE", "CLASS", *_TIMES, "ROUND TRIP"),
        [
            (name, each.node_class or "none", *_ms(each.ms, each.deviation_ms, each.rtt_ms))
            for name, each in sorted(service.boards.items())
        ],
        numbers=(*_TIMES, "ROUND TRIP"),
    )
    if classes := service.classes():
        yield table(
            ("CLASS", *_TIMES, "BOARDS"),
            [(name, *_ms(ms, spread), count) for name, (ms, spread, count) in classes.items()],
            numbers=(*_TIMES, "BOARDS"),
        )


def _ms(*values: float) -> Iterable[str]:
    return (f"{each:.2f} ms" for each in values)

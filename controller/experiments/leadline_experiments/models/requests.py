"""What one user wants of a pod, and how long the network and the pod take over it."""

from collections.abc import Generator
from dataclasses import dataclass

import simpy

from leadline_experiments.models.cpu import CpuModel


@dataclass(frozen=True, slots=True)
class Request:
    """What a user wants of a pod.

    ready_s: until the pod has its image and has started. sending_s: for the user's data to reach
    the pod's node. round_trip_s: between the user's node and the pod's, none where they are one.
    work_core_s, limit_cores: see Processors.run.
    """

    ready_s: float
    sending_s: float
    round_trip_s: float
    work_core_s: float
    limit_cores: float


@dataclass(frozen=True, slots=True)
class Visit:
    """How an errand went, in seconds. done_s: when the user had the answer."""

    network_s: float
    processing_s: float
    done_s: float


def visit(
    env: simpy.Environment, processors: CpuModel, request: Request
) -> Generator[simpy.Event, object, Visit]:
    """A process: wait for the pod, send the data, have it processed, get the answer back."""
    one_way_s = request.round_trip_s / 2
    yield env.timeout(request.ready_s + request.sending_s + one_way_s)
    began_s = env.now
    yield processors.run(request.work_core_s, request.limit_cores)
    processing_s = env.now - began_s
    yield env.timeout(one_way_s)
    return Visit(request.sending_s + request.round_trip_s, processing_s, env.now)


def answered(user: simpy.Process) -> Visit:
    """What the process of a visit came to; it must be over."""
    found = user.value
    assert isinstance(found, Visit)  # noqa: S101  # a process is untyped
    return found

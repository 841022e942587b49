"""One user's request to a pod, and the time that network and pod need for it."""

from collections.abc import Generator
from dataclasses import dataclass

import simpy

from leadline_experiments.models.cpu import CpuModel


@dataclass(frozen=True, slots=True)
class Request:
    """A user's request to a pod.

    ready_s: until the pod has its image and runs. sending_s: to transfer the user's data.
    round_trip_s: between the user's node and the pod's; 0 if they are the same. work_core_s,
    limit_cores: see CpuModel.run.
    """

    ready_s: float
    sending_s: float
    round_trip_s: float
    work_core_s: float
    limit_cores: float


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """The delays of a request, and the time of its answer, in seconds."""

    network_s: float
    processing_s: float
    done_s: float


def serve(
    env: simpy.Environment, cpu: CpuModel, request: Request
) -> Generator[simpy.Event, object, ServedRequest]:
    """A process: wait for the pod, send the data, process it, return the answer."""
    one_way_s = request.round_trip_s / 2
    yield env.timeout(request.ready_s + request.sending_s + one_way_s)
    start_s = env.now
    yield cpu.run(request.work_core_s, request.limit_cores)
    processing_s = env.now - start_s
    yield env.timeout(one_way_s)
    return ServedRequest(request.sending_s + request.round_trip_s, processing_s, env.now)


def served(process: simpy.Process) -> ServedRequest:
    """The result of a `serve` process that has ended."""
    result = process.value
    assert isinstance(result, ServedRequest)  # noqa: S101  # a process is untyped
    return result

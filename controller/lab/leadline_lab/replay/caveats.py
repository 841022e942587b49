"""What a replay could not know and assumed, in sentences for who reads its outcome."""

from collections.abc import Collection, Iterator, Mapping

from leadline_controller.framework.batch import BatchStrategy
from leadline_controller.framework.cycle import Strategy

from leadline_lab.replay.boards import BoardLoad
from leadline_lab.replay.past import Past

_UNKNOWN = {
    "images": "Of {} placements the images' layers are not known, so they wait as it was recorded.",
    "speed": "At {} placements no pull had shown how fast boards pull: they wait as recorded.",
    "start": "At {} placements nothing tells how long the pod starts, so it is ready at once.",
}


def caveats(
    past: Past, strategy: Strategy, unknown: Mapping[str, int], loads: Collection[BoardLoad]
) -> Iterator[str]:
    """The sentences about one run. unknown: at how many placements each of these was not known:
    images, speed, start."""
    pods = [life.pod for life in past.lives.values()]
    yield (
        "Demand is as it was recorded: a service that would have answered sooner or later from "
        "another board may have had more or fewer replicas."
    )
    if isinstance(strategy, BatchStrategy):
        yield "A strategy that plans batches of pods is replayed pod by pod."
    if any(pod.claims for pod in pods):
        yield "Volumes are bound where they were, so pods with claims are bound to them."
    if any(pod.priority for pod in pods):
        yield "No pod is preempted for another of higher priority, as may have been in reality."
    if past.restarts:
        yield f"The recorded controller began again {past.restarts} times, the replayed one never."
    if past.missed:
        yield f"{past.missed} entries of the recording are missing."
    if any(load.is_saturated for load in loads):
        yield "Boards had all of their CPU in use: contention was as bad as it says, or worse."
    for what, sentence in _UNKNOWN.items():
        if unknown[what]:
            yield sentence.format(unknown[what])

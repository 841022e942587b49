"""What a pod's status says about its images, and what a kubelet's events say about pulls."""

import re
from itertools import islice

from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.ports import ImagePull
from leadline_controller.kubeobjects.schema import Name, Part, PodSpec, PodStatus
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

_MAX_CONTAINERS = 64
# Events are written by whoever may: a pull of a day, or of a TB, says nothing more if it is larger.
_MOST_S, _MOST_MB = 86_400.0, 1e6
_BY_DIGEST = re.compile(r"[a-z0-9:/._+-]{1,400}@sha256:[0-9a-f]{64}", re.IGNORECASE)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\xb5s": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(h|ms|m|s|us|\xb5s|ns)")
# Successfully pulled image "IMAGE" in 21.257s (25.1s including waiting). Image size: 21100580
# bytes. The time in parentheses has the wait for other images of this node in it, which the queue
# explains.
_PULLING = re.compile(r'Pulling image "(?P<image>[^"\s]{1,512})"')
_PULLED = re.compile(
    r'Successfully pulled image "(?P<image>[^"\s]{1,512})" in (?P<took>[0-9a-z.\xb5]{1,40}[a-z])'
    r"(?: \([^)]{1,60}\))?(?:\. Image size: (?P<size>[0-9]{1,15}) bytes)?"
)


def read_image_states(
    spec: PodSpec, status: PodStatus
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The images whose containers are not created yet, and those of the others, each with its name
    by digest."""
    awaited: list[str] = []
    started: list[tuple[str, str]] = []
    for containers, statuses in (
        (spec.init_containers, status.init_container_statuses),
        (spec.containers, status.container_statuses),
    ):
        known = {each.name: each for each in statuses}
        for container in islice(containers, _MAX_CONTAINERS):
            of_it = known.get(container.name)
            if of_it is not None and _BY_DIGEST.fullmatch(of_it.image_id):
                image_id = of_it.image_id.removeprefix("docker-pullable://")
                started.append((container.image, full_name(image_id)))
            elif of_it is None or of_it.state.may_wait_for_image:
                awaited.append(container.image)
    if status.phase in ("Succeeded", "Failed"):
        awaited.clear()
    return tuple(dict.fromkeys(awaited)), tuple(dict.fromkeys(started))


class _About(Part):
    uid: Name


class _Source(Part):
    host: Name = ""


class _Event(Part):
    message: str
    reason: str
    involved_object: _About
    source: _Source = _Source()
    reporting_instance: Name = ""


def read_pull(event: object) -> ImagePull | None:
    """What a kubelet's v1 Event with the reason Pulling or Pulled says; None if it is about
    anything else, or cannot be read."""
    try:
        read = decode(event, _Event, "event")
    except FieldError:
        return None
    node, pod_uid = read.source.host or read.reporting_instance, read.involved_object.uid
    if not node or not read.message.isascii():
        return None
    if read.reason == "Pulling" and (found := _PULLING.match(read.message)):
        return ImagePull(node, pod_uid, full_name(found["image"]))
    if read.reason != "Pulled" or not (found := _PULLED.match(read.message)):
        return None
    size = found["size"]
    return ImagePull(
        node=node,
        pod_uid=pod_uid,
        image=full_name(found["image"]),
        took_s=min(_seconds(found["took"]), _MOST_S),
        size_mb=None if size is None else min(int(size) / 1e6, _MOST_MB),
    )


def _seconds(duration: str) -> float:
    """A duration in Go's notation, seconds."""
    return sum(float(each[1]) * _UNITS_S[each[2]] for each in _DURATION_PART.finditer(duration))

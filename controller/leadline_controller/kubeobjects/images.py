"""What a pod's status says about its images, and what a kubelet's events say about pulls."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from leadline_controller.framework.images import full_name
from leadline_controller.framework.ports import ImagePull
from leadline_controller.parsing.fields import Fields

# A container that waits for one of these may wait for its image. With another reason, such as
# ImagePullBackOff or CrashLoopBackOff, nothing is downloaded now.
_CREATING = ("", "ContainerCreating", "PodInitializing")
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
    spec: Fields, status: Fields
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The images whose containers are not created yet, and those of the others, each with its name
    by digest. A status that cannot be read says nothing: strategies can do without it."""
    of_kinds = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))
    awaited: list[str] = []
    started: list[tuple[str, str]] = []
    for kind, statuses in of_kinds:
        states = _by_name(status.raw(statuses))
        for container in islice(spec.objects(kind), _MAX_CONTAINERS):
            image = container.text("image", "")
            known = states.get(container.text("name", ""), {})
            image_id, state = known.get("imageID"), known.get("state")
            if isinstance(image_id, str) and _BY_DIGEST.fullmatch(image_id):
                started.append((image, full_name(image_id.removeprefix("docker-pullable://"))))
                continue
            waiting = state.get("waiting") if isinstance(state, dict) else None
            reason = waiting.get("reason", "") if isinstance(waiting, dict) else ""
            if (not state or isinstance(waiting, dict)) and reason in _CREATING:
                awaited.append(image)
    if status.text("phase", "") in ("Succeeded", "Failed"):
        awaited.clear()
    return tuple(dict.fromkeys(awaited)), tuple(dict.fromkeys(started))


def read_pull(event: Mapping[str, Any]) -> ImagePull | None:
    """What a kubelet's v1 Event with the reason Pulling or Pulled says; None if it is about
    anything else, or cannot be read."""
    source, about = event.get("source"), event.get("involvedObject")
    node = source.get("host") if isinstance(source, Mapping) else None
    node = node or event.get("reportingInstance")
    uid = about.get("uid") if isinstance(about, Mapping) else None
    message, reason = event.get("message"), event.get("reason")
    texts = node, uid, message
    if not all(isinstance(text, str) and text.isascii() for text in texts):
        return None
    if reason == "Pulling" and (found := _PULLING.match(str(message))):
        return ImagePull(str(node), str(uid), full_name(found["image"]))
    if reason != "Pulled" or not (found := _PULLED.match(str(message))):
        return None
    size = found["size"]
    return ImagePull(
        node=str(node),
        pod_uid=str(uid),
        image=full_name(found["image"]),
        took_s=min(_seconds(found["took"]), _MOST_S),
        size_mb=None if size is None else min(int(size) / 1e6, _MOST_MB),
    )


def _seconds(duration: str) -> float:
    """A duration in Go's notation, seconds."""
    return sum(float(each[1]) * _UNITS_S[each[2]] for each in _DURATION_PART.finditer(duration))


def _by_name(statuses: object) -> dict[str, dict[str, Any]]:
    listed = statuses[:_MAX_CONTAINERS] if isinstance(statuses, list) else ()
    return {
        each["name"]: each
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    }
